//! The calls with buffers and parameters that do not fit include every op.

use kiln_cpu::Cpu;
use kiln_testkit::misfit::calls;
use std::collections::BTreeSet;
use std::path::Path;

/// The names of the ops in core's traits.
fn ops() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src/ops");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        for family in text.split("\npub trait ").skip(1) {
            let family = family.split("\n}\n").next().unwrap();
            let methods = family.lines().filter_map(|line| line.strip_prefix("    fn "));
            // Methods that answer a question, such as that for the algorithm of an op, take no buffers.
            let methods = methods.filter(|method| !["-> Option<", "-> bool"].iter().any(|of| method.contains(of)));
            names.extend(methods.map(|method| method.split('(').next().unwrap().to_string()));
        }
    }
    names
}

#[test]
fn every_op_is_tried() {
    let tried: BTreeSet<String> = calls::<Cpu>().iter().map(|call| call.op.to_string()).collect();
    let ops = ops();
    assert!(ops.contains("matmul") && ops.contains("conv_max_pool_grad"), "{ops:?}");
    assert_eq!(tried, ops, "testkit/src/misfit/calls has a call of every op of core");
}
