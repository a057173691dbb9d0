//! Activations in products' epilogues: values and gradients of a linear layer with an activation, before another linear layer.

use crate::ops::elementwise::Function;
use kiln_core::ops::{Activation, MatmulParams, Op};
use kiln_core::{Backend, DType, Result, Shape};
use kiln_nn::autograd::grad;
use kiln_nn::{Gradients, Rng, Tensor};

/// Two linear layers with an activation between.
struct Layers<B: Backend> {
    x: Tensor<B>,
    w: [Tensor<B>; 2],
    bias: [Tensor<B>; 2],
    f: Activation,
}

/// A second use of the activation's result, besides the second layer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    Once,
    /// It is added to the result of the second layer.
    Twice,
    /// The same, added first.
    Before,
    /// It goes through the second layer twice.
    BothSides,
}

impl<B: Backend> Layers<B> {
    /// Layers on `rows` rows of `sizes[0]` features, with `sizes[1]` between and `sizes[0]` behind.
    fn new(backend: &B, dtype: DType, rows: &[usize], sizes: [usize; 2], f: Activation) -> Result<Self> {
        let mut rng = Rng::new(7);
        let mut normal = |shape: &[usize]| -> Result<Tensor<B>> {
            Ok(Tensor::randn(backend, shape, DType::F32, &mut rng)?
                .to_dtype(dtype)?
                .requires_grad())
        };
        let [inner, hidden] = sizes;
        Ok(Layers {
            x: normal(&[rows, &[inner]].concat())?,
            w: [normal(&[hidden, inner])?, normal(&[inner, hidden])?],
            bias: [normal(&[hidden])?, normal(&[inner])?],
            f,
        })
    }

    fn leaves(&self) -> [&Tensor<B>; 5] {
        [&self.x, &self.w[0], &self.w[1], &self.bias[0], &self.bias[1]]
    }

    /// The activation's result: by the layer, or as an op after it, whose slope nothing else applies.
    fn hidden(&self, fused: bool) -> Result<Tensor<B>> {
        let [w, bias] = [&self.w[0], &self.bias[0]];
        if fused {
            return self.x.linear(w, Some(bias), self.f);
        }
        let h = self.x.linear(w, Some(bias), Activation::None)?;
        match self.f.function() {
            None => Ok(h),
            Some(f) => Function::plain(f).apply(&h)?.unsqueeze(0)?.squeeze(0),
        }
    }

    fn run(&self, fused: bool, used: Use) -> Result<(Tensor<B>, Tensor<B>)> {
        let hidden = self.hidden(fused)?;
        let second = |x: &Tensor<B>| x.linear(&self.w[1], Some(&self.bias[1]), Activation::None);
        let y = match used {
            Use::Once => second(&hidden)?,
            Use::Twice => second(&hidden)?.add(&hidden.mean(&[-1], true)?)?,
            Use::Before => hidden.mean(&[-1], true)?.add(&second(&hidden)?)?,
            Use::BothSides => second(&hidden)?.add(&second(&hidden)?.square()?)?,
        };
        Ok((hidden, y))
    }

    /// The results and the gradients of all leaves.
    fn values(&self, fused: bool, used: Use) -> Result<Vec<Vec<f64>>> {
        let (_, y) = self.run(fused, used)?;
        let seed = y.detach().sin()?;
        let mut all = vec![y.to_f64()?];
        all.extend(self.gradients(&y.backward_with(&seed)?)?);
        Ok(all)
    }

    /// The gradients of all leaves that have one.
    fn gradients(&self, grads: &Gradients<B>) -> Result<Vec<Vec<f64>>> {
        let of = |leaf| grads.get(leaf).map(Tensor::to_f64);
        self.leaves().into_iter().filter_map(of).collect()
    }
}

fn each<B: Backend>(backend: &B, mut f: impl FnMut(DType, &[usize], [usize; 2], Activation) -> Result<()>) {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        if !backend.supports_dtype(dtype) {
            continue;
        }
        for &activation in &Activation::ALL[1..] {
            // Halves of functions whose slope is computed from their result are rounded once in the layer, twice behind it.
            let exact = activation.reads_input() || activation == Activation::Relu;
            if dtype != DType::F32 && !exact {
                continue;
            }
            for (rows, sizes) in [(&[3][..], [9, 6]), (&[2, 17], [16, 40]), (&[5, 13], [7, 33])] {
                f(dtype, rows, sizes, activation).unwrap_or_else(|e| panic!("{dtype} {activation:?}: {e}"));
            }
        }
    }
}

/// A linear layer's own activation gives the same bits as the op after it, and so do the gradients, whichever op multiplies them
/// by the slope.
///
/// # Panics
/// When they differ.
pub fn as_two_ops<B: Backend>(backend: &B) {
    each(backend, |dtype, rows, sizes, f| {
        let layers = Layers::new(backend, dtype, rows, sizes, f)?;
        for used in [Use::Once, Use::Twice, Use::Before, Use::BothSides] {
            let (fused, apart) = (layers.values(true, used)?, layers.values(false, used)?);
            let names = ["y", "dx", "dw1", "dw2", "db1", "db2"];
            for ((name, a), b) in names.iter().zip(&fused).zip(&apart) {
                assert_eq!(a, b, "{name}: {dtype} {f:?} {rows:?} {sizes:?} {used:?}");
            }
        }
        Ok(())
    });
}

/// The gradient of the activation's result itself has no slope in it, a graph that is kept gives the same gradients again, and
/// gradients of gradients are those of the ops one by one.
///
/// # Panics
/// When they are not.
pub fn targets<B: Backend>(backend: &B) {
    each(backend, |dtype, rows, sizes, f| {
        if dtype != DType::F32 {
            return Ok(());
        }
        let layers = Layers::new(backend, dtype, rows, sizes, f)?;
        let of = |fused: bool, create_graph: bool| -> Result<Vec<Vec<f64>>> {
            let (hidden, y) = layers.run(fused, Use::Once)?;
            let loss = y.square()?.mean(&[], false)?;
            let found = grad(&loss, &[&hidden, &layers.x], None, create_graph)?;
            let mut all = Vec::new();
            for g in found.iter().flatten() {
                all.push(g.to_f64()?);
            }
            if create_graph && let Some(Some(dx)) = found.get(1) {
                let again = grad(&dx.square()?.mean(&[], false)?, &[&layers.x, &layers.w[0]], None, false)?;
                for g in again.iter().flatten() {
                    all.push(g.to_f64()?);
                }
            }
            Ok(all)
        };
        for create_graph in [false, true] {
            let (fused, apart) = (of(true, create_graph)?, of(false, create_graph)?);
            assert_eq!(fused, apart, "{f:?} {rows:?} {sizes:?} {create_graph}");
        }
        let (_, y) = layers.run(true, Use::Once)?;
        let loss = y.square()?.mean(&[], false)?;
        let (first, second) = (loss.backward_retain()?, loss.backward()?);
        for leaf in layers.leaves() {
            let of = |grads: &Gradients<B>| grads.get(leaf).map(Tensor::to_f64).transpose();
            assert_eq!(of(&first)?, of(&second)?, "{f:?}");
        }
        Ok(())
    });
}

/// The second layer does not keep its input, the result of an activation that it alone reads, where its gradient makes it again: then less
/// memory is held after the forward pass, and gradients have the same bits, with layers frozen and with a graph that is kept.
///
/// # Panics
/// When they do not, or memory is not freed.
pub fn remade<B: Backend>(backend: &B) {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        if !backend.supports_dtype(dtype) {
            continue;
        }
        for f in [
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Silu,
            Activation::Relu,
        ] {
            for (rows, sizes) in [([130], [9, 261]), ([67], [24, 72]), ([257], [5, 33]), ([7], [16, 24])] {
                let run = || remade_in(backend, dtype, &rows, sizes, f);
                run().unwrap_or_else(|e| panic!("{dtype} {f:?} {rows:?} {sizes:?}: {e}"));
            }
        }
    }
}

fn remade_in<B: Backend>(backend: &B, dtype: DType, rows: &[usize], sizes: [usize; 2], f: Activation) -> Result<()> {
    let what = || format!("{dtype} {f:?} {rows:?} {sizes:?}");
    let [inner, hidden] = sizes;
    // Bytes that are freed when nobody has the activation's result any longer.
    let freed = |used: Use| -> Result<usize> {
        let layers = Layers::new(backend, dtype, rows, sizes, f)?;
        let (hidden, _y) = layers.run(true, used)?;
        let before = backend.memory().live;
        drop(hidden);
        Ok(before - backend.memory().live)
    };
    let shape = |sizes: &[usize]| Shape::new(sizes);
    let (a, b) = (shape(&[rows[0], hidden])?, shape(&[inner, hidden])?);
    let (p, _) = MatmulParams::new("linear", &a, &b, false, true)?;
    let remakes = backend.supports(Op::Linear, dtype) && f.reads_input() && backend.remakes_input(&p, dtype);
    let bytes = rows[0] * hidden * dtype.size();
    let once = freed(Use::Once)?;
    assert_eq!(once >= bytes, remakes, "{}: {once} bytes freed", what());
    for used in [Use::Twice, Use::Before] {
        assert_eq!(freed(used)?, 0, "{} {used:?}", what());
    }
    // The second layer's weight, its bias, everything before it.
    for frozen in [&[][..], &[2], &[2, 4], &[4], &[0, 1, 3]] {
        let mut layers = Layers::new(backend, dtype, rows, sizes, f)?;
        for i in frozen {
            let [w1, w2] = &mut layers.w;
            let [b1, b2] = &mut layers.bias;
            let leaf = [&mut layers.x, w1, w2, b1, b2]
                .into_iter()
                .nth(*i)
                .expect("one of five");
            *leaf = leaf.detach();
        }
        assert_eq!(
            layers.values(true, Use::Once)?,
            layers.values(false, Use::Once)?,
            "{} {frozen:?}",
            what()
        );
        let twice = |fused: bool| -> Result<[Vec<Vec<f64>>; 2]> {
            let (_, y) = layers.run(fused, Use::Once)?;
            let loss = y.square()?.sum(&[], false)?;
            let first = layers.gradients(&loss.backward_retain()?)?;
            Ok([first, layers.gradients(&loss.backward()?)?])
        };
        let ([first, second], [apart, _]) = (twice(true)?, twice(false)?);
        assert_eq!(first, apart, "{} {frozen:?}", what());
        assert_eq!(first, second, "{} {frozen:?}", what());
    }
    // The gradient of the second weight alone, for which nothing goes further back.
    let layers = Layers::new(backend, dtype, rows, sizes, f)?;
    let alone = |fused: bool| -> Result<Option<Vec<f64>>> {
        let (_, y) = layers.run(fused, Use::Once)?;
        let found = grad(&y.square()?.sum(&[], false)?, &[&layers.w[1]], None, false)?;
        found.into_iter().flatten().next().map(|g| g.to_f64()).transpose()
    };
    assert_eq!(alone(true)?, alone(false)?, "{}: one weight", what());
    Ok(())
}
