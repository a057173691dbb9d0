//! Windows of images of bytes. Values are moved as bits, so this is compiled once per element size, not per dtype.

use crate::parallel::chunks_mut;
use crate::{Cpu, CpuBuffer};
use bytemuck::cast_slice;
use kiln_core::ops::{CropImagesParams, ImageOps};
use kiln_core::{Buffer, Error, Result, checks};

/// The values of a channel: one for each byte, and one for what lies outside of the image.
type Values<T> = [T; CropImagesParams::VALUES];

impl ImageOps for Cpu {
    fn crop_images(
        &self,
        p: &CropImagesParams,
        x: &CpuBuffer,
        windows: &CpuBuffer,
        values: &CpuBuffer,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        checks::crop_images(self, p, x, windows, values, y)?;
        let (windows, _) = windows.as_slice::<i32>().as_chunks::<4>();
        // Checked before anything is written.
        for (i, &[index, ..]) in windows.iter().enumerate() {
            if index < 0 || index as u64 >= p.images {
                return Err(Error::IndexOutOfRange {
                    op: "crop_images",
                    index: i64::from(index),
                    position: 4 * i,
                    size: p.images as usize,
                });
            }
        }
        match y.dtype().size() {
            2 => crop::<u16>(p, x.bytes(), windows, values.bytes(), y.bytes_mut()),
            4 => crop::<u32>(p, x.bytes(), windows, values.bytes(), y.bytes_mut()),
            _ => crop::<u64>(p, x.bytes(), windows, values.bytes(), y.bytes_mut()),
        }
        Ok(())
    }
}

fn crop<T: bytemuck::Pod + Send + Sync>(
    p: &CropImagesParams,
    x: &[u8],
    windows: &[[i32; 4]],
    values: &[u8],
    y: &mut [u8],
) {
    let (values, _) = cast_slice::<u8, T>(values).as_chunks::<{ CropImagesParams::VALUES }>();
    let channels = p.channels as usize;
    let width = p.columns as usize * channels;
    // A byte is read, its value looked up and written.
    chunks_mut(bytemuck::cast_slice_mut::<u8, T>(y), width, 4, |at, y| {
        for (i, y) in y.chunks_mut(width).enumerate() {
            let row = (at / width + i) as u64;
            let line = Line::of(p, x, &windows[(row / p.rows) as usize], row % p.rows);
            match values {
                [grey] => line.read(&[grey], y),
                [r, g, b] => line.read(&[r, g, b], y),
                _ => line.read_channels(values, y),
            }
        }
    });
}

/// A row of a window.
struct Line<'x> {
    /// The pixels of the row that lie in the image.
    pixels: &'x [u8],
    /// The number of columns before them, and how many they are; the columns behind them lie outside of the image too.
    before: usize,
    columns: usize,
    mirrored: bool,
}

impl<'x> Line<'x> {
    fn of(p: &CropImagesParams, x: &'x [u8], &[index, top, left, mirrored]: &[i32; 4], row: u64) -> Self {
        let (height, width, channels) = (p.height as i64, p.width as i64, p.channels as usize);
        let (top, left, columns) = (i64::from(top), i64::from(left), p.columns as i64);
        let source = top + row as i64;
        let inside = (0..height).contains(&source);
        // The columns of the window that show columns of the image.
        let from = (-left).clamp(0, columns);
        let to = if inside {
            (width - left).clamp(from, columns)
        } else {
            from
        };
        let first = (i64::from(index) * height + source) * width + left + from;
        let pixels = match (to - from) as usize * channels {
            0 => &[],
            bytes => &x[first as usize * channels..][..bytes],
        };
        let mirrored = mirrored != 0;
        Line {
            pixels,
            before: if mirrored { columns - to } else { from } as usize,
            columns: (to - from) as usize,
            mirrored,
        }
    }

    /// Writes the values of the pixels of `C` channels.
    fn read<T: Copy, const C: usize>(&self, values: &[&Values<T>; C], y: &mut [T]) {
        let outside = values.map(|v| v[CropImagesParams::VALUES - 1]);
        let (y, _) = y.as_chunks_mut::<C>();
        let (before, y) = y.split_at_mut(self.before);
        let (inside, behind) = y.split_at_mut(self.columns);
        before.fill(outside);
        behind.fill(outside);
        let (pixels, _) = self.pixels.as_chunks::<C>();
        let value = |pixel: &[u8; C]| std::array::from_fn(|c| values[c][usize::from(pixel[c])]);
        if self.mirrored {
            inside
                .iter_mut()
                .zip(pixels.iter().rev())
                .for_each(|(y, x)| *y = value(x));
        } else {
            inside.iter_mut().zip(pixels).for_each(|(y, x)| *y = value(x));
        }
    }

    /// As [`read`](Self::read), for any number of channels.
    fn read_channels<T: Copy>(&self, values: &[Values<T>], y: &mut [T]) {
        let channels = values.len();
        for (column, y) in y.chunks_mut(channels).enumerate() {
            let at = column.wrapping_sub(self.before);
            if at >= self.columns {
                y.iter_mut()
                    .zip(values)
                    .for_each(|(y, v)| *y = v[CropImagesParams::VALUES - 1]);
                continue;
            }
            let at = if self.mirrored { self.columns - 1 - at } else { at };
            let pixel = &self.pixels[at * channels..][..channels];
            y.iter_mut()
                .zip(values)
                .zip(pixel)
                .for_each(|((y, v), &x)| *y = v[usize::from(x)]);
        }
    }
}
