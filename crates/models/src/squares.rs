//! Features of images that need no network: the means of squares of pixels, by which made images are compared with real ones.

use kiln_core::{Backend, Error, Result};
use kiln_data::{Dataset, Sample};
use kiln_nn::layers::AvgPool2d;
use kiln_nn::{Layer, Tensor};
use kiln_train::{FeatureStatistics, FrechetDistance, Metric};

/// The squares of a row: eight, or seven where the side has no eighth.
fn squares(side: usize) -> usize {
    if side.is_multiple_of(8) { 8 } else { 7 }
}

/// The features `[N, F]` of images `[N, H, W, C]` with values from 0 to 1.
pub(crate) fn of_images<B: Backend>(images: &Tensor<B>) -> Result<Tensor<B>> {
    let side = images.shape()[1];
    let means = AvgPool2d::new((side / squares(side)).max(1)).forward(images)?;
    means.flatten(1, -1)
}

/// The Fréchet distance of made images, which a measurement hands out as `features`, from the samples held back: images with pixels
/// from 0 to 255.
pub(crate) fn metrics<B: Backend>(
    held_back: &dyn Dataset<Sample = Sample>,
) -> kiln_train::Result<Vec<Box<dyn Metric<B>>>> {
    if held_back.len() < 2 {
        let expected = "at least 2, as the distance is between distributions: add images";
        return Err(Error::invalid("frechet", "images held back", held_back.len(), expected).into());
    }
    let mut statistics: Option<FeatureStatistics> = None;
    let mut sample = Sample::default();
    for index in 0..held_back.len() {
        held_back.read(index, &mut sample)?;
        let means = of_sample(&sample);
        statistics
            .get_or_insert_with(|| FeatureStatistics::new(means.len()))
            .add(&means)?;
    }
    let statistics = statistics.unwrap_or_else(|| FeatureStatistics::new(1));
    Ok(vec![Box::new(FrechetDistance::new(statistics).named("frechet"))])
}

/// The features of a sample, as [`of_images`] computes them.
fn of_sample(sample: &Sample) -> Vec<f64> {
    let [height, width, channels] = match *sample.shape.dims() {
        [height, width, channels] => [height, width, channels],
        _ => [0; 3],
    };
    let side = (height / squares(height)).max(1);
    let (rows, columns) = (height / side, width / side);
    let mut means = vec![0.0; rows * columns * channels];
    for (i, &value) in sample.input.iter().enumerate() {
        let (y, x) = (i / channels / width / side, i / channels % width / side);
        if y < rows && x < columns {
            means[(y * columns + x) * channels + i % channels] += f64::from(value) / 255.0;
        }
    }
    means.iter_mut().for_each(|sum| *sum /= (side * side) as f64);
    means
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::Shape;
    use kiln_cpu::Cpu;
    use kiln_data::Synthetic;

    #[test]
    fn a_sample_and_an_image_have_the_same_features() {
        for shape in [[28, 28, 1], [32, 32, 3], [64, 64, 1], [7, 7, 2], [4, 4, 1]] {
            let count: usize = shape.iter().product();
            let mut sample = Sample::default();
            let pixels = (0..count).map(|i| (i * 37 % 256) as f32);
            sample.fill(Shape::new(&shape).unwrap(), pixels.clone()).unwrap();
            let image: Vec<f32> = pixels.map(|p| p / 255.0).collect();
            let image = Tensor::from_slice(&Cpu::new(), &image, &[1, shape[0], shape[1], shape[2]]).unwrap();
            let (a, b) = (of_sample(&sample), of_images(&image).unwrap().to_f64().unwrap());
            assert_eq!(a.len(), b.len(), "{shape:?}");
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{shape:?}");
        }
    }

    #[test]
    fn one_image_held_back_is_too_few() {
        let images = |count| Synthetic::images(count, &[28, 28, 1], 10, 0).unwrap();
        let error = metrics::<Cpu>(&images(1)).err().unwrap().to_string();
        assert!(error.contains("images held back = 1, expected at least 2"), "{error}");
        assert!(metrics::<Cpu>(&images(2)).is_ok());
    }
}
