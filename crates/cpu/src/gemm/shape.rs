//! The sizes of a product.

use kiln_core::ops::MatmulParams;

/// The sizes of `C = A·B`, `m×k` by `k×n`, and the storage order of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GemmShape {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) trans_a: bool,
    pub(crate) trans_b: bool,
}

impl GemmShape {
    /// The shape of each product of a batch.
    pub(crate) fn new(p: &MatmulParams) -> Self {
        GemmShape {
            m: p.m as usize,
            n: p.n as usize,
            k: p.k as usize,
            trans_a: p.trans_a == 1,
            trans_b: p.trans_b == 1,
        }
    }

    /// The number of multiply-adds.
    pub(crate) fn work(&self) -> usize {
        self.m.saturating_mul(self.n).saturating_mul(self.k)
    }

    /// The shape of `Cᵀ = Bᵀ·Aᵀ`.
    pub(crate) fn transposed(&self) -> Self {
        GemmShape {
            m: self.n,
            n: self.m,
            trans_a: !self.trans_b,
            trans_b: !self.trans_a,
            ..*self
        }
    }
}
