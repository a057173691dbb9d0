//! The highest rates of a device, measured before a profile: floors are made of them.

use crate::processor::{bytes_per_second, flops_per_second};
use kiln_core::ops::MatmulParams;
use kiln_core::{Backend, Cost, DType, Result, Runtime, Shape};
use std::time::{Duration, Instant};

/// Bytes of the memory that rates are measured on. The last is larger than the caches of most machines.
const SIZES: [usize; 8] = [1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28];

/// The time that one rate of the processor is measured for.
const TIME: Duration = Duration::from_millis(60);

/// The time that an op of another device may take before larger ones are left out: long enough for a GPU to be at its best.
const LONG: Duration = Duration::from_millis(2);

/// The time that measuring one size may take in all before larger ones are left out.
const PATIENCE: Duration = Duration::from_millis(200);

/// The highest rates of a device that were measured.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Floating-point operations a second.
    pub flops: f64,
    /// The work that reached them.
    pub how: String,
    /// Bytes, and bytes a second to and from that many; by size.
    pub memory: Vec<(f64, f64)>,
    /// The work that moved those.
    pub moved: &'static str,
}

impl Rates {
    /// Measures the processor by loops of multiply-adds and over memory, on all threads of rayon's current pool. It takes half a
    /// second.
    pub fn of_processor() -> Self {
        Rates {
            flops: flops_per_second(TIME),
            how: "multiply-adds in registers".to_string(),
            memory: SIZES
                .map(|bytes| (bytes as f64, bytes_per_second(bytes, TIME)))
                .to_vec(),
            moved: "the faster of reading and a triad",
        }
    }

    /// Measures a device by the products and copies of its backend: for devices of which nothing else is at hand.
    ///
    /// # Errors
    /// Memory that could not be had, and whatever else the ops answer.
    pub fn of_ops<B: Backend>(backend: &B) -> Result<Self> {
        let filled = |len: usize| -> Result<B::Buffer> {
            let mut buffer = backend.alloc(DType::F32, len)?;
            backend.fill(1.0, &mut buffer)?;
            Ok(buffer)
        };
        let (mut flops, mut how) = (0.0, String::new());
        for n in [64usize, 256, 1024, 4096] {
            let began = Instant::now();
            let shape = Shape::new(&[n, n])?;
            let (p, _) = MatmulParams::new("matmul", &shape, &shape, false, false)?;
            let (a, b, mut c) = (filled(n * n)?, filled(n * n)?, filled(n * n)?);
            let taken = fastest(backend, || backend.matmul(&p, &a, &b, &mut c))?;
            let rate = p.flops() as f64 / taken.as_secs_f64();
            if rate > flops {
                (flops, how) = (rate, format!("a product of {n}x{n} matrices"));
            }
            if taken > LONG || began.elapsed() > PATIENCE {
                break;
            }
        }
        let mut memory = Vec::new();
        for bytes in SIZES {
            let began = Instant::now();
            let len = bytes / 2 / size_of::<f32>();
            let (from, mut to) = (filled(len)?, filled(len)?);
            let taken = fastest(backend, || backend.copy(&from, &mut to))?;
            memory.push((bytes as f64, bytes as f64 / taken.as_secs_f64()));
            if taken > LONG || began.elapsed() > PATIENCE {
                break;
            }
        }
        Ok(Rates {
            flops,
            how,
            memory,
            moved: "copying",
        })
    }

    /// Bytes a second of an op that moves `bytes`: between two measured sizes the rate follows the logarithm of the size.
    pub fn bandwidth(&self, bytes: f64) -> f64 {
        let at = self.memory.partition_point(|&(size, _)| size < bytes);
        match (at.checked_sub(1).map(|i| self.memory[i]), self.memory.get(at)) {
            (Some((below, slow)), Some(&(above, fast))) => {
                slow + (fast - slow) * (bytes / below).ln() / (above / below).ln()
            }
            (Some((_, rate)), None) | (None, Some(&(_, rate))) => rate,
            (None, None) => f64::INFINITY,
        }
    }

    /// The least seconds of an op.
    pub fn floor(&self, cost: Cost) -> f64 {
        cost.seconds(self.flops, self.bandwidth(cost.bytes as f64))
    }

    /// Bytes a second of memory itself, and of how many bytes: the largest size that was measured.
    pub fn largest(&self) -> (f64, f64) {
        self.memory.last().copied().unwrap_or((0.0, 0.0))
    }
}

/// The shortest of a few runs. The first, which loads the kernel, does not count, unless it took too long for others.
fn fastest(backend: &impl Runtime, mut op: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut run = || {
        backend.sync()?;
        let start = Instant::now();
        op()?;
        backend.sync()?;
        Ok(start.elapsed().max(Duration::from_nanos(1)))
    };
    let mut best = run()?;
    if best < PATIENCE {
        best = run()?.min(run()?).min(run()?);
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_cpu::Cpu;

    #[test]
    fn rates_are_read_between_sizes() {
        let rates = Rates {
            flops: 100.0,
            how: String::new(),
            memory: vec![(10.0, 8.0), (1000.0, 4.0)],
            moved: "",
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        near(rates.bandwidth(1.0), 8.0);
        near(rates.bandwidth(10.0), 8.0);
        near(rates.bandwidth(100.0), 6.0);
        near(rates.bandwidth(1000.0), 4.0);
        near(rates.bandwidth(1e9), 4.0);
        near(rates.floor(Cost { flops: 50, bytes: 0 }), 0.5);
        near(rates.floor(Cost { flops: 50, bytes: 100 }), 100.0 / 6.0);
    }

    #[test]
    fn a_device_is_measured_by_its_ops() {
        let rates = Rates::of_ops(&Cpu::new()).unwrap();
        assert!(rates.flops > 0.0 && !rates.memory.is_empty());
        assert!(rates.memory.iter().all(|&(_, rate)| rate > 0.0 && rate.is_finite()));
        assert!(rates.how.contains("product"), "{}", rates.how);
    }
}
