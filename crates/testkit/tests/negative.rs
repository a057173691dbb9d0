//! The checks themselves: a wrong gradient must not pass, nor a rounding too many.

use kiln_core::{Backend, Result};
use kiln_cpu::Cpu;
use kiln_nn::Tensor;
use kiln_testkit::{
    Array, Case, Proof, Tolerance, check_with, gradcheck, gradcheck_by_oracle, gradgradcheck, gradgradcheck_by_oracle,
};
use proptest::strategy::Just;

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

/// x by way of a tenth of it, stored in between.
#[derive(Clone, Debug)]
struct ThereAndBack;

impl Case for ThereAndBack {
    fn inputs(&self) -> Vec<Array> {
        vec![Array::from_fn(&[64], |i| 1.0 + i[0] as f64 / 128.0)]
    }
    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].mul_scalar(0.1)?.mul_scalar(10.0)
    }
    fn oracle(&self, x: &[Array]) -> Array {
        x[0].clone()
    }
    fn proof(&self) -> Proof {
        Proof::Forward
    }
}

#[test]
#[should_panic(expected = "f16 ThereAndBack")]
fn a_second_rounding_is_caught() {
    check_with(1, &Cpu::new(), Just(ThereAndBack));
}

#[test]
fn an_infinity_is_near_nothing_else() {
    assert!(Tolerance::F32.accepts(f64::INFINITY, f64::INFINITY));
    assert!(!Tolerance::F32.accepts(1.0, f64::INFINITY) && !Tolerance::F32.accepts(f64::INFINITY, 1.0));
    assert!(!Tolerance::F32.accepts(f64::NEG_INFINITY, f64::INFINITY));
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

#[test]
#[should_panic(expected = "f32 gradient of input 0")]
fn a_wrong_gradient_is_caught_in_f32() {
    gradcheck_by_oracle(&Cpu::new(), &HalfSquare);
}

#[test]
#[should_panic(expected = "f32 second gradient of input 0")]
fn a_wrong_second_gradient_is_caught_in_f32() {
    gradcheck_by_oracle(&Cpu::new(), &FrozenSecond);
    gradgradcheck_by_oracle(&Cpu::new(), &FrozenSecond);
}
