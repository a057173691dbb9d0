//! `cargo xtask package`: the crates as they would be published.

use crate::toolkit;
use crate::workspace::{Outcome, cargo, passes, root};
use serde_json::Value;

/// The crates whose documentation docs.rs has to build without nvcc.
const WITHOUT_NVCC: [&str; 3] = ["kiln-kernels", "kiln-cuda", "kiln-device"];

/// Packs every crate that may be published and builds each from its package, then the documentation of the CUDA crates as
/// docs.rs does.
pub(crate) fn run() -> Outcome {
    let metadata = cargo(["metadata", "--no-deps", "--format-version", "1"]).output();
    let metadata = metadata.map_err(|e| format!("cannot run cargo metadata: {e}"))?;
    let metadata: Value = serde_json::from_slice(&metadata.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let kept = private(&metadata);
    let mut words = vec!["package", "--workspace", "--allow-dirty"];
    words.extend(kept.iter().flat_map(|name| ["--exclude", name.as_str()]));
    let mut package = cargo(words);
    if let toolkit::Toolkit::Missing(why) = toolkit::ensure() {
        println!("packages are not built, only made: {why}");
        package.arg("--no-verify");
    }
    // A package does not lie beside the project's own toolkit.
    package.env("VIRTUAL_ENV", root().join(".venv-cuda"));
    let packed = passes(&mut package)?;
    let docs = ["doc", "--no-deps", "--target-dir", "target/docs-rs"];
    let mut docs = cargo(
        docs.into_iter()
            .chain(WITHOUT_NVCC.iter().flat_map(|name| ["-p", name])),
    );
    docs.env("DOCS_RS", "1").env("RUSTDOCFLAGS", "-D warnings");
    Ok(packed && passes(&mut docs)?)
}

/// The members of a workspace that are not published.
fn private(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let private = packages.filter(|p| p["publish"].as_array().is_some_and(Vec::is_empty));
    private.filter_map(|p| p["name"].as_str().map(String::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_published_is_left_out() {
        let metadata = serde_json::json!({"packages": [
            {"name": "a", "publish": null},
            {"name": "b", "publish": []},
            {"name": "c", "publish": ["own"]},
        ]});
        assert_eq!(private(&metadata), ["b"]);
    }
}
