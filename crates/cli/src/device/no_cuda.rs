//! NVIDIA GPUs, in a build without CUDA.

use super::finding::Finding;
use super::task::{Arithmetic, DeviceEntry, Task};
use crate::error::{Error, Result};
use serde_json::Map;

const BUILD: &str = "cargo install --locked --path crates/cli --features cuda";

/// No GPU, and the reason.
pub(crate) fn auto_select() -> (Option<usize>, String) {
    (None, "this build has no CUDA".to_string())
}

/// An error with advice on a build with CUDA.
pub(crate) fn resolve(number: Option<usize>) -> Result<usize> {
    let name = number.map_or_else(|| "cuda".to_string(), |n| format!("cuda:{n}"));
    Err(Error::failure(format!("device {name}: this build of kiln has no CUDA"))
        .help(format!("build one with `{BUILD}`, or use --device cpu")))
}

/// The UUID of a GPU: this build knows none.
pub(crate) fn uuid(_: &str) -> Option<String> {
    None
}

/// The error of [`resolve`].
pub(crate) fn run<T: Task>(number: usize, _: Arithmetic, _: T) -> Result<T::Output> {
    Err(match resolve(Some(number)) {
        Err(refusal) => refusal,
        Ok(_) => unreachable!("this build finds no device"),
    })
}

/// A finding that says that this build has no CUDA.
pub(crate) fn examine() -> Vec<Finding> {
    let advice = format!("for NVIDIA GPUs build with `{BUILD}`, which takes nvcc");
    vec![Finding::lacks("CUDA", "this build of kiln has no CUDA", &advice)]
}

/// One entry, which says that this build has no CUDA.
pub(crate) fn list_devices() -> Vec<DeviceEntry> {
    vec![DeviceEntry {
        name: "cuda".to_string(),
        usable: false,
        description: format!("not in this build; {BUILD}"),
        details: Map::new(),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::{Backend, Runtime};
    use kiln_profile::Profiled;

    /// Work that has no device to be run on.
    struct Work;

    impl Task for Work {
        type Output = ();

        fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<()> {
            unreachable!("ran on {}", backend.name())
        }
    }

    #[test]
    fn gpus_are_refused_with_the_command_of_the_readme() {
        let readme = include_str!("../../../../README.md").lines();
        let install = readme.filter(|line| line.starts_with("cargo install "));
        let install: Vec<&str> = install.flat_map(|line| line.split('#').next()).map(str::trim).collect();
        assert_eq!(install, [BUILD]);

        assert_eq!(auto_select(), (None, "this build has no CUDA".to_string()));
        assert_eq!(uuid("cuda:0"), None);
        for (number, name) in [(None, "cuda"), (Some(3), "cuda:3")] {
            let refusal = resolve(number).unwrap_err();
            assert_eq!(
                refusal.message,
                format!("device {name}: this build of kiln has no CUDA")
            );
            assert!(
                refusal
                    .help
                    .is_some_and(|help| help.contains(BUILD) && help.contains("--device cpu"))
            );
        }
        assert!(run(3, Arithmetic::default(), Work).is_err());
        assert!(
            examine()[0]
                .advice
                .as_ref()
                .is_some_and(|advice| advice.contains(BUILD))
        );
        let listed = list_devices();
        assert!(!listed[0].usable && listed[0].description.contains(BUILD));
    }
}
