//! Every family of ops has a module of the same name in every layer.

use super::workspace::{Finding, Workspace};
use std::collections::BTreeSet;

/// A folder with one file, or one folder, for each family of ops.
struct Layer {
    folder: &'static str,
    extension: &'static str,
    /// True if the layer may have families that `core` lacks: ops composed of others.
    composes: bool,
    /// True if the folder may be missing.
    optional: bool,
}

const CORE: &str = "crates/core/src/ops/";

const LAYERS: &[Layer] = &[
    Layer {
        folder: CORE,
        extension: ".rs",
        composes: false,
        optional: false,
    },
    Layer {
        folder: "crates/cpu/src/ops/",
        extension: ".rs",
        composes: false,
        optional: false,
    },
    Layer {
        folder: "crates/nn/src/ops/",
        extension: ".rs",
        composes: true,
        optional: false,
    },
    Layer {
        folder: "crates/testkit/src/ops/",
        extension: ".rs",
        composes: true,
        optional: false,
    },
    Layer {
        folder: "kernels/src/",
        extension: ".cu",
        composes: false,
        optional: true,
    },
    Layer {
        folder: "crates/cuda/src/ops/",
        extension: ".rs",
        composes: false,
        optional: true,
    },
];

/// Families that a layer need not have, and the reason.
const EXCUSED: &[(&str, &str, &str)] = &[
    (
        "crates/nn/src/ops/",
        "optim",
        "an update is no differentiable function: the optimizers are crates/nn/src/optim",
    ),
    (
        "crates/testkit/src/ops/",
        "activation",
        "no op of its own: what products and convolutions share about the activation they fuse",
    ),
];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    let core = modules(workspace, &LAYERS[0]);
    let mut composed = BTreeSet::new();
    for layer in LAYERS.iter().filter(|f| f.composes) {
        composed.extend(modules(workspace, layer).difference(&core).cloned());
    }
    for layer in LAYERS {
        let mut own = modules(workspace, layer);
        if layer.extension == ".cu" {
            // The kernels of a family may be several files, because each is compiled separately: `conv_tiled.cu` belongs
            // to `conv`.
            own = own.into_iter().map(|module| family(&module, &core)).collect();
        }
        if own.is_empty() {
            if !layer.optional {
                found.push(Finding::new(layer.folder, "no op family here"));
            }
            continue;
        }
        let excused = |module: &str| EXCUSED.iter().any(|&(f, s, _)| f == layer.folder && s == module);
        let wanted = core.iter().chain(composed.iter().filter(|_| layer.composes));
        for module in wanted.filter(|s| !own.contains(*s) && !excused(s)) {
            found.push(Finding::new(
                format!("{}{module}{}", layer.folder, layer.extension),
                format!("missing: `{module}` is a module of another layer, so it has to be one here"),
            ));
        }
        for module in own.iter().filter(|s| !core.contains(*s) && !layer.composes) {
            found.push(Finding::new(
                format!("{}{module}{}", layer.folder, layer.extension),
                format!("no such family in {CORE}: name the file after the op it belongs to"),
            ));
        }
        for module in own.iter().filter(|s| excused(s)) {
            found.push(Finding::new(
                format!("{}{module}{}", layer.folder, layer.extension),
                "the table in xtask/src/tidy/op_modules.rs says that this file is absent: take the row out",
            ));
        }
    }
    found
}

/// The family of core that a module belongs to, `conv` for `conv_tiled`; the module itself if there is none.
fn family(module: &str, core: &BTreeSet<String>) -> String {
    if core.contains(module) {
        return module.to_string();
    }
    let owner = core.iter().find(|f| {
        module
            .strip_prefix(f.as_str())
            .is_some_and(|rest| rest.starts_with('_'))
    });
    owner.cloned().unwrap_or_else(|| module.to_string())
}

/// The families of a layer: `conv` for `conv.rs`, and for files below `conv/`.
fn modules(workspace: &Workspace, layer: &Layer) -> BTreeSet<String> {
    let own = workspace.files.iter().filter_map(|f| f.path.strip_prefix(layer.folder));
    own.filter(|rest| rest.ends_with(layer.extension))
        .map(|rest| match rest.split_once('/') {
            Some((folder, _)) => folder.to_string(),
            None => rest.trim_end_matches(layer.extension).to_string(),
        })
        .filter(|module| module != "mod")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, workspace};
    use super::*;

    #[test]
    fn a_family_without_its_module_is_found() {
        let sound = [
            ("crates/core/src/ops/mod.rs", ""),
            ("crates/core/src/ops/conv.rs", ""),
            ("crates/cpu/src/ops/mod.rs", ""),
            ("crates/cpu/src/ops/conv/mod.rs", ""),
            ("crates/cpu/src/ops/conv/pack.rs", ""),
            ("crates/nn/src/ops/conv.rs", ""),
            ("crates/testkit/src/ops/conv.rs", ""),
        ];
        let check_with = |more: &[(&str, &str)]| check(&workspace(&[&sound[..], more].concat()));
        assert_eq!(places(&check_with(&[])), [""; 0]);
        let found = check_with(&[("crates/core/src/ops/pool.rs", "")]);
        let missing = ["cpu", "nn", "testkit"].map(|layer| format!("crates/{layer}/src/ops/pool.rs"));
        assert_eq!(places(&found), missing);
        let found = check_with(&[("crates/cpu/src/ops/convolution.rs", "")]);
        assert_eq!(places(&found), ["crates/cpu/src/ops/convolution.rs"]);
        // A composed op needs modules in the two layers above the backends, an optimizer update in all layers but nn.
        let found = check_with(&[("crates/nn/src/ops/attention.rs", "")]);
        assert_eq!(places(&found), ["crates/testkit/src/ops/attention.rs"]);
        let optim = [
            ("crates/core/src/ops/optim.rs", ""),
            ("crates/cpu/src/ops/optim.rs", ""),
            ("crates/testkit/src/ops/optim.rs", ""),
        ];
        assert_eq!(places(&check_with(&optim)), [""; 0]);
        let found = check_with(&[&optim[..], &[("crates/nn/src/ops/optim.rs", "")]].concat());
        assert_eq!(places(&found), ["crates/nn/src/ops/optim.rs"]);
        // An optional layer may be missing, but if it has one family it must have all.
        let found = check_with(&[("kernels/src/pool.cu", "")]);
        assert_eq!(places(&found), ["kernels/src/conv.cu", "kernels/src/pool.cu"]);
        // The kernels of a family may be several files.
        assert_eq!(places(&check_with(&[("kernels/src/conv_tiled.cu", "")])), [""; 0]);
        let found = check_with(&[("kernels/src/conv.cu", ""), ("kernels/src/tiled_conv.cu", "")]);
        assert_eq!(places(&found), ["kernels/src/tiled_conv.cu"]);
    }
}
