//! The target that `KILN_FUZZ_TARGET` names.

#![no_main]

use kiln_fuzz::{Target, target};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("KILN_FUZZ_TARGET").expect("KILN_FUZZ_TARGET names a target of `cargo xtask fuzz`");
    target(&name).expect("KILN_FUZZ_TARGET names a target of `cargo xtask fuzz`")
});

fuzz_target!(|input: &[u8]| (TARGET.run)(input));
