//! A driver of three functions, to be compiled by the test beside this folder.

#![no_std]
#![allow(missing_docs)]

#[panic_handler]
fn stop(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> i32 {
    flags as i32 + 1000
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> i32 {
    7
}

/// Every argument, in a register or on the stack, as digits of one number.
#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    f: usize,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: usize,
) -> i32 {
    let digits = [f, gx as usize, gy as usize, gz as usize, bx as usize, by as usize];
    let rest = [bz as usize, shared as usize, stream];
    digits.iter().chain(&rest).fold(0, |n, d| n * 10 + *d as i32)
}
