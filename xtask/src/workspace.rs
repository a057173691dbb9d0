//! The workspace's folder, its files, and calls of cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The outcome of a task: `Ok(false)` if a check failed and has printed so, `Err` if the task could not run.
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

/// A command as it would be typed.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or_default().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs a command with output to this terminal; true if it succeeds.
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

/// Every file under `root` that rules may check, sorted by path.
pub(crate) fn files(root: &Path) -> Result<Vec<File>, String> {
    let known = ["rs", "toml", "cu", "cuh", "h", "c", "py", "md"];
    let mut found = Vec::new();
    for path in paths(root)? {
        if path.rsplit_once('.').is_some_and(|(_, e)| known.contains(&e)) {
            let text = std::fs::read_to_string(root.join(&path)).map_err(|e| format!("cannot read {path}: {e}"))?;
            found.push(File { path, text });
        }
    }
    Ok(found)
}

/// The path of every file under `root`, relative to it, sorted, with `/` between folders. Build output, hidden folders and
/// Python environments are left out.
pub(crate) fn paths(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
        for path in entries.flatten().map(|e| e.path()) {
            if !path.is_dir() {
                let parts: Vec<_> = path.strip_prefix(root).unwrap_or(&path).iter().collect();
                found.push(parts.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>().join("/"));
            } else if !is_output(root, &path) {
                folders.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_output(root: &Path, folder: &Path) -> bool {
    let hidden = folder.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
    // Cargo marks its build folders with this file.
    let marked = folder.join("CACHEDIR.TAG").exists();
    hidden || marked || ["target", "runs"].iter().any(|n| folder == root.join(n))
}
