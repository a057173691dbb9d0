//! Ops with gradients of the caller's own; Jacobians, Hessians and their products.

use kiln_cpu::Cpu;
use kiln_nn::autograd::{checkpoint, function, hessian, hvp, jacobian, jvp};
use kiln_nn::{DType, Error, Result, Rng, Tensor, grad};
use kiln_testkit::assert_close;

fn random(shape: &[usize], seed: u64) -> Tensor<Cpu> {
    Tensor::uniform(&Cpu::poisoned(), shape, DType::F64, -1.0, 1.0, &mut Rng::new(seed)).unwrap()
}

/// tanh(x·w) with a matrix of its own.
fn layer(x: &Tensor<Cpu>) -> Result<Tensor<Cpu>> {
    x.matmul(&random(&[3, 2], 9))?.tanh()
}

fn near(what: &str, got: &Tensor<Cpu>, want: &Tensor<Cpu>) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let want = want.to_f64().unwrap();
    assert_close(what, &got.to_f64().unwrap(), &want, &vec![1e-12; want.len()]);
}

#[test]
fn products_are_those_of_the_jacobian() -> Result<()> {
    let (x, v) = (random(&[4, 3], 1), random(&[4, 3], 2));
    let j = jacobian(layer, &x)?;
    assert_eq!(j.shape().dims(), [4, 2, 4, 3]);
    let want = j.reshape(&[8, 12])?.matmul(&v.reshape(&[12, 1])?)?.reshape(&[4, 2])?;
    let (y, along) = jvp(|x| layer(&x[0]), &[&x], &[&v])?;
    near("jvp", &along, &want);
    near("value", &y, &layer(&x)?);
    // Row by row, with differences.
    let step = 1e-6;
    let moved = |sign: f64| layer(&x.add(&v.mul_scalar(sign * step)?)?);
    let difference = moved(1.0)?.sub(&moved(-1.0)?)?.mul_scalar(0.5 / step)?;
    let (got, want) = (along.to_f64()?, difference.to_f64()?);
    assert_close("differences", &got, &want, &vec![1e-8; want.len()]);
    Ok(())
}

#[test]
fn products_are_those_of_the_hessian() -> Result<()> {
    let (x, v) = (random(&[2, 3], 3), random(&[2, 3], 4));
    let f = |x: &Tensor<Cpu>| layer(x)?.square()?.sum(&[], false);
    let h = hessian(f, &x)?;
    assert_eq!(h.shape().dims(), [2, 3, 2, 3]);
    let want = h.reshape(&[6, 6])?.matmul(&v.reshape(&[6, 1])?)?.reshape(&[2, 3])?;
    let (y, product) = hvp(|x| f(&x[0]), &[&x], &[&v])?;
    near("hvp", &product[0], &want);
    near("value", &y, &f(&x)?);
    near("symmetry", &h, &h.permute(&[2, 3, 0, 1])?);
    Ok(())
}

#[test]
fn what_does_not_depend_has_zeros() -> Result<()> {
    let (x, v) = (random(&[3], 5), random(&[3], 6));
    let constant = random(&[2], 7);
    let zero = |t: &Tensor<Cpu>| t.to_f64().unwrap().iter().all(|x| *x == 0.0);
    assert!(zero(&jacobian(|_| Ok(constant.clone()), &x)?));
    assert!(zero(&jvp(|_| Ok(constant.clone()), &[&x], &[&v])?.1));
    assert!(zero(&hvp(|x| x[0].sum(&[], false), &[&x], &[&v])?.1[0]));
    assert!(zero(&hessian(|x| x.sum(&[], false), &x)?));
    assert_eq!(jacobian(|x| x.narrow(0, 0, 0), &x)?.shape().dims(), [0, 3]);
    let two = jvp(|x| x[0].mul(&x[1]), &[&x, &v], &[&v, &x])?.1;
    near("two inputs", &two, &v.square()?.add(&x.square()?)?);
    Ok(())
}

#[test]
fn vectors_that_do_not_fit_are_refused() {
    let (x, v) = (random(&[3], 5), random(&[2], 6));
    let f = |x: &[Tensor<Cpu>]| x[0].sum(&[], false);
    assert!(matches!(jvp(f, &[&x], &[&v]), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(hvp(f, &[&x], &[]), Err(Error::InvalidArgument { .. })));
    assert!(hvp(|x| x[0].square(), &[&x], &[&x]).is_err(), "no scalar");
    assert!(hessian(|x| x.square(), &x).is_err(), "no scalar");
}

#[test]
fn functions_of_ones_own_have_gradients_of_ones_own() -> Result<()> {
    let (x, w) = (random(&[2, 3], 1).requires_grad(), random(&[3, 2], 2).requires_grad());
    let (kept_x, kept_w) = (x.clone(), w.clone());
    let y = function(
        "my_matmul",
        &[&x, &w],
        || x.matmul(&w),
        move |cx| {
            Ok(vec![
                Some(cx.grad.matmul_t(&kept_w, false, true)?),
                Some(kept_x.matmul_t(cx.grad, true, false)?),
            ])
        },
    )?;
    let (got, want) = (
        y.square()?.sum(&[], false)?.backward()?,
        x.matmul(&w)?.square()?.sum(&[], false)?.backward()?,
    );
    for t in [&x, &w] {
        near("gradient", got.get(t).unwrap(), want.get(t).unwrap());
    }
    // Written in differentiable ops, the rule is differentiated in turn.
    let (kept, seed) = (x.clone(), random(&[2, 3], 3));
    let cube = function(
        "cube",
        &[&x],
        || x.powf(3.0),
        move |cx| Ok(vec![Some(cx.grad.mul(&kept.square()?)?.mul_scalar(3.0)?)]),
    )?;
    let slope = grad(&cube, &[&x], Some(&seed), true)?.pop().flatten().unwrap();
    let second = grad(&slope.sum(&[], false)?, &[&x], None, false)?
        .pop()
        .flatten()
        .unwrap();
    near("second", &second, &x.detach().mul(&seed)?.mul_scalar(6.0)?);
    Ok(())
}

#[test]
fn wrong_gradients_are_typed_errors() -> Result<()> {
    let x = random(&[2, 3], 1).requires_grad();
    let backward = |grads: Vec<Option<Tensor<Cpu>>>| {
        let y = function("mine", &[&x], || x.exp(), move |_| Ok(grads.clone()))?;
        y.sum(&[], false)?.backward()
    };
    for wrong in [
        vec![],
        vec![None, None],
        vec![Some(random(&[3, 2], 2))],
        vec![Some(random(&[2, 3], 2).to_dtype(DType::F32)?)],
    ] {
        let refused = backward(wrong);
        assert!(matches!(refused, Err(Error::InvalidArgument { op: "mine", .. })));
    }
    assert!(backward(vec![None])?.get(&x).is_none());
    Ok(())
}

#[test]
fn checkpoints_have_the_gradients_of_what_they_compute() -> Result<()> {
    let (x, w) = (random(&[4, 3], 1).requires_grad(), random(&[3, 3], 2).requires_grad());
    let f = |t: &[Tensor<Cpu>]| t[0].matmul(&t[1])?.tanh()?.matmul(&t[1])?.square();
    let (plain, kept) = (f(&[x.clone(), w.clone()])?, checkpoint(&[&x, &w], f)?);
    near("value", &kept, &plain);
    let slopes = |y: &Tensor<Cpu>| grad(&y.sum(&[], false)?, &[&x, &w], None, true);
    let (got, want) = (slopes(&kept)?, slopes(&plain)?);
    for (got, want) in got.into_iter().zip(want) {
        let (got, want) = (got.unwrap(), want.unwrap());
        near("gradient", &got, &want);
        let second = |g: &Tensor<Cpu>| grad(&g.square()?.sum(&[], false)?, &[&x], None, true);
        near(
            "second",
            &second(&got)?.pop().flatten().unwrap(),
            &second(&want)?.pop().flatten().unwrap(),
        );
    }
    Ok(())
}

#[test]
fn checkpoints_lose_no_gradient() -> Result<()> {
    let (x, w) = (random(&[4, 3], 1).requires_grad(), random(&[3, 3], 2).requires_grad());
    let captured = w.clone();
    let y = checkpoint(&[&x], move |t| t[0].matmul(&captured))?;
    let refused = y.sum(&[], false)?.backward();
    assert!(
        matches!(refused, Err(Error::InvalidArgument { op: "checkpoint", .. })),
        "{refused:?}"
    );
    // A constant may be captured.
    let constant = w.detach();
    let y = checkpoint(&[&x], move |t| t[0].matmul(&constant))?;
    assert!(y.sum(&[], false)?.backward()?.get(&x).is_some());
    Ok(())
}
