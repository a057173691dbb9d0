//! Random numbers: every value is Philox4x32-10 of (seed, stream, step, element), with the same bits on every device.

use super::{Op, coded};
use crate::{Error, Result, Runtime};
use bytemuck::{Pod, Zeroable};

coded! {
    /// A distribution; `a` and `b` are those of [`RandomParams`].
    Distribution {
        /// Uniform on `a ≤ x < b`
        Uniform,
        /// Normal with mean `a` and standard deviation `b`
        Normal,
        /// Normal with mean `a` and standard deviation `b`, redrawn outside two standard deviations (by inverting
        /// the distribution function on the interval)
        TruncatedNormal,
        /// 1 with probability `a`, else 0
        Bernoulli,
        /// 0 with probability `a`, rounded to a multiple of 2⁻¹⁶, else 1: the elements that dropout keeps
        Kept,
    }
}

/// Parameters of random ops. The step is read from a one-element i32 buffer on the device, so that a captured step draws
/// new numbers at each replay.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct RandomParams {
    /// The number of elements.
    pub n: u64,
    /// The run's seed.
    pub seed: u64,
    /// The first parameter of the distribution (dropout: the probability of zero).
    pub a: f64,
    /// The second parameter of the distribution.
    pub b: f64,
    /// The Philox stream: one for each layer or parameter.
    pub stream: u32,
    /// Code of the [`Distribution`].
    pub distribution: u32,
}
const _: () = assert!(size_of::<RandomParams>() == 40);

impl RandomParams {
    /// Creates parameters after checking those of `distribution`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for bounds that are not finite or not in order, a negative deviation, a probability outside
    /// `0..=1`.
    pub fn new(
        op: &'static str,
        distribution: Distribution,
        n: usize,
        (a, b): (f64, f64),
        seed: u64,
        stream: u32,
    ) -> Result<Self> {
        // Numbers are drawn in f32, so the parameters must be finite there.
        let finite = |v: f64| (v as f32).is_finite();
        let (ok, expected) = match distribution {
            Distribution::Uniform => (
                finite(a) && finite(b) && finite(b - a) && a <= b,
                "finite bounds in order, their difference finite in f32",
            ),
            Distribution::Normal | Distribution::TruncatedNormal => (
                finite(a) && finite(b) && b >= 0.0,
                "a finite mean and a deviation of 0 or more",
            ),
            Distribution::Bernoulli | Distribution::Kept => ((0.0..=1.0).contains(&a), "a probability from 0 to 1"),
        };
        if !ok {
            return Err(Error::invalid(op, "parameters", format!("({a}, {b})"), expected));
        }
        Ok(RandomParams {
            n: n as u64,
            seed,
            a,
            b,
            stream,
            distribution: distribution as u32,
        })
    }

    /// The distribution.
    ///
    /// # Panics
    /// If the code is not that of a variant, which the [`checks`](crate::checks) of an op exclude.
    pub fn distribution(&self) -> Distribution {
        Distribution::ALL[self.distribution as usize]
    }
}

/// Random ops of a backend.
pub trait RandomOps: Runtime {
    /// Fills `y`, of any float dtype, with numbers drawn in f32 and rounded.
    fn random(&self, p: &RandomParams, step: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// `ticket = counter; counter += 1` for one-element i32 buffers, wrapping; a random layer takes its step this way.
    fn tick(&self, counter: &mut Self::Buffer, ticket: &mut Self::Buffer) -> Result<()>;

    /// [`tick`](RandomOps::tick) of several counters, those of all random layers of a network at once. No counter may occur twice.
    fn tick_each(&self, counters: &mut [&mut Self::Buffer], tickets: &mut [&mut Self::Buffer]) -> Result<()> {
        let _ = (counters, tickets);
        self.unsupported(Op::TickEach)
    }

    /// `y[i] = u[i] < a ? 0 : x[i]/(1 − a)` with `u` uniform numbers of 16 bits ([`Key::half`](crate::philox::Key::half)): inverted
    /// dropout, of the elements that [`Distribution::Kept`] marks. The gradient is the same op with the same parameters and step,
    /// applied to the output's gradient.
    fn dropout(&self, p: &RandomParams, step: &Self::Buffer, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()> {
        let _ = (p, step, x, y);
        self.unsupported(Op::Dropout)
    }
}
