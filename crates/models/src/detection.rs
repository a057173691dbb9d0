//! The task of networks that find objects: a class and a box for each.

use crate::task::{self, Phase, Purpose, Views};
use crate::{Card, Form, Input, OutputKind, Recipe, Shown};
use kiln_core::{Backend, DType, Result};
use kiln_data::{Batch, DataError, Dataset, Loader, LoaderOptions, Object, Sample};
use kiln_nn::detection::{Boxes, Detections};
use kiln_nn::{Indices, Module, Tensor, no_grad};
use kiln_train::{MeanAveragePrecision, Output};
use ndarray::{Array2, Array3, ArrayD, IxDyn};
use std::sync::Arc;

/// The measured values that are shown: precisions as of COCO, over overlaps from 0.5 to 0.95, and over 0.5.
pub(crate) const VALUES: &[Shown] = &[
    Shown::new("loss", Form::Number),
    Shown::labelled("map", "mAP", Form::Percent),
    Shown::labelled("map_50", "mAP50", Form::Percent),
];

/// The best weights have the largest mean average precision.
pub(crate) const MONITOR: (&str, bool) = ("map", true);

/// The card of a network that finds objects of so many classes in images of this shape.
pub(crate) const fn card(
    description: &'static str,
    shape: &'static [usize; 3],
    classes: usize,
    parameters: usize,
    recipe: Recipe,
) -> Card {
    Card {
        description,
        input: Input::objects(shape),
        output: OutputKind::Boxes(classes),
        values: VALUES,
        monitor: MONITOR,
        parameters,
        recipe,
    }
}

/// Objects of an image are padded to a multiple of this many, so that there are few different shapes.
const PADDED: usize = 8;

/// A batch of images with objects.
#[derive(Batch)]
pub(crate) struct Pictures {
    /// `[N, H, W, C]`.
    pub(crate) images: ArrayD<f32>,
    /// The left, upper, right and lower edge of each box, `[N, G, 4]`.
    pub(crate) boxes: Array3<f32>,
    /// Classes `[N, G]`, 0 where there is no object.
    pub(crate) classes: Array2<i32>,
    /// 1 for an object that is to be found, `[N, G]`.
    pub(crate) exists: Array2<u8>,
    /// 1 for an object that need not be found, `[N, G]`.
    pub(crate) crowds: Array2<i32>,
}

impl Pictures {
    fn collate(samples: &[Sample]) -> kiln_data::Result<Pictures> {
        let first = samples.first().map(|sample| sample.shape).unwrap_or_default();
        let mut pixels = Vec::with_capacity(samples.len() * first.size());
        for sample in samples {
            if sample.shape != first || sample.input.len() != first.size() {
                let expected = format!("{first}, as the batch's first sample");
                return Err(DataError::Shape {
                    what: "batch",
                    found: sample.shape.to_string(),
                    expected,
                });
            }
            pixels.extend_from_slice(&sample.input);
        }
        let objects: Vec<Vec<Object>> = samples
            .iter()
            .map(|sample| Object::of_targets(&sample.targets).collect())
            .collect();
        let most = objects.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let (n, width) = (samples.len(), most.next_multiple_of(PADDED));
        let object = |image: usize, at: usize| objects[image].get(at);
        let shape: Vec<usize> = std::iter::once(n).chain(first.iter().copied()).collect();
        let uneven = |_| DataError::Layout {
            found: "images of other sizes than they say".to_string(),
            expected: first.to_string(),
        };
        Ok(Pictures {
            images: ArrayD::from_shape_vec(IxDyn(&shape), pixels).map_err(uneven)?,
            boxes: Array3::from_shape_fn((n, width, 4), |(image, at, edge)| {
                object(image, at).map_or(0.0, |object| object.bounds[edge])
            }),
            classes: Array2::from_shape_fn((n, width), |(image, at)| {
                object(image, at).map_or(0, |object| object.class as i32)
            }),
            exists: Array2::from_shape_fn((n, width), |(image, at)| {
                object(image, at).map_or(0, |object| u8::from(!object.crowd))
            }),
            crowds: Array2::from_shape_fn((n, width), |(image, at)| {
                object(image, at).map_or(0, |object| i32::from(object.crowd))
            }),
        })
    }
}

impl<B: Backend> PicturesOn<B> {
    /// The objects of each image that are to be found, on the host.
    ///
    /// # Errors
    /// [`Error::NotCapturable`](kiln_core::Error::NotCapturable) inside of a captured step.
    pub(crate) fn targets(&self) -> Result<Vec<Boxes>> {
        let (edges, classes) = (self.boxes.to_vec::<f32>()?, self.classes.to_vec::<i32>()?);
        let exists = self.exists.to_vec::<u8>()?;
        let width = self.classes.shape().dims().last().copied().unwrap_or(1).max(1);
        let of_image = |image: usize| {
            let mut boxes = Boxes::default();
            for at in (image * width..(image + 1) * width).filter(|&at| exists[at] == 1) {
                boxes.xyxy.push(std::array::from_fn(|edge| edges[4 * at + edge]));
                boxes.classes.push(classes[at]);
            }
            boxes
        };
        Ok((0..classes.len() / width).map(of_image).collect())
    }

    /// Classes `[N, G]`, −1 where there is no object, as metrics read them.
    fn true_classes(&self) -> Result<Indices<B>> {
        let (mut classes, exists) = (self.classes.to_vec::<i32>()?, self.exists.to_vec::<u8>()?);
        let crowds = self.crowds.to_vec::<i32>()?;
        for (class, (exists, crowd)) in classes.iter_mut().zip(exists.into_iter().zip(crowds)) {
            if exists == 0 && crowd == 0 {
                *class = -1;
            }
        }
        Indices::from_slice(self.classes.backend(), &classes, self.classes.shape().dims())
    }
}

/// The loss of a detector and its terms by name.
pub(crate) struct Losses<B: Backend> {
    pub(crate) total: Tensor<B>,
    pub(crate) parts: Vec<(&'static str, Tensor<B>)>,
}

impl<B: Backend> From<Losses<B>> for Output<B> {
    fn from(losses: Losses<B>) -> Self {
        let output = Output::new(losses.total);
        losses
            .parts
            .iter()
            .fold(output, |output, (name, part)| output.part(*name, part))
    }
}

/// A network that finds objects in images `[N, H, W, C]`.
pub(crate) trait Detector<B: Backend>: Module<B> {
    /// The loss for images whose objects are known.
    ///
    /// # Errors
    /// Images that the network does not take, classes that it has not.
    fn losses(&self, batch: &PicturesOn<B>) -> Result<Losses<B>>;

    /// The objects of each image.
    ///
    /// # Errors
    /// Images that the network does not take.
    fn detect(&self, images: &Tensor<B>) -> Result<Vec<Detections>>;

    /// The first results of the network for images, before boxes are decoded and suppressed: the forward pass that profiles measure.
    ///
    /// # Errors
    /// Images that the network does not take.
    fn raw(&self, images: &Tensor<B>) -> Result<Tensor<B>>;
}

/// A network that is trained on images with objects.
pub(crate) type Task<B> = task::Task<B, Box<dyn Detector<B>>, Pictures>;

#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn step<B: Backend>(net: &Box<dyn Detector<B>>, batch: &PicturesOn<B>) -> Result<Output<B>> {
    Ok(net.losses(batch)?.into())
}

/// The loss, and the objects that are found beside those that are there.
#[allow(clippy::borrowed_box, reason = "the network is a box")]
fn measure<B: Backend>(net: &Box<dyn Detector<B>>, batch: &PicturesOn<B>) -> Result<Output<B>> {
    let output: Output<B> = net.losses(batch)?.into();
    let found = no_grad(|| net.detect(&batch.images))?;
    let (backend, n) = (batch.images.backend(), found.len());
    let width = found.iter().map(Detections::len).max().unwrap_or(0).max(1);
    let (mut boxes, mut scores, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    for found in &found {
        for at in 0..width {
            boxes.extend(found.boxes.get(at).copied().unwrap_or_default());
            scores.push(found.scores.get(at).copied().unwrap_or(0.0));
            classes.push(found.classes.get(at).copied().unwrap_or(-1));
        }
    }
    Ok(output
        .with("boxes", Tensor::from_slice(backend, &boxes, &[n, width, 4])?)
        .with("box_scores", Tensor::from_slice(backend, &scores, &[n, width])?)
        .with("box_classes", Indices::from_slice(backend, &classes, &[n, width])?)
        .with("true_boxes", batch.boxes.to_dtype(DType::F32)?)
        .with("true_classes", batch.true_classes()?)
        .with("true_crowds", batch.crowds.clone()))
}

fn loader(
    dataset: Arc<dyn Dataset<Sample = Sample>>,
    options: LoaderOptions,
    _: Purpose,
) -> kiln_data::Result<Loader<Sample, Pictures>> {
    Loader::with_collate(dataset, Pictures::collate, options)
}

/// The network with its task.
pub(crate) fn task<B: Backend>(net: impl Detector<B> + 'static) -> Task<B> {
    task::Task {
        net: Box::new(net),
        prepare: None,
        loader,
        phases: vec![Phase {
            name: "",
            step: step::<B>,
            trains: |_| true,
        }],
        measure: measure::<B>,
        forward: |net, batch| net.raw(&batch.images),
        metrics: |_| Ok(vec![Box::new(MeanAveragePrecision::corners())]),
        views: Views {
            detect: Some(|net, images| no_grad(|| net.detect(images))),
            ..Views::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::Shape;
    use kiln_cpu::Cpu;

    fn sample(objects: &[Object]) -> Sample {
        let mut sample = Sample::default();
        let shape = Shape::new(&[2, 3, 1]).unwrap();
        sample.fill(shape, (0..6).map(|i| i as f32)).unwrap();
        Object::write_targets(objects.iter().copied(), &mut sample.targets);
        sample
    }

    #[test]
    fn objects_are_padded_and_crowds_are_not_learned() {
        let object = |class: u32, crowd: bool| Object {
            class,
            bounds: [0.0, 1.0, 2.0, 2.0],
            crowd,
        };
        let samples = [sample(&[object(3, false), object(1, true)]), sample(&[])];
        let batch = Pictures::collate(&samples).unwrap();
        assert_eq!(batch.images.shape(), [2, 2, 3, 1]);
        assert_eq!((batch.boxes.dim(), batch.classes.dim()), ((2, 8, 4), (2, 8)));
        assert_eq!((batch.exists.sum(), batch.crowds.sum()), (1, 1));
        let batch = batch.to_device(&Cpu::new()).unwrap();
        let classes = batch.true_classes().unwrap().to_vec::<i32>().unwrap();
        assert_eq!((&classes[..3], classes[8]), (&[3, 1, -1][..], -1));
        let targets = batch.targets().unwrap();
        assert_eq!(targets[0].xyxy, [[0.0, 1.0, 2.0, 2.0]]);
        assert_eq!((&targets[0].classes[..], targets[1].len()), (&[3][..], 0));
        let mut other = sample(&[]);
        other.shape = Shape::new(&[3, 2, 1]).unwrap();
        assert!(Pictures::collate(&[sample(&[]), other]).is_err());
    }
}
