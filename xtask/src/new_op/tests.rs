use super::*;
use crate::workspace;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn names_are_checked() {
    for name in ["roll", "grid_sample", "conv4d"] {
        assert_eq!(check_name(name), Ok(()));
    }
    for name in ["", "Roll", "4d", "grid-sample", "a__b", "a_", "type", "../roll"] {
        assert!(check_name(name).is_err(), "{name}");
    }
}

#[test]
fn lists_stay_in_order() {
    let list = "//! x\n\nmod conv;\npub mod index;\nmod softmax;\n\npub use conv::*;\n";
    let entered = |line| enter(list, line).unwrap_or_default();
    assert!(entered("mod roll;").contains("pub mod index;\nmod roll;\nmod softmax;"));
    assert!(entered("mod a;").contains("mod a;\nmod conv;"));
    assert!(entered("pub use roll::*;").ends_with("pub use conv::*;\npub use roll::*;\n"));
    let bounds = "trait B:\n    A\n    + COps\n{\n}\nimpl B for T where\n    T: A\n        + COps\n{\n}\n";
    let entered = enter(bounds, "+ RollOps").unwrap_or_default();
    assert!(entered.contains("    + COps\n    + RollOps\n{"), "{entered}");
    assert!(entered.contains("        + COps\n        + RollOps\n{"), "{entered}");
    assert_eq!(enter("nothing", "mod a;"), None);
}

/// A copy of the workspace's files in a temporary folder, which is removed on drop.
struct Copy(PathBuf);

impl Copy {
    fn new() -> Self {
        let to = std::env::temp_dir().join(format!("kiln-xtask-new-op-{}", std::process::id()));
        let from = root();
        for path in workspace::paths(&from).expect("the workspace can be read") {
            let target = to.join(&path);
            std::fs::create_dir_all(target.parent().expect("has a parent")).expect("a folder");
            std::fs::copy(from.join(&path), target).expect("copied");
        }
        Copy(to)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compiles the new kernel as kernels/build does, but only to PTX, if there is an nvcc.
fn compile_kernel(root: &Path) {
    let nvcc = match crate::toolkit::search::find(&workspace::root().join("kernels")) {
        Ok(nvcc) if crate::toolkit::compiles(&nvcc.path).is_ok() => nvcc.path,
        _ => return eprintln!("skipped: there is no nvcc to compile the new kernel"),
    };
    let ptx = root.join("grid_sample.ptx");
    let mut command = Command::new(nvcc);
    command
        .args([
            "-ptx",
            "-std=c++17",
            "-O3",
            "-Werror",
            "all-warnings",
            "-arch=compute_80",
            "-o",
        ])
        .arg(&ptx)
        .arg("grid_sample.cu")
        .current_dir(root.join("kernels/src"));
    let output = command.output().expect("nvcc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&ptx).expect("PTX");
    for dtype in ["f32", "bf16", "f16"] {
        assert!(
            text.contains(&format!(".visible .entry grid_sample_{dtype}(")),
            "{dtype}"
        );
    }
}

#[test]
fn the_scaffold_is_tidy_and_compiles() {
    let copy = Copy::new();
    let written = scaffold(&copy.0, "grid_sample").expect("a new family");
    assert_eq!(written.len(), FILES.len() + 11);
    assert!(scaffold(&copy.0, "grid_sample").is_err(), "a family is scaffolded once");
    assert!(scaffold(&copy.0, "conv").is_err(), "conv exists");
    assert_eq!(crate::tidy::faults(&copy.0), Ok(Vec::new()));

    compile_kernel(&copy.0);

    // A build folder beside that of this test, kept from run to run. It cannot be the same folder: cargo names a package by its
    // path in its workspace, so the copy would overwrite build results of the original.
    let test = std::env::current_exe().expect("this test is a file");
    let target = test
        .ancestors()
        .nth(3)
        .expect("target/PROFILE/deps/xtask-…")
        .join("new-op");
    let mut check = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    check
        .args(["check", "--quiet", "--tests", "--locked"])
        .args(["--package", "kiln-testkit", "--package", "kiln-profile"])
        .env("CARGO_TARGET_DIR", target);
    let mut format = Command::new("rustfmt");
    format.args(["--check", "--edition", "2024"]);
    let rust = FILES.iter().filter(|(_, extension, _)| *extension == "rs");
    format.args(rust.map(|(folder, ..)| format!("{folder}/grid_sample.rs")));
    // Compiling takes minutes on two cores, and is left to `cargo xtask test --full`.
    let full = std::env::var_os("KILN_TEST_FULL").is_some();
    for mut command in [Some(format), full.then_some(check)].into_iter().flatten() {
        let output = command
            .current_dir(&copy.0)
            .output()
            .expect("a tool of the toolchain runs");
        let said = [output.stderr, output.stdout].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && !said.contains("warning"), "{said}");
    }
}
