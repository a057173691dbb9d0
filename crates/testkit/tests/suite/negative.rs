//! Tests of the checks themselves: wrong gradients and one rounding too many must be caught.

use kiln_core::{Backend, DType, Result};
use kiln_cpu::Cpu;
use kiln_nn::Tensor;
use kiln_nn::autograd::function;
use kiln_testkit::{
    Array, Case, Proof, Rounding, accepts, check_with, gradcheck, gradcheck_by_oracle, gradgradcheck,
    gradgradcheck_by_oracle, half_gradcheck,
};
use proptest::strategy::Just;

/// x² with a gradient that lacks one of the two factors.
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

/// x³ with a correct gradient whose own gradient lacks a term.
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

/// x/10 times 10, where x/10 is stored.
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
    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::relative(3.0, want)
    }
    fn proof(&self) -> Proof {
        Proof::Forward
    }
}

/// GELU as x·(1 + erf(x/√2))/2, in which 1 + erf cancels for x below 0.
#[derive(Clone, Debug)]
struct TaillessGelu {
    tail: bool,
}

impl Case for TaillessGelu {
    fn inputs(&self) -> Vec<Array> {
        vec![Array::new(&[3], vec![0.5, 2.0, if self.tail { -4.9 } else { -0.25 }])]
    }
    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let half = x[0].mul_scalar(0.5)?;
        half.mul(&x[0].mul_scalar(0.5f64.sqrt())?.erf()?.add_scalar(1.0)?)
    }
    fn oracle(&self, x: &[Array]) -> Array {
        x[0].map(|x| x / 2.0 * erfc(-x / 2f64.sqrt()))
    }
    /// The rounding of an accurate GELU: six units in the last place.
    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::relative(12.0, want).stored(3.0)
    }
    fn proof(&self) -> Proof {
        Proof::Forward
    }
}

/// erfc by its continued fraction, or by its series where that converges faster.
fn erfc(x: f64) -> f64 {
    let fraction = (1..400).rev().fold(0.0, |f, k| f64::from(k) / 2.0 / (x + f));
    let far = (-x * x).exp() / (std::f64::consts::PI.sqrt() * (x + fraction));
    let (mut term, mut sum) = (x, x);
    for k in 1..60 {
        term *= -x * x / f64::from(k);
        sum += term / f64::from(2 * k + 1);
    }
    if x > 1.5 {
        far
    } else {
        1.0 - sum * std::f64::consts::FRAC_2_SQRT_PI
    }
}

/// A sum that leaves out its smallest term.
#[derive(Clone, Debug)]
struct ShortSum;

impl Case for ShortSum {
    fn inputs(&self) -> Vec<Array> {
        vec![Array::new(&[3], vec![1.0, 0.5, 2f64.powi(-19)])]
    }
    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].narrow(0, 0, 2)?.sum(&[], false)
    }
    fn oracle(&self, x: &[Array]) -> Array {
        Array::new(&[], vec![x[0].data.iter().sum()])
    }
    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::relative(3.0, want)
    }
    fn proof(&self) -> Proof {
        Proof::Forward
    }
}

#[test]
#[should_panic(expected = "f32 TaillessGelu { tail: true }: element 2")]
fn a_small_value_without_digits_is_caught() {
    check_with(1, &Cpu::new(), Just(TaillessGelu { tail: true }));
}

#[test]
#[should_panic(expected = "f32 ShortSum: element 0")]
fn a_small_term_that_is_missing_is_caught() {
    check_with(1, &Cpu::new(), Just(ShortSum));
}

#[test]
fn what_is_caught_in_the_tail_is_right_elsewhere() {
    check_with(1, &Cpu::new(), Just(TaillessGelu { tail: false }));
}

#[test]
fn results_below_the_normal_numbers_have_the_error_of_the_smallest() {
    let want = Array::new(&[2], vec![1e-40, 1.0]);
    let bounds = Rounding::relative(1.0, &want).bounds(DType::F32, &want.data);
    let unit = 2f64.powi(-24);
    assert!((bounds[0] / (unit * 2f64.powi(-126)) - 1.0).abs() < 1e-6 && (bounds[1] / unit - 1.0).abs() < 1e-6);
    assert_eq!(Rounding::exact(&want).bounds(DType::BF16, &want.data), [0.0, 0.0]);
}

#[test]
#[should_panic(expected = "f16 ThereAndBack")]
fn a_second_rounding_is_caught() {
    check_with(1, &Cpu::new(), Just(ThereAndBack));
}

#[test]
fn an_infinity_is_near_nothing_else() {
    let inf = f64::INFINITY;
    assert!(accepts(inf, inf, 1.0) && accepts(f64::NAN, f64::NAN, 0.0));
    assert!(!accepts(1.0, inf, 1.0) && !accepts(inf, 1.0, 1.0) && !accepts(-inf, inf, 1.0));
    assert!(!accepts(f64::NAN, 1.0, inf) && !accepts(1.0, inf, inf));
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

/// x² whose gradient is right but in halves, where it is wrong by a part in 16.
#[derive(Debug)]
struct WrongInHalves;

impl Case for WrongInHalves {
    fn inputs(&self) -> Vec<Array> {
        vec![Array::new(&[2], vec![0.75, -1.25])]
    }
    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let (held, narrow) = (x[0].detach(), x[0].dtype().size() == 2);
        let factor = if narrow { 2.0 + 2.0 / 16.0 } else { 2.0 };
        let square = || held.square();
        function("square", &[&x[0]], square, {
            let held = held.clone();
            move |cx| Ok(vec![Some(cx.grad.mul(&held)?.mul_scalar(factor)?)])
        })
    }
    fn oracle(&self, x: &[Array]) -> Array {
        x[0].map(|v| v * v)
    }
}

#[test]
fn a_gradient_that_is_wrong_in_halves_alone_is_right_in_f32() {
    gradcheck_by_oracle(&Cpu::new(), &WrongInHalves);
    gradcheck(&Cpu::new(), &WrongInHalves);
}

#[test]
#[should_panic(expected = "bf16 gradient of input 0")]
fn a_gradient_that_is_wrong_in_bf16_alone_is_caught() {
    half_gradcheck(&Cpu::new(), &WrongInHalves, DType::BF16);
}

#[test]
#[should_panic(expected = "f16 gradient of input 0")]
fn a_gradient_that_is_wrong_in_f16_alone_is_caught() {
    half_gradcheck(&Cpu::new(), &WrongInHalves, DType::F16);
}
