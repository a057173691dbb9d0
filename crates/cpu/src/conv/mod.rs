//! Convolutions by direct sums.
//!
//! ```text
//! plan            the algorithms, what each supports and costs, and the choice
//! direct          products over the windows of images, which micro-kernels read where they lie
//! packed_columns  the same with several output columns, or those of the window, side by side in a vector
//! planar          channel by channel, along planes of an image
//! scatter         the data gradient, window by window
//! depthwise       each channel by itself
//! product         products of matrices: windows of one position each, or one that is the whole image
//! halves          bf16 and f16: products of words, which packing gathers from the windows
//! naive           the definition, which tests compare all of these with
//! ```

mod axis;
pub(crate) mod depthwise;
pub(crate) mod direct;
pub(crate) mod geometry;
pub(crate) mod halves;
#[cfg(test)]
pub(crate) mod naive;
pub(crate) mod operands;
pub(crate) mod packed_columns;
pub(crate) mod pad_image;
mod pad_line;
pub(crate) mod plan;
pub(crate) mod planar;
pub(crate) mod product;
pub(crate) mod scatter;
mod segments;
#[cfg(test)]
mod tests;
mod windows;

pub(crate) use geometry::Geometry;
pub(crate) use operands::Operands;
