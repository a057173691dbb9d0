//! The walk over boxes, options, lists and tuples of modules, and over plain data.

use super::walk::{Runnable, Walk, WalkMut, Walkable};
use crate::{Backend, DType, Result, Tensor};
use kiln_core::ModuleId;

impl<B: Backend, M: Walkable<B> + ?Sized> Walkable<B> for Box<M> {
    fn kind(&self) -> &'static str {
        (**self).kind()
    }
    fn module_id(&self) -> ModuleId {
        (**self).module_id()
    }
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        (**self).copied()
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        (**self).walk(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        (**self).walk_mut(walk);
    }
}

impl<B: Backend, M: Walkable<B>> Walkable<B> for Option<M> {
    fn kind(&self) -> &'static str {
        self.as_ref().map_or("None", M::kind)
    }
    fn module_id(&self) -> ModuleId {
        self.as_ref().map_or_else(|| ModuleId::of(self), M::module_id)
    }
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        self.as_ref()?.copied()
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        if let Some(module) = self {
            module.walk(walk);
        }
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        if let Some(module) = self {
            module.walk_mut(walk);
        }
    }
}

/// Lists number their entries from 0.
macro_rules! list {
    ($([$($generic:tt)*] $list:ty, $kind:literal;)*) => {$(
        impl<B: Backend, M: Walkable<B>, $($generic)*> Walkable<B> for $list {
            fn kind(&self) -> &'static str {
                $kind
            }
            fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
                for (i, module) in self.iter().enumerate() {
                    walk.field(&i.to_string(), module);
                }
            }
            fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
                for (i, module) in self.iter_mut().enumerate() {
                    walk.field(&i.to_string(), module);
                }
            }
        }
    )*};
}
list! {
    [] Vec<M>, "Vec";
    [const N: usize] [M; N], "array";
}

/// Tuples number their entries from 0.
macro_rules! tuple {
    ($($($name:ident $i:tt)*;)*) => {$(
        impl<B: Backend, $($name: Walkable<B>),*> Walkable<B> for ($($name,)*) {
            fn kind(&self) -> &'static str {
                "tuple"
            }
            fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
                Some(Box::new(Copies(vec![$(self.$i.copied()?),*])))
            }
            fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
                $(walk.field(stringify!($i), &self.$i);)*
            }
            fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
                $(walk.field(stringify!($i), &mut self.$i);)*
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

/// Copies of the layers of a tuple, which run in order.
struct Copies<B: Backend>(Vec<Box<dyn Runnable<B>>>);

impl<B: Backend> Walkable<B> for Copies<B> {
    fn kind(&self) -> &'static str {
        "tuple"
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        for (i, layer) in self.0.iter().enumerate() {
            walk.field(&i.to_string(), &**layer);
        }
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        for (i, layer) in self.0.iter_mut().enumerate() {
            walk.field(&i.to_string(), &mut **layer);
        }
    }
}

impl<B: Backend> Runnable<B> for Copies<B> {
    fn run(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.0.iter().try_fold(x.clone(), |x, layer| layer.run(&x))
    }
    fn duplicate(&self) -> Box<dyn Runnable<B>> {
        Box::new(Copies(self.0.iter().map(|layer| layer.duplicate()).collect()))
    }
}

/// Plain data has no parameters and no buffers.
macro_rules! plain {
    ($($t:ty),*) => {$(
        impl<B: Backend> Walkable<B> for $t {
            fn walk<'a>(&'a self, _: &mut Walk<'_, 'a, B>) {}
            fn walk_mut<'a>(&'a mut self, _: &mut WalkMut<'_, 'a, B>) {}
        }
    )*};
}
plain!(
    bool,
    u8,
    u16,
    u32,
    u64,
    usize,
    i8,
    i16,
    i32,
    i64,
    isize,
    f32,
    f64,
    char,
    String,
    &'static str,
    (),
    DType,
    crate::Rng,
    crate::Stream,
    kiln_core::Shape,
    kiln_core::ops::Activation,
    kiln_core::ops::Window
);

impl<B: Backend, T: Send + Sync> Walkable<B> for std::marker::PhantomData<T> {
    fn walk<'a>(&'a self, _: &mut Walk<'_, 'a, B>) {}
    fn walk_mut<'a>(&'a mut self, _: &mut WalkMut<'_, 'a, B>) {}
}
