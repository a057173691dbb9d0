//! Windows of images of bytes.

use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{CropImagesParams, ImageOps};
use kiln_core::{Buffer, Result, checks};
use kiln_device::Arg;
use kiln_kernels::image as kernels;

impl ImageOps for Cuda {
    fn crop_images(
        &self,
        p: &CropImagesParams,
        x: &CudaBuffer,
        windows: &CudaBuffer,
        values: &CudaBuffer,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        checks::crop_images(self, p, x, windows, values, y)?;
        let size = y.dtype().size();
        // A pack lies in one line of a window.
        let lanes = 16 / size as u64;
        let each = if (p.columns * p.channels).is_multiple_of(lanes) {
            lanes
        } else {
            1
        };
        let kernel = match (size, each) {
            (2, 1) => &kernels::CROP_IMAGES_B16,
            (2, _) => &kernels::CROP_IMAGES_PACKS_B16,
            (_, 1) => &kernels::CROP_IMAGES_B32,
            (_, _) => &kernels::CROP_IMAGES_PACKS_B32,
        };
        let geometry = self.striding(y.len() as u64, each);
        let args = [
            Arg::value(p),
            x.arg(),
            windows.arg(),
            values.arg(),
            y.out(),
            self.fault(),
        ];
        self.launch(kernel, geometry, &args)
    }
}
