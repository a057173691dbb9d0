//! The highest rates of a device, measured before a profile. The least time of an op is computed from them.

use crate::processor::{bytes_per_second, flops_per_second};
use kiln_core::ops::MatmulParams;
use kiln_core::{Backend, Cost, DType, Result, Runtime, Shape};
use std::time::{Duration, Instant};

/// Sizes in bytes of the memory that rates are measured on. The last is larger than the caches of most processors.
const SIZES: [usize; 8] = [1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28];

/// The time that one rate of the processor is measured for.
const TIME: Duration = Duration::from_millis(60);

/// On other devices, the time of an op after which larger ops are left out: long enough for a GPU to reach its highest rate.
const LONG: Duration = Duration::from_millis(2);

/// The total time of measuring one size after which larger sizes are left out.
const PATIENCE: Duration = Duration::from_millis(200);

/// The highest rates of a device that were measured.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Floating-point operations per second, a multiply-add counted as two.
    pub flops: f64,
    /// A description of the work that reached that rate.
    pub how: String,
    /// Pairs of a size in bytes and the bytes per second to and from memory of that size, by increasing size.
    pub memory: Vec<(f64, f64)>,
    /// A description of the work that the memory rates were measured with.
    pub moved: &'static str,
}

impl Rates {
    /// Measures the processor by loops of multiply-adds and over memory, on all threads of rayon's current pool. It takes
    /// half a second.
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

    /// Measures a device by the matrix products and copies of its backend, for devices other than the processor.
    ///
    /// # Errors
    /// The errors of the ops, such as [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory).
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

    /// Bytes per second of an op that moves `bytes`: between two measured sizes, interpolated over the logarithm of the size.
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

    /// The largest size that was measured, in bytes, and its rate in bytes per second.
    pub fn largest(&self) -> (f64, f64) {
        self.memory.last().copied().unwrap_or((0.0, 0.0))
    }
}

/// The shortest of a few runs. The first, which loads the kernel, does not count, unless it took so long that it is the
/// only one.
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
