//! Operators of tensors, numbers and results.

use kiln_cpu::Cpu;
use kiln_nn::{DType, Error, Result, Tensor};

fn tensor(values: &[f64]) -> Tensor<Cpu> {
    Tensor::from_f64(&Cpu::poisoned(), values, &[values.len()], DType::F32).unwrap()
}

fn is(found: Result<Tensor<Cpu>>, want: &[f64]) {
    assert_eq!(found.unwrap().to_f64().unwrap(), want);
}

#[test]
fn every_operator_is_its_method() {
    let (a, b) = (tensor(&[1.0, -2.0, 7.0]), tensor(&[2.0, 4.0, -4.0]));
    is(&a + &b, &[3.0, 2.0, 3.0]);
    is(&a - &b, &[-1.0, -6.0, 11.0]);
    is(&a * &b, &[2.0, -8.0, -28.0]);
    is(&a / &b, &[0.5, -0.5, -1.75]);
    // The sign of the divisor, as in Python.
    is(&a % &b, &[1.0, 2.0, -1.0]);
    is(-&a, &[-1.0, 2.0, -7.0]);
}

#[test]
fn numbers_of_any_type_stand_on_either_side() {
    let a = tensor(&[1.0, -2.0, 4.0]);
    is(&a + 1, &[2.0, -1.0, 5.0]);
    is(1.0 + &a, &[2.0, -1.0, 5.0]);
    is(&a - 1f32, &[0.0, -3.0, 3.0]);
    is(1 - &a, &[0.0, 3.0, -3.0]);
    is(&a * 2i64, &[2.0, -4.0, 8.0]);
    is(2 * &a, &[2.0, -4.0, 8.0]);
    is(&a / 2, &[0.5, -1.0, 2.0]);
    is(2.0 / &a, &[2.0, -1.0, 0.5]);
    is(&a % 3.0, &[1.0, 1.0, 1.0]);
    is(7.0 % &a, &[0.0, -1.0, 3.0]);
}

#[test]
fn owned_tensors_and_results_are_operands() {
    let a = || tensor(&[1.0, 2.0]);
    is(a() + a(), &[2.0, 4.0]);
    is(&a() * &a() + a(), &[2.0, 6.0]);
    is(&a() * &a() - &a(), &[0.0, 2.0]);
    is(a() - a() * 2, &[-1.0, -2.0]);
    is(-a() / a(), &[-1.0, -1.0]);
    is(3 - a(), &[2.0, 1.0]);
}

#[test]
fn the_first_error_of_an_expression_comes_out() {
    let (a, b) = (tensor(&[1.0, 2.0]), tensor(&[1.0, 2.0, 3.0]));
    let wrong = || &a + &b;
    for refused in [wrong(), wrong() * &a, &a * wrong(), wrong() - a.clone()] {
        assert!(matches!(refused, Err(Error::ShapeMismatch { op: "add", .. })));
    }
}

#[test]
fn gradients_flow_through_expressions() -> Result<()> {
    let (x, y) = (tensor(&[1.0, 2.0]).requires_grad(), tensor(&[3.0, 5.0]).requires_grad());
    let z = (2 * &x * &y + (&x / &y)?)?;
    let mut grads = z.sum(&[], false)?.backward()?;
    is(
        Ok(grads.remove(&x).unwrap()),
        &tensor(&[6.0 + 1.0 / 3.0, 10.2]).to_f64()?,
    );
    assert!(grads.remove(&y).is_some());
    Ok(())
}
