//! Windows of images of bytes.

use crate::{Array, Case, Reference, Rounding, check, refused, shapes};
use kiln_core::ops::CropImagesParams;
use kiln_core::philox::Key;
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Indices, Tensor};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct CropImages {
    values: Array,
    /// Shape and bytes.
    images: ([usize; 4], Vec<u8>),
    windows: Vec<[i32; 4]>,
    size: (usize, usize),
}

impl CropImages {
    fn images<B: Backend>(&self, backend: &B) -> Result<Indices<B>> {
        Indices::from_slice(backend, &self.images.1, &self.images.0)
    }

    fn windows<B: Backend>(&self, backend: &B) -> Result<Indices<B>> {
        Indices::from_slice(backend, self.windows.as_flattened(), &[self.windows.len(), 4])
    }

    /// The byte that an element of the result shows; `None` outside of the image.
    fn byte(&self, at: &[usize]) -> Option<usize> {
        let ([_, h, w, c], [index, top, left, mirrored]) = (self.images.0, self.windows[at[0]]);
        let column = if mirrored == 0 { at[2] } else { self.size.1 - 1 - at[2] };
        let inside = |start: i32, step: usize, end: usize| {
            usize::try_from(i64::from(start) + step as i64)
                .ok()
                .filter(|&i| i < end)
        };
        let (row, column) = (inside(top, at[1], h)?, inside(left, column, w)?);
        Some(usize::from(
            self.images.1[((index as usize * h + row) * w + column) * c + at[3]],
        ))
    }
}

impl Case for CropImages {
    fn inputs(&self) -> Vec<Array> {
        vec![self.values.clone()]
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        self.images(backend)?
            .crop_images(&self.windows(backend)?, self.size, &x[0])
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let shape = [self.windows.len(), self.size.0, self.size.1, self.images.0[3]];
        Array::from_fn(&shape, |at| x[0].at(&[at[3], self.byte(at).unwrap_or(256)]))
    }

    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::exact(want)
    }
}

/// Windows that lie in the image, reach out of it on every side, and lie outside of it; a few at the limits of i32.
fn cases() -> impl Strategy<Value = CropImages> {
    let images = [1usize..4, 1usize..9, 1usize..9, 1usize..6];
    let drawn = (images, (1usize..9, 1usize..18), 0usize..5, any::<u64>());
    drawn.prop_flat_map(|([n, h, w, c], size, batch, seed)| {
        let key = Key::new(seed, 0, 0);
        let below = |i: usize, bound: usize| key.below(i as u64, bound as u32) as i32;
        let images = (0..n * h * w * c)
            .map(|i| below(i + 4096, 256) as u8)
            .collect::<Vec<u8>>();
        let start = |i: usize, side: usize, window: usize| match below(3 * i, 20) {
            0 => i32::MIN,
            1 => i32::MAX,
            _ => below(3 * i + 1, side + window + 2) - window as i32 - 1,
        };
        let windows = (0..batch).map(|i| {
            [
                below(9 * i, n),
                start(4 * i + 1, h, size.0),
                start(4 * i + 2, w, size.1),
                below(9 * i + 7, 3),
            ]
        });
        let windows = windows.collect::<Vec<_>>();
        shapes::values(&[c, CropImagesParams::VALUES], -2.0, 2.0).prop_map(move |values| CropImages {
            values,
            images: ([n, h, w, c], images.clone()),
            windows: windows.clone(),
            size,
        })
    })
}

/// Values and gradients.
pub fn crop_images<B: Backend>(backend: &B) {
    check(backend, cases());
}

/// The same bits as what other ops compose, and the same again where they overwrite a batch.
pub fn composed<B: Backend>(backend: &B) {
    crate::run::each(24, cases(), |case| {
        let run = || -> Result<()> {
            let values = Tensor::from_f64(backend, &case.values.data, &case.values.shape, DType::F32)?;
            let there = Tensor::from_f64(&Reference, &case.values.data, &case.values.shape, DType::F32)?;
            let y = case.call(backend, std::slice::from_ref(&values))?;
            let (got, want) = (y.to_vec::<f32>()?, case.call(&Reference, &[there])?.to_vec::<f32>()?);
            assert_eq!(got, want, "{case:?}");
            let mut batch = Tensor::zeros(backend, y.shape(), DType::F32)?;
            batch.write_images(&case.images(backend)?, &case.windows(backend)?, &values)?;
            assert_eq!(batch.to_vec::<f32>()?, want, "{case:?}, in place");
            Ok(())
        };
        run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
    });
}

/// Shapes, dtypes and indices that do not fit are typed errors.
pub fn refused<B: Backend>(backend: &B) {
    bad_input(backend).unwrap_or_else(|e| panic!("{e}"));
}

fn bad_input<B: Backend>(backend: &B) -> Result<()> {
    let images = Indices::full(backend, &[2, 3, 3, 2], 7u8)?;
    let windows = |rows: &[i32]| Indices::from_slice(backend, rows, &[rows.len() / 4, 4]);
    let one = windows(&[0, 0, 0, 0])?;
    let values = Tensor::ones(backend, &[2, 257], DType::F32)?;
    refused!(
        images.reshape(&[6, 3, 2])?.crop_images(&one, (2, 2), &values),
        Error::Rank { rank: 3, .. }
    );
    refused!(
        images.crop_images(&one.reshape(&[4])?, (2, 2), &values),
        Error::Rank { rank: 1, .. }
    );
    refused!(
        images.crop_images(&one.reshape(&[2, 2])?, (2, 2), &values),
        Error::ShapeMismatch { .. }
    );
    refused!(
        images.crop_images(&one, (0, 2), &values),
        Error::InvalidArgument { argument: "size", .. }
    );
    refused!(
        images.crop_images(&one, (1 << 30, 2), &values),
        Error::InvalidArgument { argument: "size", .. }
    );
    refused!(
        images.crop_images(&one, (usize::MAX, 2), &values),
        Error::InvalidArgument { argument: "size", .. }
    );
    refused!(
        images.narrow(1, 0, 0)?.crop_images(&one, (2, 2), &values),
        Error::InvalidArgument { argument: "images", .. }
    );
    refused!(
        images.crop_images(&one, (2, 2), &values.narrow(1, 0, 256)?),
        Error::ShapeMismatch { .. }
    );
    refused!(
        images.crop_images(&one, (2, 2), &values.narrow(0, 0, 1)?),
        Error::ShapeMismatch { .. }
    );
    refused!(
        images.to_i32()?.crop_images(&one, (2, 2), &values),
        Error::UnsupportedDType { .. }
    );
    refused!(
        images.crop_images(&one.to_mask()?, (2, 2), &values),
        Error::UnsupportedDType { .. }
    );
    let mut batch = Tensor::zeros(backend, &[1, 2, 2, 2], DType::F32)?;
    refused!(
        batch.write_images(&images, &windows(&[0; 8])?, &values),
        Error::ShapeMismatch { .. }
    );
    refused!(
        batch.write_images(&images, &one, &values.to_dtype(DType::BF16)?),
        Error::DTypeMismatch { .. }
    );
    refused!(
        batch.reshape(&[8])?.write_images(&images, &one, &values),
        Error::Rank { rank: 1, .. }
    );
    for index in [-1, 2, i32::MIN, i32::MAX] {
        let windows = windows(&[1, 0, 0, 0, index, 0, 0, 0])?;
        // A device may report it only when it is waited for.
        let got = images
            .crop_images(&windows, (2, 2), &values)
            .and_then(|y| y.to_vec::<f32>());
        match got {
            Err(Error::IndexOutOfRange {
                op: "crop_images",
                index: found,
                position: 4,
                size: 2,
            }) if found == i64::from(index) => {}
            other => panic!("index {index}: {other:?}"),
        }
    }
    Ok(())
}
