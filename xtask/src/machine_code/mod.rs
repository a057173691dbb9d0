//! `cargo xtask machine-code`: what the machine code of the kernels asks of a GPU, per kernel and architecture, without a GPU.
//!
//! The kernels are built as the programs have them; nvdisasm takes their machine code apart, and crates/machine-code finds loops and
//! counts instructions. What came of an image lies in target/machine-code under a hash of all that it depends on, so that an image that
//! has not changed is not taken apart again.

pub(crate) mod figures;
pub(crate) mod gates;
mod table;

use crate::parallel::in_order;
use crate::toolkit::{self, Toolkit};
use crate::workspace::{Outcome, cargo, root};
use kiln_machine_code::{Disassembler, Error, Kernel, fingerprint, kernels, ptxas};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The version of the JSON: it grows when a field changes its meaning or goes.
const SCHEMA: u32 = 1;
/// The architectures that the kernels are built for unless `KILN_CUDA_ARCHS` says otherwise.
pub(crate) const ARCHS: [u32; 2] = [80, 90];

#[derive(clap::Args)]
#[command(after_help = "\
A row is a kernel on an architecture: registers, warps that an SM holds, bytes of stack and spills, then one turn of its main loop, or
the way through the kernel (-) where there is no loop: instructions issued and the kinds among them, the sum of stall counts, bytes
of global memory a warp moves per instruction, and the narrowest of those accesses. docs/machine-code.md says how to read it, and what
the JSON holds.
  cargo xtask machine-code --kernel 'matmul_tensor_128x*_bf16' --arch 90 --loops
`cargo xtask gpu-gates` holds these figures against kernels/gates.toml.")]
pub(crate) struct Args {
    /// Only kernels with this in their name; `*` stands for anything
    #[arg(long, value_name = "PATTERN")]
    kernel: Option<String>,
    /// Only these architectures, such as 90 or 80,90
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    arch: Vec<u32>,
    /// Every loop of a kernel in a line of its own
    #[arg(long)]
    loops: bool,
    /// Write crates/forecast/data/kernels.tsv anew, the figures that `kiln forecast` has, and show nothing
    #[arg(long, conflicts_with_all = ["kernel", "arch", "loops", "json"])]
    table: bool,
    /// Write all figures to a file as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let archs = if args.arch.is_empty() { &ARCHS[..] } else { &args.arch };
    let tool = disassembler()?;
    if args.table {
        return figures::write(&read(&tool, &ARCHS)?).map(|()| true);
    }
    let mut all = read(&tool, archs)?;
    if let Some(pattern) = &args.kernel {
        let pattern = if pattern.contains('*') {
            pattern.clone()
        } else {
            format!("*{pattern}*")
        };
        all.retain(|(_, kernel)| matches(&pattern, &kernel.name));
    }
    print!("{}", table::shown(&all, args.loops));
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report(&all, &tool)).map_err(|e| e.to_string())?;
        std::fs::write(path, text + "\n").map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    if all.is_empty() {
        println!("no kernel has such a name");
    }
    Ok(!all.is_empty())
}

/// nvdisasm, installed beside nvcc if it is not here.
pub(crate) fn disassembler() -> Result<Disassembler, String> {
    Disassembler::find(&toolkit::disassembler()?).map_err(|e| e.to_string())
}

fn report(all: &[(String, Kernel)], tool: &Disassembler) -> Value {
    let kernels = all.iter().map(|(image, kernel)| {
        let mut value = json!({ "image": image });
        if let (Value::Object(row), Ok(Value::Object(of))) = (&mut value, serde_json::to_value(kernel)) {
            row.extend(of);
        }
        value
    });
    json!({
        "schema": SCHEMA,
        "nvcc": toolkit::compiler(),
        "nvdisasm": tool.version(),
        "kernels": kernels.collect::<Vec<_>>(),
    })
}

/// All kernels of the workspace for these architectures, each with the name of its image.
pub(crate) fn read(tool: &Disassembler, archs: &[u32]) -> Result<Vec<(String, Kernel)>, String> {
    let folder = images()?;
    let mut stems = Vec::new();
    let sources = root().join("kernels/src");
    for entry in std::fs::read_dir(&sources).map_err(|e| format!("cannot read {}: {e}", sources.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.extension().is_some_and(|e| e == "cu") {
            stems.extend(path.file_stem().map(|s| s.to_string_lossy().into_owned()));
        }
    }
    stems.sort();
    let jobs: Vec<(&str, u32)> = stems
        .iter()
        .flat_map(|stem| archs.iter().map(move |arch| (stem.as_str(), *arch)))
        .filter(|(stem, arch)| own_arch(stem).is_none_or(|own| own == *arch))
        .collect();
    let mut all = Vec::new();
    let disassemble =
        |(stem, arch): &(&str, u32)| image(&folder, stem, *arch, tool).map_err(|e| format!("{stem}: {e}"));
    in_order(&jobs, disassemble, |at, found| -> Result<(), String> {
        all.extend(found?.into_iter().map(|kernel| (jobs[at].0.to_string(), kernel)));
        Ok(())
    })?;
    all.sort_by(|(_, a), (_, b)| (&a.name, a.arch).cmp(&(&b.name, b.arch)));
    Ok(all)
}

/// The one architecture that an image is for, by its name: 90 of `matmul_sm90a` (kiln-nvcc).
fn own_arch(stem: &str) -> Option<u32> {
    let (_, arch) = stem.rsplit_once("_sm")?;
    arch.strip_suffix('a')?.parse().ok()
}

/// Builds the kernels as the tests do, so that nothing is built twice; the folder that their images lie in.
fn images() -> Result<PathBuf, String> {
    let mut words: Vec<String> = ["test", "--no-run", "--test", "entries", "--message-format", "json"]
        .map(String::from)
        .into();
    words.extend(Toolkit::Ready.selection());
    let mut build = cargo(words.iter().map(String::as_str));
    let output = build.stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| format!("cannot run cargo: {e}"))?;
    if !output.status.success() {
        return Err("the kernels do not compile".to_string());
    }
    out_dir(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| "cargo names no folder of the kernels".to_string())
}

/// The folder that the kernels' build writes to, from cargo's messages.
fn out_dir(messages: &str) -> Option<PathBuf> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut built = messages.filter(|m| {
        let of = m["package_id"].as_str().unwrap_or_default();
        m["reason"] == "build-script-executed" && (of.contains("/kernels#") || of.contains("kiln-kernels"))
    });
    built.find_map(|m| m["out_dir"].as_str().map(PathBuf::from))
}

/// The kernels of one image for one architecture, from the cache if they are there.
fn image(folder: &Path, stem: &str, arch: u32, tool: &Disassembler) -> Result<Vec<Kernel>, String> {
    let path = folder.join(stem).with_extension("fatbin");
    let image = std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    // Images of an older build have no log beside them.
    let log = std::fs::read_to_string(path.with_extension("ptxas")).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (&image, &log, tool.version(), fingerprint()).hash(&mut hasher);
    let key = hasher.finish().to_string();
    let cache = root().join("target/machine-code").join(format!("{stem}.{arch}.json"));
    if let Some(known) = known(&cache, &key) {
        return Ok(known);
    }
    let found = kernels(&image, arch, &ptxas::spills(&log), tool).map_err(|e| match e {
        Error::NoCode { .. } => format!("{e}; KILN_CUDA_ARCHS says which there is"),
        e => e.to_string(),
    })?;
    // A cache that cannot be written costs the next run time, and nothing else.
    if let (Some(folder), Ok(text)) = (
        cache.parent(),
        serde_json::to_string(&json!({ "key": key, "kernels": found })),
    ) {
        let _ = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&cache, text));
    }
    Ok(found)
}

/// The kernels in a file of the cache, if it is of this key.
fn known(cache: &Path, key: &str) -> Option<Vec<Kernel>> {
    let mut value: Value = serde_json::from_str(&std::fs::read_to_string(cache).ok()?).ok()?;
    let same = value["key"] == key;
    same.then(|| serde_json::from_value(value["kernels"].take()).ok())
        .flatten()
}

/// True if a name is that of a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => match name.strip_prefix(start) {
            None => false,
            Some(name) => (0..=name.len()).any(|at| name.get(at..).is_some_and(|end| matches(rest, end))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_take_what_a_shell_would() {
        assert!(matches("a*c", "abbc") && matches("a*c", "ac") && matches("*", "") && matches("*b*", "abc"));
        assert!(!matches("a*c", "abcd") && !matches("a", "ab") && !matches("", "a"));
        assert!(
            matches("matmul_*_bf16", "matmul_tensor_128x128_nn_bf16") && !matches("matmul_*_bf16", "matmul_nn_f16")
        );
    }

    #[test]
    fn an_image_for_one_architecture_says_so_in_its_name() {
        assert_eq!(own_arch("matmul_warpgroup_bf16_sm90a"), Some(90));
        assert_eq!(own_arch("softmax"), None);
        assert_eq!(own_arch("matmul_small"), None);
    }

    #[test]
    fn the_folder_of_the_kernels_is_in_cargos_messages() {
        let line = |id: &str, out: &str| {
            json!({"reason": "build-script-executed", "package_id": id, "out_dir": out}).to_string()
        };
        let text = [
            line("path+file:///a/libc#1.0", "/x"),
            line("path+file:///a/kernels#kiln-kernels@0.1.0", "/y"),
        ]
        .join("\n");
        assert_eq!(out_dir(&text), Some(PathBuf::from("/y")));
        assert_eq!(out_dir("no json\n{}"), None);
    }
}
