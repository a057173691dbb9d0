//! The checks themselves: a wrong gradient must not pass.

use kiln_core::{Backend, Result};
use kiln_cpu::Cpu;
use kiln_nn::Tensor;
use kiln_testkit::{Array, Case, gradcheck, gradgradcheck};

/// x² whose gradient forgets one of the two factors.
#[derive(Debug)]
struct HalfSquare;

impl Case for HalfSquare {
    fn inputs(&self) -> Vec<Array> {
        vec![Array::new(&[2], vec![0.7, -1.3])]
    }
    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].mul(&x[0].detach())
    }
    fn oracle(&self, x: &[Array]) -> Array {
        x[0].map(|v| v * v)
    }
}

/// x³ with a right gradient whose own gradient forgets a term.
#[derive(Debug)]
struct FrozenSecond;

impl Case for FrozenSecond {
    fn inputs(&self) -> Vec<Array> {
        vec![Array::new(&[2], vec![0.7, -1.3])]
    }
    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        // d/dx (3·c²·x − 2·c³) with c = x held fixed is 3x², as for x³; its derivative is not.
        let c = x[0].detach();
        let square = c.mul(&c)?;
        let slope = square.mul(&x[0])?.mul_scalar(3.0)?;
        slope.sub(&square.mul(&c)?.mul_scalar(2.0)?)
    }
    fn oracle(&self, x: &[Array]) -> Array {
        x[0].map(|v| v * v * v)
    }
}

#[test]
#[should_panic(expected = "gradient of input 0")]
fn a_wrong_gradient_is_caught() {
    gradcheck(&Cpu::new(), &HalfSquare);
}

#[test]
#[should_panic(expected = "second gradient of input 0")]
fn a_wrong_second_gradient_is_caught() {
    gradgradcheck(&Cpu::new(), &FrozenSecond);
}
