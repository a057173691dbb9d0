//! Where the workspace is, what is in it, and how cargo is called.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The outcome of a task: `Ok(false)` when a check failed and has said so, `Err` when the task could not run.
pub(crate) type Outcome = Result<bool, String>;

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    // xtask is built from its own workspace, so the path known at build time is right unless the checkout was moved.
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(|d| PathBuf::from(d).join(".."));
    let root = here.filter(|d| d.join("xtask").is_dir()).unwrap_or(built);
    root.canonicalize().unwrap_or(root)
}

/// `cargo ARGS` in the workspace's root, with the cargo that runs this task.
pub(crate) fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// A command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or_default().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs a command with this terminal's output; whether it succeeded.
pub(crate) fn passes(command: &mut Command) -> Outcome {
    println!("$ {}", line(command));
    let status = command
        .status()
        .map_err(|e| format!("cannot run `{}`: {e}", line(command)))?;
    Ok(status.success())
}

/// A source file of the workspace: its path from the root, with `/` between folders, and its text.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every file under `root` that a rule may speak about, sorted by path. Build output, hidden folders and environments
/// are left out.
pub(crate) fn files(root: &Path) -> Result<Vec<File>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                // A folder with a CACHEDIR.TAG is build output wherever it lies.
                if !name.starts_with('.') && !path.join("CACHEDIR.TAG").exists() && !is_output(root, &path) {
                    folders.push(path);
                }
                continue;
            }
            let known = ["rs", "toml", "cu", "cuh", "h", "c", "py", "md"];
            if path.extension().is_some_and(|e| known.contains(&&*e.to_string_lossy())) {
                let text =
                    std::fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
                let relative = path.strip_prefix(root).unwrap_or(&path);
                let parts: Vec<_> = relative.iter().map(|p| p.to_string_lossy()).collect();
                found.push(File {
                    path: parts.join("/"),
                    text,
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn is_output(root: &Path, folder: &Path) -> bool {
    ["target", "runs", "node_modules"]
        .iter()
        .any(|n| folder == root.join(n))
}
