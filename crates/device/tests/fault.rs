//! A kernel that leaves its memory: the error shows at the next wait, and stays.

mod common;

use common::Bench;
use kiln_device::{Arg, Geometry};

#[test]
fn a_fault_stays_and_nothing_panics() {
    common::start(&[]);
    let b = Bench::new();
    let mut x = b.block(&[0; 100]);
    let add = b.module.function("add").unwrap();
    let args = [Arg::value(&1u32), Arg::value(&1u32), Arg::ptr(8)];
    // SAFETY: the contract is broken on purpose: the address belongs to no allocation. The device stops the kernel, which
    // is what this test is about; no memory of the program is there.
    unsafe { b.stream.launch(&add, Geometry::linear(1, 1), &args).ok() };
    let error = b.stream.synchronize().unwrap_err();
    assert_eq!(error.code(), Some(700), "{error}");
    assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    for result in [
        b.stream.synchronize(),
        b.add(&mut x, 1),
        b.stream.download(&x, 0, &mut [0; 4]),
        b.stream.upload(&[0; 4], &mut x, 0),
        b.pool.release_cached(),
        b.pool.alloc(64 << 20).map(drop),
    ] {
        assert_eq!(result.unwrap_err().code(), Some(700));
    }
    // Everything is dropped in a dead context.
}
