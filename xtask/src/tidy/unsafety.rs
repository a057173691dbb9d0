//! `unsafe` code stays in a few crates, and every block says why it is sound.

use super::source::Source;
use super::workspace::{Finding, Workspace};

/// The crates that may contain `unsafe`, and its purpose.
const ALLOWED: &[(&str, &str)] = &[
    ("link", "the way to the CUDA driver"),
    ("device", "calls into the CUDA driver"),
    ("cuda", "kernel launches"),
    ("emulator/driver", "the CUDA driver's C interface"),
    ("emulator/simulator", "the registers and memory of emulated kernels"),
    ("nvtx", "calls into the library of a profiler"),
    ("cpu", "SIMD kernels"),
    ("profile", "loops of vector instructions that measure a processor"),
];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &workspace.sources {
        let allowed = ALLOWED.iter().any(|(name, _)| *name == source.krate());
        for at in source.words("unsafe") {
            // `unsafe_code` in `#![forbid(unsafe_code)]` is another word; an `unsafe fn` needs documentation instead of a
            // SAFETY comment.
            if !allowed {
                let crates: Vec<_> = ALLOWED.iter().map(|(name, what)| format!("{name} ({what})")).collect();
                let message = format!("`unsafe` belongs in {}", crates.join(", "));
                found.push(Finding::new(source.place(at), message));
            } else if opens_a_claim(&source.code[at..]) && !has_proof(source, at) {
                found.push(Finding::new(
                    source.place(at),
                    "no `// SAFETY:` above: name the invariant and who keeps it",
                ));
            }
        }
    }
    found
}

/// True if this `unsafe` needs a SAFETY comment: a block or an impl, rather than a function whose caller must give the reason.
fn opens_a_claim(code: &str) -> bool {
    let rest = code["unsafe".len()..].trim_start();
    rest.starts_with('{') || rest.starts_with("impl")
}

/// True if there is a SAFETY comment on the line of `at`, or above it with only comments, attributes and the beginning of the
/// same statement between.
fn has_proof(source: &Source, at: usize) -> bool {
    let line = source.code[..at].matches('\n').count();
    let code: Vec<&str> = source.code.lines().take(line + 1).collect();
    let comments: Vec<&str> = source.comments.lines().take(line + 1).collect();
    for n in (0..=line).rev() {
        if comments[n].contains("SAFETY:") {
            return true;
        }
        let above = code[n].trim_end();
        let blank = above.is_empty() && comments[n].trim().is_empty();
        if n < line && (blank || above.ends_with([';', '{', '}', ','])) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, workspace};
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let found = check(&workspace(&[(path, text)]));
        places(&found).into_iter().map(String::from).collect()
    }

    #[test]
    fn unsafe_outside_its_crates_is_found() {
        let text = "// SAFETY: never\nfn f() { unsafe { g() } }";
        assert_eq!(found("crates/nn/src/a.rs", text), ["crates/nn/src/a.rs:2"]);
        assert!(found("crates/cpu/src/a.rs", text).is_empty());
        assert!(found("crates/nn/src/a.rs", "#![forbid(unsafe_code)] // unsafe").is_empty());
    }

    #[test]
    fn a_claim_without_a_proof_is_found() {
        let at = "crates/cpu/src/a.rs";
        assert_eq!(found(at, "fn f() {\n    unsafe { g() }\n}"), [format!("{at}:2")]);
        assert_eq!(
            found(at, "// SAFETY: of f\nfn f() {\n    h();\n    unsafe { g() }\n}"),
            [format!("{at}:4")]
        );
        assert!(found(at, "// SAFETY: x\n// more\n#[inline]\nunsafe impl Send for A {}").is_empty());
        assert!(
            found(
                at,
                "fn f() {\n    // SAFETY: x\n    let a =\n        unsafe { g() };\n}"
            )
            .is_empty()
        );
        assert!(found(at, "/// # Safety\n/// AVX.\nunsafe fn g() {}").is_empty());
    }
}
