//! `#[derive(Module)]` for structs generic over a Kiln backend, `#[derive(Batch)]` for what a data loader makes, and an attribute
//! that saves compile time in the crates that use them.

mod batch;
mod compiled_once;
mod module;

use proc_macro::TokenStream;
use syn::{DeriveInput, Error, parse_macro_input};

/// Implements `kiln_nn::Walkable<B>`, by which the struct is a `Module<B>`: every field is walked under its own name, in the
/// order of declaration.
///
/// The struct has a type parameter bounded by `Backend`, or names its backend: `#[module(backend = kiln_cpu::Cpu)]`. A field is a layer, another module, a parameter or buffer,
/// an `Option`, `Vec`, array, tuple or `Box` of those, or plain data (numbers, `bool`, `String`), which has nothing to walk.
/// `#[module(skip)]` leaves a field of any other type out; `#[module(rename = "name")]` walks it under another name.
/// On the struct, `#[module(kind = "Conv2d")]` (any expression of type `&'static str`) sets the name that errors and
/// summaries give its type.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    module::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Implements `kiln_data::Batch` for a struct of host arrays, and makes the struct of the same fields on a device.
///
/// The struct on the device has the name of this one with `On` behind it and the backend as its last type parameter: for `Pairs`
/// it is `PairsOn<B>`. A field is an array of `ndarray` with elements of f32, f64, i32 or u8, another batch, or a `Vec`, an
/// `Option` or a tuple of those; `#[batch(skip)]` keeps a field of any type on the host. The first field that is not skipped tells
/// the number of samples.
#[proc_macro_derive(Batch, attributes(batch))]
pub fn derive_batch(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    batch::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Lets other crates use the machine code of a generic function, or of the functions of an `impl` block or a trait, instead of compiling it
/// again: they are marked `#[inline(never)]`, and the compiler looks for such instances in the crates below before it makes its
/// own. Functions with type parameters of their own, and those with an `inline` attribute, are left as they are.
///
/// It pays for functions that run for much longer than a call takes. The instances come from a crate that names the functions for a
/// concrete type, such as `kiln-instances`.
#[proc_macro_attribute]
pub fn compiled_once(_options: TokenStream, item: TokenStream) -> TokenStream {
    compiled_once::mark(item.into()).into()
}
