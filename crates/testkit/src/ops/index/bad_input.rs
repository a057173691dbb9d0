//! Arguments that shape and index ops refuse.

use crate::refused;
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::ops::index::Pad;
use kiln_nn::{Ellipsis, Indices, Step, Tensor};

/// Sizes that do not fit, axes and indices out of range, steps of 0, and too much padding are typed errors.
pub fn bad_input<B: Backend>(backend: &B) {
    shapes(backend).unwrap_or_else(|e| panic!("{e}"));
    parts(backend).unwrap_or_else(|e| panic!("{e}"));
    joins(backend).unwrap_or_else(|e| panic!("{e}"));
    indices(backend).unwrap_or_else(|e| panic!("{e}"));
}

fn ones<B: Backend>(backend: &B, shape: &[usize]) -> Result<Tensor<B>> {
    Tensor::ones(backend, shape, DType::F32)
}

fn shapes<B: Backend>(backend: &B) -> Result<()> {
    let x = ones(backend, &[2, 3])?;
    refused!(x.reshape(&[-1, -1]), Error::InvalidArgument { argument: "shape", .. });
    refused!(x.reshape(&[-2, -3]), Error::InvalidArgument { .. });
    refused!(x.reshape(&[4, -1]), Error::InvalidArgument { .. });
    refused!(x.reshape(&[0, -1]), Error::InvalidArgument { .. });
    refused!(x.reshape(&[7]), Error::ShapeMismatch { .. });
    refused!(x.reshape(&[usize::MAX, 6]), Error::TooLarge { .. });
    refused!(x.reshape(&[isize::MAX, isize::MAX]), Error::TooLarge { .. });
    refused!(x.reshape(&[2, 3, 1, 1, 1, 1, 1, 1, 1]), Error::Rank { rank: 9, .. });
    refused!(ones(backend, &[0])?.reshape(&[-1, 0]), Error::InvalidArgument { .. });
    refused!(x.flatten(1, 0), Error::InvalidArgument { argument: "start", .. });
    refused!(x.flatten(0, 2), Error::Axis { axis: 2, .. });
    refused!(x.squeeze(0), Error::InvalidArgument { argument: "axis", .. });
    refused!(x.squeeze(-3), Error::Axis { .. });
    refused!(x.unsqueeze(3), Error::Axis { .. });
    refused!(x.unsqueeze(-4), Error::Axis { .. });
    refused!(x.unsqueeze(isize::MIN), Error::Axis { .. });
    refused!(ones(backend, &[1; 8])?.unsqueeze(0), Error::Rank { rank: 9, .. });
    refused!(x.permute(&[0]), Error::InvalidArgument { argument: "axes", .. });
    refused!(x.permute(&[0, 0]), Error::InvalidArgument { .. });
    refused!(x.permute(&[0, -2]), Error::InvalidArgument { .. });
    refused!(x.permute(&[0, 2]), Error::Axis { .. });
    refused!(x.transpose(0, 2), Error::Axis { .. });
    refused!(x.broadcast_to(&[3]), Error::ShapeMismatch { .. });
    refused!(x.broadcast_to(&[2, 1]), Error::ShapeMismatch { .. });
    refused!(x.broadcast_to(&[1 << 62, 2, 3]), Error::TooLarge { .. });
    refused!(x.broadcast_to(&[1, 1, 1, 1, 1, 1, 1, 2, 3]), Error::Rank { .. });
    refused!(x.expand(&[-1]), Error::InvalidArgument { .. });
    refused!(x.expand(&[-1, 2, 3]), Error::InvalidArgument { .. });
    refused!(x.expand(&[2, -2]), Error::InvalidArgument { .. });
    Ok(())
}

fn parts<B: Backend>(backend: &B) -> Result<()> {
    let x = ones(backend, &[2, 3])?;
    refused!(x.narrow(1, 2, 2), Error::InvalidArgument { argument: "range", .. });
    refused!(x.narrow(1, 4, 0), Error::InvalidArgument { .. });
    refused!(x.narrow(1, usize::MAX, 2), Error::InvalidArgument { .. });
    refused!(x.narrow(2, 0, 1), Error::Axis { .. });
    refused!(
        x.slice(0, None, None, 0),
        Error::InvalidArgument { argument: "step", .. }
    );
    refused!(x.slice(-3, None, None, 1), Error::Axis { axis: -3, .. });
    refused!(x.flip(&[0, 0]), Error::InvalidArgument { .. });
    refused!(x.flip(&[2]), Error::Axis { .. });
    refused!(x.split(0, 0), Error::InvalidArgument { argument: "size", .. });
    refused!(x.split(1, 2), Error::Axis { .. });
    refused!(
        x.split_sizes(&[1, 1], 1),
        Error::InvalidArgument { argument: "sizes", .. }
    );
    refused!(x.split_sizes(&[usize::MAX, 4], 1), Error::InvalidArgument { .. });
    refused!(x.chunk(0, 0), Error::InvalidArgument { argument: "chunks", .. });
    refused!(x.unbind(2), Error::Axis { .. });
    refused!(ones(backend, &[])?.unbind(0), Error::Axis { .. });
    refused!(ones(backend, &[])?.narrow(0, 0, 0), Error::Axis { .. });
    Ok(())
}

fn joins<B: Backend>(backend: &B) -> Result<()> {
    let x = ones(backend, &[2, 3])?;
    let y = ones(backend, &[2, 4])?;
    refused!(
        Tensor::<B>::concat(&[], 0),
        Error::InvalidArgument {
            argument: "tensors",
            ..
        }
    );
    refused!(Tensor::<B>::stack(&[], 0), Error::InvalidArgument { .. });
    refused!(Tensor::concat(&[&x, &y], 0), Error::ShapeMismatch { .. });
    refused!(Tensor::concat(&[&x, &y], 2), Error::Axis { .. });
    refused!(
        Tensor::concat(&[&x, &ones(backend, &[2])?], 0),
        Error::ShapeMismatch { .. }
    );
    refused!(Tensor::concat(&[&ones(backend, &[])?], 0), Error::Axis { .. });
    refused!(Tensor::stack(&[&x, &y], 1), Error::ShapeMismatch { .. });
    let huge = Tensor::ones(backend, &[0, 1 << 59], DType::F32)?;
    refused!(Tensor::concat(&[&huge; 3], 1), Error::TooLarge { .. });
    if backend.supports_dtype(DType::F64) {
        let double = Tensor::ones(backend, &[2, 3], DType::F64)?;
        refused!(Tensor::concat(&[&x, &double], 0), Error::DTypeMismatch { .. });
    }
    for mode in [Pad::Constant(0.0), Pad::Reflect, Pad::Replicate, Pad::Circular] {
        refused!(
            x.pad(&[(1, 1)], mode),
            Error::InvalidArgument {
                argument: "padding",
                ..
            }
        );
        refused!(x.pad(&[(-2, -1), (0, 0)], mode), Error::InvalidArgument { .. });
        refused!(x.pad(&[(isize::MIN, 0), (0, 0)], mode), Error::InvalidArgument { .. });
    }
    for mode in [Pad::Constant(0.0), Pad::Replicate] {
        refused!(x.pad(&[(isize::MAX, isize::MAX), (0, 0)], mode), Error::TooLarge { .. });
    }
    refused!(x.pad(&[(0, 0), (3, 0)], Pad::Reflect), Error::InvalidArgument { .. });
    refused!(x.pad(&[(0, 2), (0, 0)], Pad::Reflect), Error::InvalidArgument { .. });
    let empty = ones(backend, &[0])?;
    refused!(empty.pad(&[(1, 0)], Pad::Reflect), Error::InvalidArgument { .. });
    refused!(empty.pad(&[(1, 0)], Pad::Replicate), Error::InvalidArgument { .. });
    refused!(empty.pad(&[(1, 0)], Pad::Circular), Error::InvalidArgument { .. });
    refused!(x.pad(&[(0, 0), (0, 4)], Pad::Circular), Error::InvalidArgument { .. });
    refused!(empty.tril(0), Error::Axis { .. });
    refused!(empty.triu(0), Error::Axis { .. });
    let image = ones(backend, &[1, 2, 3, 4])?;
    refused!(x.pixel_shuffle(1), Error::Rank { .. });
    refused!(image.pixel_shuffle(0), Error::InvalidArgument { .. });
    refused!(image.pixel_shuffle(3), Error::InvalidArgument { .. });
    refused!(image.pixel_shuffle(usize::MAX), Error::InvalidArgument { .. });
    refused!(image.pixel_unshuffle(2), Error::InvalidArgument { .. });
    refused!(image.pixel_unshuffle(0), Error::InvalidArgument { .. });
    refused!(x.roll(1, 2), Error::Axis { .. });
    refused!(x.diagonal(0, 1, 2), Error::Axis { .. });
    refused!(x.diagonal(0, 1, -1), Error::InvalidArgument { .. });
    refused!(x.i((0, 0, 0)), Error::InvalidArgument { .. });
    refused!(x.i(2), Error::InvalidArgument { .. });
    refused!(x.i((.., -4)), Error::InvalidArgument { .. });
    refused!(x.i(Step(0..1, 0)), Error::InvalidArgument { .. });
    refused!(x.i(Step(1, 2)), Error::InvalidArgument { .. });
    refused!(x.i((Ellipsis, Ellipsis)), Error::InvalidArgument { .. });
    let entries = Indices::from_slice(backend, &[0, 3], &[2])?;
    refused!(x.i((.., &entries)), Error::IndexOutOfRange { .. });
    refused!(x.tile(&[usize::MAX, 1]), Error::TooLarge { .. });
    refused!(x.tile(&[1; 9]), Error::Rank { rank: 9, .. });
    Ok(())
}

fn indices<B: Backend>(backend: &B) -> Result<()> {
    let x = ones(backend, &[2, 3])?;
    for (bad, position) in [(3, 1), (-1, 0), (i32::MAX, 1), (i32::MIN, 0)] {
        let mut values = [0; 2];
        values[position] = bad;
        let flat = Indices::from_slice(backend, &values, &[2])?;
        let column = Indices::from_slice(backend, &values, &[2, 1])?;
        let source = ones(backend, &[2, 1])?;
        let calls = [
            x.gather(1, &column),
            x.scatter_add(1, &column, &source),
            x.index_select(1, &flat),
            x.index_add(1, &flat, &ones(backend, &[2, 2])?),
            ones(backend, &[3, 2])?.embedding(&flat, None),
            flat.one_hot(3, DType::F32),
        ];
        for call in calls {
            match call {
                Err(Error::IndexOutOfRange {
                    index,
                    position: p,
                    size: 3,
                    ..
                }) => {
                    assert_eq!((index, p), (i64::from(bad), position));
                }
                other => panic!("index {bad} gave {other:?}"),
            }
        }
    }
    let flat = Indices::from_slice(backend, &[0, 1], &[2])?;
    let mask = Indices::from_slice(backend, &[0u8, 1], &[2])?;
    refused!(x.gather(1, &flat), Error::ShapeMismatch { .. });
    let larger = Indices::from_slice(backend, &[0; 3], &[3, 1])?;
    refused!(x.gather(1, &larger), Error::ShapeMismatch { .. });
    refused!(
        x.scatter_add(1, &larger, &ones(backend, &[3, 1])?),
        Error::ShapeMismatch { .. }
    );
    refused!(x.gather(2, &flat), Error::Axis { .. });
    refused!(x.gather(0, &mask), Error::UnsupportedDType { dtype: DType::U8, .. });
    refused!(
        x.scatter_add(
            0,
            &Indices::from_slice(backend, &[0; 6], &[2, 3])?,
            &ones(backend, &[1, 3])?
        ),
        Error::ShapeMismatch { .. }
    );
    refused!(x.index_select(0, &flat.reshape(&[2, 1])?), Error::Rank { .. });
    refused!(x.index_select(0, &mask), Error::UnsupportedDType { .. });
    refused!(x.index_select(-3, &flat), Error::Axis { .. });
    refused!(
        x.index_add(0, &flat, &ones(backend, &[3, 3])?),
        Error::ShapeMismatch { .. }
    );
    refused!(ones(backend, &[3])?.embedding(&flat, None), Error::Rank { .. });
    refused!(
        ones(backend, &[0, 3])?.embedding(&flat, None),
        Error::IndexOutOfRange { size: 0, .. }
    );
    refused!(
        x.embedding(&flat, Some(2)),
        Error::InvalidArgument {
            argument: "padding_idx",
            ..
        }
    );
    refused!(
        flat.one_hot(0, DType::F32),
        Error::InvalidArgument {
            argument: "classes",
            ..
        }
    );
    refused!(flat.one_hot(2, DType::I32), Error::UnsupportedDType { .. });
    refused!(flat.one_hot(usize::MAX, DType::F32), Error::TooLarge { .. });
    refused!(mask.one_hot(2, DType::F32), Error::UnsupportedDType { .. });
    refused!(flat.narrow(0, 1, 2), Error::InvalidArgument { .. });
    Ok(())
}
