//! Arithmetic of integer tensors: functions of two, reductions and running sums, and writing by index.

use super::{AxisParams, BroadcastParams, IndexParams, Op, ReduceParams, coded};
use crate::{DType, Result, Runtime};

coded! {
    /// A function of two integer tensors. Results outside of i32 wrap around.
    Integer {
        /// a + b
        Add,
        /// a − b
        Sub,
        /// a · b
        Mul,
        /// ⌊a / b⌋ (`torch.floor_divide`); 0 where b is 0
        FloorDivide,
        /// a − b·⌊a/b⌋, of b's sign (`torch.remainder`); 0 where b is 0
        Remainder,
        /// The larger
        Maximum,
        /// The smaller
        Minimum,
        /// The bits of both
        BitwiseAnd,
        /// The bits of either
        BitwiseOr,
        /// The bits of one alone
        BitwiseXor,
        /// a · 2ᵇ; 0 where b is negative or 32 and more
        LeftShift,
        /// ⌊a / 2ᵇ⌋; the sign, 0 or −1, where b is negative or 32 and more
        RightShift,
    }
}

impl Integer {
    /// True for the functions of bits, which masks of u8 have too.
    pub fn is_bitwise(self) -> bool {
        matches!(self, Integer::BitwiseAnd | Integer::BitwiseOr | Integer::BitwiseXor)
    }

    /// True if the function is one of tensors of `dtype`.
    pub fn is_defined(self, dtype: DType) -> bool {
        dtype == DType::I32 || dtype == DType::U8 && self.is_bitwise()
    }
}

coded! {
    /// How integers that meet at one place are joined.
    IntegerFold {
        /// Their sum, which wraps around
        Sum,
        /// The largest
        Max,
        /// The smallest
        Min,
    }
}

impl IntegerFold {
    /// The value that changes nothing.
    pub fn identity(self) -> i32 {
        match self {
            IntegerFold::Sum => 0,
            IntegerFold::Max => i32::MIN,
            IntegerFold::Min => i32::MAX,
        }
    }
}

/// The ops of a backend on integers. The joins do not depend on an order, so results never depend on the number of threads.
pub trait IntegerOps: Runtime {
    /// `y = f(a, b)` with broadcasting; `p.op` is an [`Integer`] code. All three are i32, or u8 for the functions of bits.
    fn integer_binary(
        &self,
        p: &BroadcastParams,
        a: &Self::Buffer,
        b: &Self::Buffer,
        y: &mut Self::Buffer,
    ) -> Result<()>;

    /// Reduces the i32 `x` into the i32 `y`. `p.op` is not read: `f` says how.
    fn integer_reduce(&self, f: IntegerFold, p: &ReduceParams, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// `y[o, j, i] = Σ_{l ≤ j} x[o, l, i]` in i32; with `reverse`, over `l ≥ j`.
    fn integer_cumsum(&self, p: &AxisParams, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()> {
        let _ = (p, x, y);
        self.unsupported(Op::IntegerCumsum)
    }

    /// Joins `x[o, j, i]` to `y[o, index[o, j, i], i]`, all in i32 (`torch.scatter_reduce`). An index outside its range is an
    /// [`Error::IndexOutOfRange`](crate::Error::IndexOutOfRange).
    fn integer_scatter(
        &self,
        f: IntegerFold,
        p: &IndexParams,
        x: &Self::Buffer,
        index: &Self::Buffer,
        y: &mut Self::Buffer,
    ) -> Result<()>;
}
