//! Layers one after another.

use super::Layer;
use crate::{Backend, Error, Result, Shape, Tensor, Walk, WalkMut, Walkable};

/// Layers that each take the output of the one before (`torch.nn.Sequential`), named `0`, `1`, … unless named
/// otherwise.
pub struct Sequential<B: Backend> {
    layers: Vec<(String, Box<dyn Layer<B>>)>,
}

impl<B: Backend> Default for Sequential<B> {
    fn default() -> Self {
        Sequential { layers: Vec::new() }
    }
}

impl<B: Backend> Sequential<B> {
    /// A sequence without layers, which returns its input.
    pub fn new() -> Self {
        Sequential::default()
    }

    /// Appends a layer under the next number.
    pub fn push(mut self, layer: impl Layer<B> + 'static) -> Self {
        self.layers.push((self.layers.len().to_string(), Box::new(layer)));
        self
    }

    /// Appends a layer under a name.
    ///
    /// # Errors
    /// A name that another layer has, that is empty or a number, or that contains a dot.
    pub fn push_named(mut self, name: &str, layer: impl Layer<B> + 'static) -> Result<Self> {
        let taken = self.layers.iter().any(|(n, _)| n == name);
        if taken || name.contains('.') || name.bytes().all(|b| b.is_ascii_digit()) {
            let expected = "a new name without dots that is not a number";
            return Err(Error::invalid("sequential", "name", name, expected));
        }
        self.layers.push((name.to_string(), Box::new(layer)));
        Ok(self)
    }

    /// The layers in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &dyn Layer<B>)> {
        self.layers.iter().map(|(name, layer)| (name.as_str(), &**layer))
    }

    /// Number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// True if there are no layers.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }
}

impl<B: Backend> Walkable<B> for Sequential<B> {
    fn kind(&self) -> &'static str {
        "Sequential"
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

impl<B: Backend> Layer<B> for Sequential<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut y = x.clone();
        for (name, layer) in &self.layers {
            // Boxed layers of size zero share an address, by which layers are found: the name of the failed one must come
            // from here.
            y = layer.forward(&y).map_err(|e| e.within(name, layer.kind()))?;
        }
        Ok(y)
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
