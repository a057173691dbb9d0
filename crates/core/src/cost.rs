//! Lower bounds of the work of ops, for roofline estimates.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// A lower bound of the operations and of the memory traffic of an op.
///
/// `flops` counts products, convolutions and attention ([`MatmulParams::flops`](crate::ops::MatmulParams::flops),
/// [`ConvParams::flops`](crate::ops::ConvParams::flops), [`AttentionParams::flops`](crate::ops::AttentionParams::flops));
/// other ops are bound by memory and count as 0. `bytes` is the traffic between memory and the processor if every
/// operand is read once and every result written once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The number of floating-point operations; a multiply-add counts as two.
    pub flops: u64,
    /// The number of bytes read and written.
    pub bytes: u64,
}

impl Cost {
    /// The shortest time in seconds on a device with `flops` operations and `bytes` bytes per second. Both overlap, so the
    /// slower one decides.
    pub fn seconds(&self, flops: f64, bytes: f64) -> f64 {
        (self.flops as f64 / flops).max(self.bytes as f64 / bytes)
    }
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            flops: self.flops.saturating_add(other.flops),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use crate::ops::{ConvParams, MatmulParams, PoolParams, Window};

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn the_slower_of_the_two_decides() {
        let cost = Cost { flops: 100, bytes: 40 };
        assert_eq!(cost.seconds(100.0, 10.0), 4.0);
        assert_eq!(cost.seconds(10.0, 10.0), 10.0);
        assert_eq!((cost + cost).bytes, 80);
        let all = [cost; 3].into_iter().sum::<Cost>();
        assert_eq!(all, Cost { flops: 300, bytes: 120 });
    }

    #[test]
    fn products_count_multiply_adds_as_two() {
        let (p, _) = MatmulParams::new("matmul", &shape(&[5, 2, 3]), &shape(&[5, 3, 4]), false, false).unwrap();
        assert_eq!(p.flops(), 5 * 2 * 2 * 3 * 4);
        let window = Window::new([3, 3]).padding([1, 1]);
        let (p, y) = ConvParams::new("conv2d", &shape(&[2, 7, 7, 8]), &shape(&[6, 3, 3, 4]), &window, 2).unwrap();
        assert_eq!(y.dims(), [2, 7, 7, 6]);
        assert_eq!(p.flops(), 2 * (2 * 7 * 7 * 6) * (3 * 3 * 4));
        assert_eq!(p.seen(), 2 * 7 * 7 * 8);
    }

    #[test]
    fn a_stride_steps_over_elements() {
        let window = Window::new([1, 1]).stride([2, 2]);
        let (p, _) = ConvParams::new("conv2d", &shape(&[3, 8, 8, 4]), &shape(&[5, 1, 1, 4]), &window, 1).unwrap();
        assert_eq!(p.seen(), 3 * 4 * 4 * 4);
        let window = Window::new([2, 2]).stride([2, 2]);
        let (p, _) = PoolParams::new("max_pool2d", &shape(&[3, 5, 5, 4]), &window, false, true).unwrap();
        assert_eq!(p.seen(), 3 * 4 * 4 * 4);
    }
}
