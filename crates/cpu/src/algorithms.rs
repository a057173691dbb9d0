//! Algorithms by name, for benchmarks and tests.

use crate::ops::conv_pool;
use crate::{Cpu, CpuBuilder, conv, gemm};
use kiln_core::{Error, Result};

impl CpuBuilder {
    /// Computes every product, convolution and pooled convolution that the algorithm of this name supports by it, and the others
    /// as usual; one of
    /// [`Cpu::algorithms`]. This is for benchmarks and tests: by default each is computed by the algorithm that is estimated to be
    /// the fastest.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another name.
    pub fn algorithm(mut self, name: &str) -> Result<Self> {
        let known = Cpu::algorithms().find(|known| *known == name);
        let listed = || Cpu::algorithms().collect::<Vec<_>>().join(", ");
        self.algorithm =
            Some(known.ok_or_else(|| Error::invalid("cpu", "algorithm", name, format!("one of {}", listed())))?);
        Ok(self)
    }
}

impl Cpu {
    /// The names of the algorithms of products, of convolutions and of convolutions with pooling, as profiles print them.
    pub fn algorithms() -> impl Iterator<Item = &'static str> {
        let names = gemm::plan::NAMES
            .iter()
            .chain(conv::plan::NAMES)
            .chain(conv_pool::plan::NAMES);
        names.copied()
    }
}
