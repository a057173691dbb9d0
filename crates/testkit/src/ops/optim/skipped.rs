//! Updates that the device leaves out, of every optimizer: as if they had never been asked for.

use kiln_core::{Backend, DType, Result};
use kiln_nn::module::Value;
use kiln_nn::optim::*;
use kiln_nn::{Gradients, Param, Tensor};

/// Makes an optimizer.
type Make<B> = fn() -> Box<dyn Optimizer<B>>;

fn optimizers<B: Backend>() -> Vec<Make<B>> {
    vec![
        || Box::new(Sgd::new(0.1)),
        || Box::new(Sgd::new(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)),
        || Box::new(Adam::new(0.02)),
        || Box::new(AdamW::new(0.02).amsgrad(true)),
        || Box::new(Rmsprop::new(0.01).momentum(0.5).centered(true)),
        || Box::new(Adagrad::new(0.1).lr_decay(0.1)),
        || Box::new(Adadelta::new(1.0)),
        || Box::new(Adafactor::new(0.02)),
        || Box::new(Adamax::new(0.02)),
        || Box::new(Asgd::new(0.02)),
        || Box::new(Lamb::new(0.02)),
        || Box::new(Lion::new(0.02)),
        || Box::new(Muon::new(0.02)),
        || Box::new(NAdam::new(0.02)),
        || Box::new(RAdam::new(0.02)),
        || Box::new(Rprop::new(0.02)),
    ]
}

/// Two parameters, the gradients of a step, and what a run leaves behind.
struct Run<B: Backend> {
    params: Vec<Param<B>>,
    dtype: DType,
}

impl<B: Backend> Run<B> {
    fn new(backend: &B, dtype: DType) -> Result<Self> {
        let value = |shape: &[usize], k: f64| {
            let n: usize = shape.iter().product();
            let values: Vec<f64> = (0..n).map(|i| (i as f64 * k).sin()).collect();
            Tensor::from_f64(backend, &values, shape, dtype).map(Param::new)
        };
        let params = vec![value(&[3, 5], 1.3)?, value(&[2, 2], 0.7)?];
        Ok(Run { params, dtype })
    }

    /// Gradients of a step, multiplied by `scale`. One number is `bad`, if there is one.
    fn grads(&self, step: usize, bad: Option<f64>, scale: f64) -> Result<Gradients<B>> {
        let mut grads = Gradients::default();
        for (i, param) in self.params.iter().enumerate() {
            let phase = (step * 31 + i * 7) as f64;
            let mut values: Vec<f64> = (0..param.size()).map(|j| scale * (phase + j as f64).cos()).collect();
            if let (Some(bad), 1) = (bad, i) {
                values[step % param.size()] = bad;
            }
            let grad = Tensor::from_f64(param.backend(), &values, param.shape(), self.dtype)?;
            grads.insert(param, grad)?;
        }
        Ok(grads)
    }

    /// Names with bits of parameters and state.
    fn left(&self, optimizer: &dyn Optimizer<B>) -> Result<Vec<(String, Vec<u64>)>> {
        let bits = |t: &Tensor<B>| Ok(t.to_f64()?.into_iter().map(f64::to_bits).collect::<Vec<_>>());
        let mut left = Vec::new();
        for (i, param) in self.params.iter().enumerate() {
            left.push((i.to_string(), bits(param)?));
        }
        for (name, value) in optimizer.state_dict()?.iter() {
            let value = match value {
                Value::Float(t) => bits(t)?,
                Value::Int(i) => i.to_vec::<i32>()?.into_iter().map(|n| n as u64).collect(),
            };
            left.push((name.to_string(), value));
        }
        Ok(left)
    }
}

/// Whether step `i` of a run is left out, and what its gradient holds.
fn bad(i: usize) -> Option<f64> {
    match i % 7 {
        0 => Some(f64::INFINITY),
        3 => Some(f64::NAN),
        4 => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Steps with gradients that are not finite among others leave parameters, state and counts, bit for bit, that those others leave
/// without them, and the scale finds its way. The steps of one optimizer are more than are made before the host reads what was
/// left out.
///
/// # Panics
/// With optimizer, dtype and name, where they differ or an op returns an error.
pub fn left_out<B: Backend>(backend: &B) {
    for (i, make) in optimizers::<B>().into_iter().enumerate() {
        let dtypes: &[DType] = if i < 3 || i == 13 {
            &[DType::F32, DType::BF16, DType::F64]
        } else {
            &[DType::F32]
        };
        for &dtype in dtypes.iter().filter(|&&d| backend.supports_dtype(d)) {
            let steps = if i == 2 && dtype == DType::F32 { 70 } else { 9 };
            compare(backend, make, dtype, steps).unwrap_or_else(|e| panic!("{:?} {dtype}: {e}", name(make)));
        }
    }
}

fn name<B: Backend>(make: Make<B>) -> String {
    let optimizer = make();
    format!("optimizer with lr {}", optimizer.lr())
}

fn compare<B: Backend>(backend: &B, make: Make<B>, dtype: DType, steps: usize) -> Result<()> {
    let (mut guarded, mut plain) = (Run::new(backend, dtype)?, Run::new(backend, dtype)?);
    let (mut scaled, mut optimizer) = (make(), make());
    let mut scaler = GradScaler::new(backend)?.growth_interval(3);
    let mut scale = 65536f64;
    let mut good = 0;
    for step in 0..steps {
        assert_eq!(scaler.state()?.scale, scale, "{} {dtype}: step {step}", name(make));
        let mut grads = guarded.grads(step, bad(step), scale)?;
        scaler.unscale(&mut grads, &guarded.params)?;
        scaler.step(&mut scaled, &mut guarded.params, &grads)?;
        scaler.update()?;
        if bad(step).is_some() {
            (scale, good) = (scale / 2.0, 0);
            continue;
        }
        good += 1;
        if good == 3 {
            (scale, good) = (scale * 2.0, 0);
        }
        let grads = plain.grads(step, None, 1.0)?;
        optimizer.step(&mut plain.params, &grads)?;
    }
    let (got, want) = (guarded.left(&*scaled)?, plain.left(&*optimizer)?);
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(&want) {
        assert!(got == want, "{} {dtype}: {got:?}, expected {want:?}", name(make));
    }
    // The counts are those of the host once it has read them.
    scaled.settle()?;
    assert!(guarded.left(&*scaled)? == got, "{} {dtype}: settled", name(make));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reference;

    /// A step that changes one parameter alone, among steps that change both, has a count of its own.
    #[test]
    fn parameters_that_take_part_now_and_then_count_their_own_steps() -> Result<()> {
        let backend = Reference;
        let (mut guarded, mut plain) = (Run::new(&backend, DType::F64)?, Run::new(&backend, DType::F64)?);
        let (mut scaled, mut adam) = (
            Adam::new(0.1).skip_missing_gradients(),
            Adam::new(0.1).skip_missing_gradients(),
        );
        let mut scaler = GradScaler::without_scale(&backend)?;
        for step in 0..40 {
            let partly = step % 5 == 2 || step % 11 == 4;
            let of = |run: &Run<Reference>, bad| -> Result<_> {
                let mut grads = run.grads(step, bad, 1.0)?;
                if partly {
                    grads.remove(&run.params[0]);
                }
                Ok(grads)
            };
            let mut grads = of(&guarded, bad(step))?;
            scaler.unscale(&mut grads, &guarded.params)?;
            scaler.step(&mut scaled, &mut guarded.params, &grads)?;
            scaler.update()?;
            if bad(step).is_none() {
                let grads = of(&plain, None)?;
                adam.step(&mut plain.params, &grads)?;
            }
        }
        assert!(guarded.left(&scaled)? == plain.left(&adam)?);
        Ok(())
    }
}
