//! Ops in the child of a fork, whose parent's threads are not there.
#![cfg(unix)]

use kiln_core::ops::{
    ElementwiseOps, IndexOps, MatmulOps, MatmulParams, Reduce, ReduceOps, ReduceParams, Unary, UnaryParams, ViewParams,
};
use kiln_core::{DType, Result, Runtime, Shape};
use kiln_cpu::Cpu;
use std::time::{Duration, Instant};

// What `fork(2)`, `waitpid(2)`, `_exit(2)` and `kill(2)` of the C library are.
unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
    fn kill(process: i32, signal: i32) -> i32;
}

/// Ops large enough to be shared out: a product, a function, a sum, a view written.
fn ops(cpu: &Cpu) -> Result<Vec<u32>> {
    let n = 512;
    let numbers: Vec<f32> = (0..n * n).map(|i| ((i * 7919) % 1013) as f32 / 1013.0).collect();
    let square = Shape::new(&[n, n])?;
    let x = cpu.upload(&numbers)?;
    let (mut y, mut z) = (cpu.alloc(DType::F32, n * n)?, cpu.alloc(DType::F32, n * n)?);
    let (p, _) = MatmulParams::new("matmul", &square, &square, false, true)?;
    cpu.matmul(&p, &x, &x, &mut y)?;
    cpu.unary(&UnaryParams::new(Unary::Tanh, n * n, 0.0, 0.0), &y, &mut z)?;
    cpu.view_write(&ViewParams::new(&square, &[n as i64, 1], 0), &z, &mut y)?;
    let (p, shape) = ReduceParams::new("sum", Reduce::Sum, &square, &[1], false)?;
    let mut sums = cpu.alloc(DType::F32, shape.size())?;
    cpu.reduce(&p, &y, &mut sums)?;
    Ok(cpu.download::<f32>(&sums)?.into_iter().map(f32::to_bits).collect())
}

/// Runs `child` in a fork; its exit status, or `None` when it had to be ended after a minute.
fn forked(child: impl FnOnce() -> bool) -> Option<i32> {
    // SAFETY: fork takes nothing; the child computes on this thread and on threads that it makes, and leaves by `_exit`, so
    // that nothing of the test harness, which this process's other threads may hold, is touched.
    let process = unsafe { fork() };
    if process == 0 {
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: ends the child.
        unsafe { _exit(i32::from(!right)) }
    }
    assert!(process > 0, "fork");
    let (began, mut status) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(60) {
        const WNOHANG: i32 = 1;
        // SAFETY: `status` is an integer of this function's for waitpid to write.
        match unsafe { waitpid(process, &raw mut status, WNOHANG) } {
            0 => std::thread::sleep(Duration::from_millis(2)),
            _ => return Some(status),
        }
    }
    // SAFETY: the process is this one's child, which nobody has waited for yet.
    unsafe {
        kill(process, 9);
        waitpid(process, &raw mut status, 0);
    }
    None
}

#[test]
fn ops_work_in_a_child_and_in_its_child() {
    let cpu = Cpu::new();
    let here = ops(&cpu).unwrap();
    let right = |cpu: &Cpu| ops(cpu).is_ok_and(|bits| bits == here);
    let below = || right(&cpu) && right(&Cpu::new()) && forked(|| right(&cpu)) == Some(0);
    assert_eq!(forked(below), Some(0), "the child's exit status; none if it hung");
    assert!(right(&cpu));
}
