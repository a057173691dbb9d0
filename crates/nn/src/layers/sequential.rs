//! Layers one after another.

use super::{BatchNorm, Layer, Relu};
use crate::autograd::recompute;
use crate::module::Runnable;
use crate::{Backend, Error, Result, Shape, Tensor, Walk, WalkMut, Walkable, trace};
use std::any::Any;

/// Layers that each take the output of the one before (`torch.nn.Sequential`), named `0`, `1`, … unless named
/// otherwise.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Module, Sequential, Tensor, layers::{Linear, Relu}};
/// # let cpu = kiln_cpu::Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let net = Sequential::new().push(Linear::new(init, 4, 8)?).push(Relu).push(Linear::new(init, 8, 2)?);
/// let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["0.weight", "0.bias", "2.weight", "2.bias"]);
/// assert_eq!(net.forward(&Tensor::zeros(&cpu, &[16, 4], DType::F32)?)?.shape().dims(), [16, 2]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct Sequential<B: Backend> {
    layers: Vec<(String, Box<dyn Stored<B>>)>,
}

/// A layer whose type is forgotten, but not how it is duplicated.
trait Stored<B: Backend>: Layer<B> {
    fn duplicate(&self) -> Box<dyn Stored<B>>;
    /// The layer, to be asked for its type.
    fn any(&self) -> &dyn Any;
}

impl<B: Backend, L: Layer<B> + Clone + 'static> Stored<B> for L {
    fn duplicate(&self) -> Box<dyn Stored<B>> {
        Box::new(self.clone())
    }
    fn any(&self) -> &dyn Any {
        self
    }
}

/// Compiles the functions by which a [`Sequential`] holds a layer of type `L`.
pub(crate) fn instance<B: Backend, L: Layer<B> + Clone + 'static>() -> *const () {
    (std::ptr::null::<L>() as *const dyn Stored<B>).cast()
}

impl<B: Backend> Clone for Sequential<B> {
    fn clone(&self) -> Self {
        let layers = self.layers.iter();
        Sequential {
            layers: layers
                .map(|(name, layer)| (name.clone(), (**layer).duplicate()))
                .collect(),
        }
    }
}

impl<B: Backend> Default for Sequential<B> {
    fn default() -> Self {
        Sequential { layers: Vec::new() }
    }
}

#[compiled_once]
impl<B: Backend> Sequential<B> {
    /// A sequence without layers, which returns its input.
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Sequential, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[3], DType::F32)?;
    /// assert_eq!(Sequential::new().forward(&x)?.to_vec::<f32>()?, [1.0; 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn new() -> Self {
        Sequential::default()
    }

    /// Appends a layer under the next number. The layer can be cloned, so that the sequence can; layers that cannot are a
    /// `Vec<Box<dyn Layer<B>>>`, which is a layer too.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Sequential, Tensor, layers::{Linear, Relu}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let net = Sequential::new().push(Linear::new(init, 4, 8)?).push(Relu);
    /// assert!(net.forward(&Tensor::ones(&cpu, &[4], DType::F32)?)?.to_f64()?.iter().all(|&y| y >= 0.0));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn push(mut self, layer: impl Layer<B> + Clone + 'static) -> Self {
        self.layers.push((self.layers.len().to_string(), Box::new(layer)));
        self
    }

    /// Appends a layer under a name.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, Sequential, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let net = Sequential::new().push_named("head", Linear::new(init, 4, 2)?)?;
    /// assert_eq!(net.named_parameters()[0].0, "head.weight");
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A name that another layer has, that is empty or a number, or that contains a dot.
    pub fn push_named(mut self, name: &str, layer: impl Layer<B> + Clone + 'static) -> Result<Self> {
        let taken = self.layers.iter().any(|(n, _)| n == name);
        if taken || name.contains('.') || name.bytes().all(|b| b.is_ascii_digit()) {
            let expected = "a new name without dots that is not a number";
            return Err(Error::invalid("sequential", "name", name, expected));
        }
        self.layers.push((name.to_string(), Box::new(layer)));
        Ok(self)
    }

    /// The layers in order.
    ///
    /// ```
    /// # use kiln_nn::{Init, Sequential, layers::{Linear, Relu}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let net = Sequential::new().push(Linear::new(init, 4, 8)?).push(Relu);
    /// let kinds: Vec<_> = net.iter().map(|(name, layer)| format!("{name}: {}", layer.kind())).collect();
    /// assert_eq!(kinds, ["0: Linear", "1: Relu"]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&str, &dyn Layer<B>)> {
        self.layers
            .iter()
            .map(|(name, layer)| (name.as_str(), &**layer as &dyn Layer<B>))
    }

    /// Number of layers.
    ///
    /// ```
    /// # use kiln_nn::{Init, Sequential, layers::{Linear, Relu}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let net = Sequential::new().push(Linear::new(init, 4, 8)?).push(Relu);
    /// assert_eq!(net.len(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// True if there are no layers.
    ///
    /// ```
    /// # use kiln_nn::Sequential;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// assert!(Sequential::<kiln_cpu::Cpu>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }
}

impl<B: Backend> Walkable<B> for Sequential<B> {
    fn kind(&self) -> &'static str {
        "Sequential"
    }
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        Some(Runnable::duplicate(self))
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        for (name, layer) in &self.layers {
            walk.field(name, layer);
        }
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        for (name, layer) in &mut self.layers {
            walk.field(name, layer);
        }
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for Sequential<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut y = x.clone();
        let mut layers = self.layers.iter().peekable();
        while let Some((name, layer)) = layers.next() {
            // Boxed layers of size zero share an address, by which layers are found: the name of the failed one must come
            // from here.
            let named = |e: Error| e.within(name, layer.kind());
            y = match layers.next_if(|(_, next)| one_op(&**layer, &**next)) {
                Some((_, relu)) => norm_and_relu(&**layer, &**relu, &y).map_err(named)?,
                None => layer.forward(&y).map_err(named)?,
            };
        }
        Ok(y)
    }
}

/// True if the two layers are a batch norm and a ReLU behind it, which run as one op unless a trace or a checkpoint has one of them by
/// itself.
fn one_op<B: Backend>(layer: &dyn Stored<B>, next: &dyn Stored<B>) -> bool {
    layer.any().is::<BatchNorm<B>>()
        && next.any().is::<Relu>()
        && !trace::is_on()
        && !recompute::selects(&[layer.module_id(), next.module_id()])
}

/// The two layers of [`one_op`].
fn norm_and_relu<B: Backend>(norm: &dyn Stored<B>, relu: &dyn Stored<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
    match norm.any().downcast_ref::<BatchNorm<B>>() {
        Some(norm) => norm.forward_with(relu.module_id(), x),
        None => relu.forward(&norm.forward(x)?),
    }
}

/// A list of layers runs them in order, as [`Sequential`] does.
macro_rules! list {
    ($([$($generic:tt)*] $list:ty),*) => {$(
        impl<B: Backend, L: Layer<B>, $($generic)*> Layer<B> for $list {
            fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                self.iter().enumerate().try_fold(x.clone(), |x, (i, layer)| {
                    layer.forward(&x).map_err(|e| e.within(&i.to_string(), layer.kind()))
                })
            }
            // Not computed again as one, which would need the memory of all at once: its layers are, each by itself.
            fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                trace::run(self, None, x, |_, _| 0, || self.call(x))
            }
        }
    )*};
}
list!([] Vec<L>, [const N: usize] [L; N]);

/// `None` returns its input.
impl<B: Backend, L: Layer<B>> Layer<B> for Option<L> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.as_ref().map_or_else(|| Ok(x.clone()), |layer| layer.call(x))
    }
    fn flops(&self, input: &Shape, output: &Shape) -> u64 {
        self.as_ref().map_or(0, |layer| layer.flops(input, output))
    }
}

/// A tuple of layers runs them in order, as [`Sequential`] does.
macro_rules! tuple {
    ($($($name:ident $i:tt)*;)*) => {$(
        impl<B: Backend, $($name: Layer<B>),*> Layer<B> for ($($name,)*) {
            fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                $(let x = &self.$i.forward(x).map_err(|e| e.within(stringify!($i), self.$i.kind()))?;)*
                Ok(x.clone())
            }
        }
    )*};
}
tuple! {
    A0 0;
    A0 0 A1 1;
    A0 0 A1 1 A2 2;
    A0 0 A1 1 A2 2 A3 3;
    A0 0 A1 1 A2 2 A3 3 A4 4;
    A0 0 A1 1 A2 2 A3 3 A4 4 A5 5;
    A0 0 A1 1 A2 2 A3 3 A4 4 A5 5 A6 6;
    A0 0 A1 1 A2 2 A3 3 A4 4 A5 5 A6 6 A7 7;
}
