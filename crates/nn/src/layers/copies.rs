//! What `#[derive(Module)]` asks whether a struct is a layer that can be cloned, which the macro cannot see. Of the two methods
//! `copied` below the compiler takes the first where it applies, because the second needs one more reference.

use super::Layer;
use crate::Backend;
use crate::module::Runnable;

/// A module that is asked.
#[derive(Debug)]
pub struct Probe<'a, T>(pub &'a T);

/// The answer of layers that can be cloned.
pub trait Cloneable<B: Backend> {
    /// A copy.
    fn copied(&self) -> Option<Box<dyn Runnable<B>>>;
}

impl<B: Backend, T: Layer<B> + Clone + 'static> Cloneable<B> for Probe<'_, T> {
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        Some(self.0.duplicate())
    }
}

/// The answer of everything else.
pub trait Other<B: Backend> {
    /// Nothing.
    fn copied(&self) -> Option<Box<dyn Runnable<B>>>;
}

impl<B: Backend, T> Other<B> for &Probe<'_, T> {
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        None
    }
}
