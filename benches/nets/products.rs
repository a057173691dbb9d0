//! Matrix products through the backend, as layers call them.

use crate::{Outcome, Work};
use kiln_benches::{output, random};
use kiln_core::Shape;
use kiln_core::ops::{MatmulOps, MatmulParams};
use kiln_cpu::Cpu;

/// The product `C[m, n] = A[m, k]·B[k, n]`.
pub(crate) fn product(m: usize, k: usize, n: usize) -> Outcome<Work> {
    let cpu = Cpu::new();
    let (p, _) = MatmulParams::new("matmul", &Shape::new(&[m, k])?, &Shape::new(&[k, n])?, false, false)?;
    let (a, b, mut y) = (random(&cpu, 0, m * k)?, random(&cpu, 1, k * n)?, output(&cpu, m * n)?);
    Ok(Box::new(move || cpu.matmul(&p, &a, &b, &mut y)))
}
