//! One op, one stem, on every floor.

use super::{Finding, House};
use std::collections::BTreeSet;

/// A floor: a folder with one file (or folder) per op family.
struct Floor {
    folder: &'static str,
    extension: &'static str,
    /// Whether it may hold families that `core` lacks: ops composed of others.
    composes: bool,
    /// Whether the house stands without it.
    optional: bool,
}

const CORE: &str = "crates/core/src/ops/";

const FLOORS: &[Floor] = &[
    Floor {
        folder: CORE,
        extension: ".rs",
        composes: false,
        optional: false,
    },
    Floor {
        folder: "crates/cpu/src/ops/",
        extension: ".rs",
        composes: false,
        optional: false,
    },
    Floor {
        folder: "crates/nn/src/ops/",
        extension: ".rs",
        composes: true,
        optional: false,
    },
    Floor {
        folder: "crates/testkit/src/ops/",
        extension: ".rs",
        composes: true,
        optional: false,
    },
    Floor {
        folder: "kernels/src/",
        extension: ".cu",
        composes: false,
        optional: true,
    },
    Floor {
        folder: "crates/cuda/src/ops/",
        extension: ".rs",
        composes: false,
        optional: true,
    },
];

/// Families that a floor does without, and why.
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
    (
        "crates/testkit/src/ops/",
        "optim",
        "an update has no gradient to check: its oracle is PyTorch's own values, beside the optimizers",
    ),
    (
        "kernels/src/",
        "attention",
        "no kernel of its own yet: core composes it of products, softmax and copies",
    ),
    (
        "kernels/src/",
        "conv_pool",
        "no kernel of its own yet: core composes it of a convolution and a pooling",
    ),
];

pub(super) fn check(house: &House) -> Vec<Finding> {
    let mut found = Vec::new();
    let core = stems(house, &FLOORS[0]);
    let mut composed = BTreeSet::new();
    for floor in FLOORS.iter().filter(|f| f.composes) {
        composed.extend(stems(house, floor).difference(&core).cloned());
    }
    for floor in FLOORS {
        let mut own = stems(house, floor);
        if floor.extension == ".cu" {
            // A family's kernels may be several files, since each is compiled by itself: `conv_tiled.cu` is conv's.
            own = own.into_iter().map(|stem| family(&stem, &core)).collect();
        }
        if own.is_empty() {
            if !floor.optional {
                found.push(Finding::new(floor.folder, "no op family here"));
            }
            continue;
        }
        let excused = |stem: &str| EXCUSED.iter().any(|&(f, s, _)| f == floor.folder && s == stem);
        let wanted = core.iter().chain(composed.iter().filter(|_| floor.composes));
        for stem in wanted.filter(|s| !own.contains(*s) && !excused(s)) {
            found.push(Finding::new(
                format!("{}{stem}{}", floor.folder, floor.extension),
                format!("missing: `{stem}` has a room on another floor, so it has one here"),
            ));
        }
        for stem in own.iter().filter(|s| !core.contains(*s) && !floor.composes) {
            found.push(Finding::new(
                format!("{}{stem}{}", floor.folder, floor.extension),
                format!("no such family in {CORE}: name the file after the op it belongs to"),
            ));
        }
        for stem in own.iter().filter(|s| excused(s)) {
            found.push(Finding::new(
                format!("{}{stem}{}", floor.folder, floor.extension),
                "the table in xtask/src/tidy/stems.rs says that this file is absent: take the row out",
            ));
        }
    }
    found
}

/// The family of core that a stem belongs to, `conv` for `conv_tiled`; the stem itself if there is none.
fn family(stem: &str, core: &BTreeSet<String>) -> String {
    let owner = core
        .iter()
        .find(|f| stem.strip_prefix(f.as_str()).is_some_and(|rest| rest.starts_with('_')));
    owner.cloned().unwrap_or_else(|| stem.to_string())
}

/// The families of a floor: `conv` for `conv.rs`, and for files below `conv/`.
fn stems(house: &House, floor: &Floor) -> BTreeSet<String> {
    let own = house.files.iter().filter_map(|f| f.path.strip_prefix(floor.folder));
    own.filter(|rest| rest.ends_with(floor.extension))
        .map(|rest| match rest.split_once('/') {
            Some((folder, _)) => folder.to_string(),
            None => rest.trim_end_matches(floor.extension).to_string(),
        })
        .filter(|stem| stem != "mod")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{house, places};
    use super::*;

    #[test]
    fn a_family_without_its_room_is_found() {
        let sound = [
            ("crates/core/src/ops/mod.rs", ""),
            ("crates/core/src/ops/conv.rs", ""),
            ("crates/cpu/src/ops/mod.rs", ""),
            ("crates/cpu/src/ops/conv/mod.rs", ""),
            ("crates/cpu/src/ops/conv/pack.rs", ""),
            ("crates/nn/src/ops/conv.rs", ""),
            ("crates/testkit/src/ops/conv.rs", ""),
        ];
        let check_with = |more: &[(&str, &str)]| check(&house(&[&sound[..], more].concat()));
        assert_eq!(places(&check_with(&[])), [""; 0]);
        let found = check_with(&[("crates/core/src/ops/pool.rs", "")]);
        let rooms = ["cpu", "nn", "testkit"].map(|floor| format!("crates/{floor}/src/ops/pool.rs"));
        assert_eq!(places(&found), rooms);
        let found = check_with(&[("crates/cpu/src/ops/convolution.rs", "")]);
        assert_eq!(places(&found), ["crates/cpu/src/ops/convolution.rs"]);
        // A composed op needs its two rooms above the backends, an update its two below.
        let found = check_with(&[("crates/nn/src/ops/attention.rs", "")]);
        assert_eq!(places(&found), ["crates/testkit/src/ops/attention.rs"]);
        let optim = [
            ("crates/core/src/ops/optim.rs", ""),
            ("crates/cpu/src/ops/optim.rs", ""),
        ];
        assert_eq!(places(&check_with(&optim)), [""; 0]);
        let found = check_with(&[&optim[..], &[("crates/nn/src/ops/optim.rs", "")]].concat());
        assert_eq!(places(&found), ["crates/nn/src/ops/optim.rs"]);
        // A floor that is not built yet is not missed; one that has been begun must be whole.
        let found = check_with(&[("kernels/src/pool.cu", "")]);
        assert_eq!(places(&found), ["kernels/src/conv.cu", "kernels/src/pool.cu"]);
        // A family's kernels may be several files.
        assert_eq!(places(&check_with(&[("kernels/src/conv_tiled.cu", "")])), [""; 0]);
        let found = check_with(&[("kernels/src/conv.cu", ""), ("kernels/src/tiled_conv.cu", "")]);
        assert_eq!(places(&found), ["kernels/src/tiled_conv.cu"]);
    }
}
