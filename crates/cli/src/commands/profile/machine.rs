//! The highest rates of the device, measured before the profile: floors are made of them.

use kiln_core::ops::MatmulParams;
use kiln_core::{Backend, Cost, DType, Result, Runtime, Shape};
use kiln_cpu::{Cpu, measure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Bytes of the memory that rates are measured on. The last is larger than the caches of most machines.
const SIZES: [usize; 8] = [1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28];

/// The time that one rate of the processor is measured for.
const TIME: Duration = Duration::from_millis(60);

/// The time that an op of another device may take before larger ones are left out: long enough for a GPU to be at its best.
const LONG: Duration = Duration::from_millis(2);

/// The time that measuring one size may take in all before larger ones are left out.
const PATIENCE: Duration = Duration::from_millis(200);

/// The highest rates that were measured.
pub(crate) struct Machine {
    /// Floating-point operations a second.
    pub(crate) flops: f64,
    /// The work that reached them.
    pub(crate) how: String,
    /// Bytes, and bytes a second to and from that many; by size.
    pub(crate) memory: Vec<(f64, f64)>,
    /// The work that moved those.
    pub(crate) moved: &'static str,
}

impl Machine {
    /// Measures the device of `backend`: the processor by loops of multiply-adds and over memory on all of its threads, another
    /// device by its own products and copies.
    pub(crate) fn measure<B: Backend>(backend: &B) -> Result<Self> {
        if backend.name() != Cpu::new().name() {
            return Machine::by_ops(backend);
        }
        let rate = |bytes: usize| (bytes as f64, measure::bytes_per_second(bytes, TIME));
        Ok(Machine {
            flops: measure::flops_per_second(TIME),
            how: "multiply-adds in registers".to_string(),
            memory: SIZES.map(rate).to_vec(),
            moved: "the faster of reading and a triad",
        })
    }

    fn by_ops<B: Backend>(backend: &B) -> Result<Self> {
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
        Ok(Machine {
            flops,
            how,
            memory,
            moved: "copying",
        })
    }

    /// Bytes a second of an op that moves `bytes`: between two measured sizes the rate follows the logarithm of the size.
    pub(crate) fn bandwidth(&self, bytes: f64) -> f64 {
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
    pub(crate) fn floor(&self, cost: Cost) -> f64 {
        cost.seconds(self.flops, self.bandwidth(cost.bytes as f64))
    }

    /// Bytes a second of memory itself, and of how many bytes: the largest size that was measured.
    pub(crate) fn largest(&self) -> (f64, f64) {
        self.memory.last().copied().unwrap_or((0.0, 0.0))
    }

    pub(crate) fn json(&self) -> Value {
        let memory = self.memory.iter();
        json!({
            "flops_per_second": self.flops,
            "flops_measured_by": self.how,
            "bytes_measured_by": self.moved,
            "memory": memory.map(|(size, rate)| json!({ "bytes": size, "bytes_per_second": rate })).collect::<Vec<_>>(),
        })
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

    #[test]
    fn rates_are_read_between_sizes() {
        let machine = Machine {
            flops: 100.0,
            how: String::new(),
            memory: vec![(10.0, 8.0), (1000.0, 4.0)],
            moved: "",
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        near(machine.bandwidth(1.0), 8.0);
        near(machine.bandwidth(10.0), 8.0);
        near(machine.bandwidth(100.0), 6.0);
        near(machine.bandwidth(1000.0), 4.0);
        near(machine.bandwidth(1e9), 4.0);
        near(machine.floor(Cost { flops: 50, bytes: 0 }), 0.5);
        near(machine.floor(Cost { flops: 50, bytes: 100 }), 100.0 / 6.0);
    }

    #[test]
    fn another_device_is_measured_by_its_ops() {
        let machine = Machine::by_ops(&Cpu::new()).unwrap();
        assert!(machine.flops > 0.0 && !machine.memory.is_empty());
        assert!(machine.memory.iter().all(|&(_, rate)| rate > 0.0 && rate.is_finite()));
        assert!(machine.how.contains("product"), "{}", machine.how);
    }
}
