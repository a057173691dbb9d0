//! The backward pass: accumulation, freeing of the graph, gradients of gradients, and errors.

use kiln_core::Runtime;
use kiln_core::ops::Window;
use kiln_cpu::Cpu;
use kiln_nn::{DType, Error, Result, Rng, Tensor, grad, no_grad};
use std::cell::RefCell;

type T = Tensor<Cpu>;

fn leaf(values: &[f64]) -> T {
    T::from_slice(&Cpu::poisoned(), values, &[values.len()])
        .unwrap()
        .requires_grad()
}

fn values(t: Option<&T>) -> Vec<f64> {
    t.expect("a gradient").to_f64().unwrap()
}

#[test]
fn a_tensor_used_twice_gets_the_sum() -> Result<()> {
    let x = leaf(&[1.0, -2.0, 3.0]);
    let y = x.mul(&x)?.add(&x)?.sum(&[], false)?;
    let grads = y.backward()?;
    assert_eq!(values(grads.get(&x)), [3.0, -3.0, 7.0]);
    Ok(())
}

/// Addition returns one gradient tensor for both inputs; adding to one input's gradient in place must not change the other's.
#[test]
fn a_gradient_given_to_two_inputs_is_not_shared() -> Result<()> {
    let (a, b) = (leaf(&[1.0]), leaf(&[2.0]));
    let y = a.add(&b)?.add(&a)?.sum(&[], false)?;
    let grads = y.backward()?;
    assert_eq!(values(grads.get(&a)), [2.0]);
    assert_eq!(values(grads.get(&b)), [1.0]);
    Ok(())
}

#[test]
fn gradients_of_gradients() -> Result<()> {
    let x = leaf(&[2.0, -1.0]);
    let cube = x.mul(&x)?.mul(&x)?.sum(&[], false)?;
    let first = grad(&cube, &[&x], None, true)?.remove(0).expect("first");
    assert_eq!(first.to_f64()?, [12.0, 3.0]);
    let second = grad(&first.sum(&[], false)?, &[&x], None, true)?
        .remove(0)
        .expect("second");
    assert_eq!(second.to_f64()?, [12.0, -6.0]);
    let third = second.sum(&[], false)?.backward()?;
    assert_eq!(values(third.get(&x)), [6.0, 6.0]);
    Ok(())
}

#[test]
fn gradients_of_intermediate_and_unrelated_tensors() -> Result<()> {
    let (x, other) = (leaf(&[3.0]), leaf(&[1.0]));
    let mid = x.mul(&x)?;
    let y = mid.mul(&mid)?;
    let found = grad(&y, &[&mid, &x, &other], None, false)?;
    assert_eq!(values(found[0].as_ref()), [18.0]);
    assert_eq!(values(found[1].as_ref()), [108.0]);
    assert!(found[2].is_none());
    Ok(())
}

#[test]
fn a_graph_is_used_once_unless_retained() -> Result<()> {
    let x = leaf(&[1.5]);
    let y = x.mul(&x)?;
    assert_eq!(values(y.backward_retain()?.get(&x)), [3.0]);
    assert_eq!(values(y.backward()?.get(&x)), [3.0]);
    assert!(matches!(y.backward(), Err(Error::GraphFreed { op: "mul" })));
    Ok(())
}

#[test]
fn nothing_is_recorded_without_gradients() -> Result<()> {
    let x = leaf(&[1.0]);
    let y = no_grad(|| x.mul(&x))?;
    assert!(!y.is_tracked());
    assert!(matches!(
        y.backward(),
        Err(Error::InvalidArgument { op: "backward", .. })
    ));
    assert!(x.mul(&x)?.is_tracked(), "the mode is restored");
    assert!(!x.detach().mul(&x.detach())?.is_tracked());
    Ok(())
}

#[test]
fn backward_wants_a_scalar_or_a_seed() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let y = x.mul(&x)?;
    assert!(y.backward().unwrap_err().to_string().contains("backward_with"));
    let seed = T::from_slice(x.backend(), &[1.0f64, 10.0], &[2])?;
    assert!(y.backward_with(&T::zeros(x.backend(), &[3], DType::F64)?).is_err());
    assert!(y.backward_with(&T::zeros(x.backend(), &[2], DType::F32)?).is_err());
    assert_eq!(values(y.backward_with(&seed)?.get(&x)), [2.0, 40.0]);
    Ok(())
}

#[test]
fn a_long_chain_comes_apart_without_recursion() -> Result<()> {
    let x = leaf(&[0.0]);
    let mut y = x.clone();
    for _ in 0..200_000 {
        y = y.add(&x)?;
    }
    drop(y);
    let mut y = x.clone();
    for _ in 0..50_000 {
        y = y.add(&x)?;
    }
    assert_eq!(values(y.backward()?.get(&x)), [50_001.0]);
    Ok(())
}

/// At the end of a thread its thread-locals are dropped one after the other, in an unspecified order.
#[test]
fn a_long_chain_comes_apart_at_the_end_of_a_thread() {
    thread_local! {
        static FIRST: RefCell<Option<T>> = const { RefCell::new(None) };
        static LAST: RefCell<Option<T>> = const { RefCell::new(None) };
    }
    fn chain() -> Option<T> {
        let x = leaf(&[0.0]);
        let mut y = x.clone();
        for _ in 0..100_000 {
            y = y.add(&x).unwrap();
        }
        Some(y)
    }
    let held = std::thread::spawn(|| {
        FIRST.with_borrow_mut(|f| *f = chain());
        drop(chain());
        LAST.with_borrow_mut(|l| *l = chain());
    });
    held.join().unwrap();
}

#[test]
fn micro_batches_accumulate_to_the_whole() -> Result<()> {
    let w = leaf(&[0.5, -1.0]);
    let loss = |scale: f64| w.mul(&w)?.mul_scalar(scale)?.sum(&[], false);
    let mut sum = loss(1.0)?.backward()?;
    sum.accumulate(loss(2.0)?.backward()?)?;
    assert_eq!(values(sum.get(&w)), values(loss(3.0)?.backward()?.get(&w)));
    Ok(())
}

#[test]
fn updating_in_place_leaves_other_holders_alone() -> Result<()> {
    let mut x = leaf(&[1.0]);
    let before = x.detach();
    let id = x.id();
    x.assign(&T::from_slice(x.backend(), &[9.0f64], &[1])?)?;
    assert_eq!((x.item()?, before.item()?, x.id()), (9.0, 1.0, id));
    Ok(())
}

/// A pooling after a ReLU writes the ReLU's zeros itself, unless the gradient between the two is asked for. Every other
/// gradient must be the same both ways.
#[test]
fn a_rectifier_before_a_pooling_gets_its_zeros_from_it() -> Result<()> {
    let cpu = Cpu::poisoned();
    let (shape, window) = ([2, 6, 5, 3], Window::new([3, 2]).stride([2, 1]));
    let coarse: Vec<f32> = (0..180).map(|i| ((i * 37 % 11) as f32 - 7.0) / 2.0).collect();
    let x = T::from_slice(&cpu, &coarse, &shape)?.requires_grad();
    // Another reader of the ReLU's output, before or after the pooling, has a gradient that is not zero where the output is.
    let loss = |other: Option<bool>| -> Result<(T, T)> {
        let y = x.relu()?;
        let before = y.square()?.add(&y)?;
        let pooled = y.max_pool(&window, false)?;
        let behind = y.square()?.add(&y)?;
        let weights = T::rand(&cpu, pooled.shape(), DType::F32, &mut Rng::new(1))?;
        let mut loss = pooled.mul(&weights)?.sum(&[], false)?;
        if let Some(early) = other {
            let other = if early { before } else { behind };
            loss = loss.add(&other.sum(&[], false)?)?;
        }
        Ok((loss, y))
    };
    for other in [None, Some(false), Some(true)] {
        let (sum, y) = loss(other)?;
        let between = grad(&sum, &[&x, &y], None, false)?;
        let [Some(dx), Some(dy)] = &between[..] else {
            panic!("two gradients")
        };
        let (dx, dy, y) = (dx.to_f64()?, dy.to_f64()?, y.to_f64()?);
        let below = || (0..y.len()).filter(|&i| y[i] == 0.0);
        assert!(below().any(|i| dy[i] != 0.0), "no window without a positive element");
        assert!(below().all(|i| dx[i] == 0.0));
        assert!((0..y.len()).all(|i| y[i] == 0.0 || dx[i] == dy[i]));
        assert_eq!(values(loss(other)?.0.backward()?.get(&x)), dx, "{other:?}");
    }
    Ok(())
}

/// A ReLU's output that only a pooling reads is freed before the backward pass, and gradients of gradients do not need it.
#[test]
fn the_output_of_a_relu_before_a_pooling_is_not_kept() -> Result<()> {
    let cpu = Cpu::poisoned();
    let (shape, window) = ([2, 6, 6, 3], Window::new([2, 2]).stride([2, 2]));
    let coarse: Vec<f32> = (0..216).map(|i| ((i * 37 % 11) as f32 - 6.0) / 2.0).collect();
    let x = T::from_slice(&cpu, &coarse, &shape)?.requires_grad();
    let bytes = || cpu.memory().live;
    let before = bytes();
    let pooled = x.relu()?.max_pool(&window, false)?;
    assert!(bytes() - before < 4 * x.size(), "the result and its indices alone");
    let y = x.relu()?;
    let both = y.max_pool(&window, false)?.add(&y.max_pool(&window, false)?)?;
    let held = bytes();
    drop(y);
    assert!(bytes() < held, "two poolings write the zeros as well as one");
    drop(both);
    let y = x.relu()?;
    let with_sum = y.max_pool(&window, false)?.sum(&[], false)?.add(&y.sum(&[], false)?)?;
    let held = bytes();
    drop(y);
    assert_eq!(bytes(), held, "a sum does not");
    with_sum.backward()?;

    let second = |pooled: &T| -> Result<Vec<f64>> {
        let cube = pooled.square()?.mul(pooled)?.sum(&[], false)?;
        let [Some(first)] = &grad(&cube, &[&x], None, true)?[..] else {
            panic!("a gradient")
        };
        Ok(values(first.square()?.sum(&[], false)?.backward()?.get(&x)))
    };
    let mask = x.detach().le_scalar(0.0)?;
    let by_mask = x.masked_fill(&mask, 0.0)?.max_pool(&window, false)?;
    let (got, want) = (second(&pooled)?, second(&by_mask)?);
    assert!(want.iter().any(|&g| g != 0.0));
    assert_eq!(got, want);
    Ok(())
}
