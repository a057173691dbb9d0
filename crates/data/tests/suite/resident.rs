//! Batches that are made on a device of bytes are those that the loader makes on the host.

use kiln_core::Shape;
use kiln_cpu::Cpu;
use kiln_data::{
    Arrays, Batch, ByteImage, ByteImages, Collate, Compose, Crop, DataError, Dataset, DeviceImages, Draw, Erase, Flip,
    Labelled, Labels, Loader, LoaderOptions, Normalise, Position, Sample, Stack, Subset, Synthetic, ToFloat, Transform,
};
use proptest::prelude::*;
use std::sync::Arc;

/// A transform by a few numbers, so that it can be made twice.
#[derive(Clone, Debug)]
struct Stages {
    /// Height, width, padding and the value of the padding, before (false) or after the values are scaled.
    crop: Option<(usize, usize, usize, f32, bool)>,
    /// A second crop by so many rows and columns.
    again: Option<(usize, usize)>,
    flips: [bool; 2],
    scaled: bool,
    normalised: usize,
}

impl Stages {
    fn compose(&self) -> Compose {
        let flip = |stages: Compose, on| match on {
            true => stages.then(Flip::new(0.5).unwrap()),
            false => stages,
        };
        let crop = |stages: Compose, late| match self.crop {
            Some((height, width, padding, fill, when)) if when == late => stages.then(Crop {
                fill,
                ..Crop::new(height, width, padding)
            }),
            _ => stages,
        };
        let mut stages = crop(flip(Compose::new(), self.flips[0]), false);
        if self.scaled {
            stages = stages.then(ToFloat);
        }
        if self.normalised > 0 {
            let (mean, deviation) = ([0.4914, 0.1307, 77.0], [0.2023, 0.3081, 3.0]);
            let n = self.normalised;
            stages = stages.then(Compose::new().then(Normalise::new(&mean[..n], &deviation[..n]).unwrap()));
        }
        stages = flip(crop(stages, true), self.flips[1]);
        match self.again {
            Some((height, width)) => stages.then(Crop::new(height, width, 0)),
            None => stages,
        }
    }
}

/// Images with a transform that they accept.
fn cases() -> impl Strategy<Value = ([usize; 4], Stages)> {
    ([1usize..20, 1usize..9, 1usize..9, 1usize..5], any::<u64>()).prop_map(|([n, h, w, c], seed)| {
        let key = kiln_core::philox::Key::new(seed, 0, 0);
        let below = |i: u64, bound: usize| key.below(i, bound as u32) as usize;
        let padding = below(0, 4);
        let (height, width) = (1 + below(1, h + 2 * padding), 1 + below(2, w + 2 * padding));
        let crop = (below(3, 4) > 0).then(|| {
            (
                height,
                width,
                padding,
                [0.0, 127.5, -1.0][below(4, 3)],
                below(5, 2) == 0,
            )
        });
        let (height, width) = crop.map_or((h, w), |(height, width, ..)| (height, width));
        let stages = Stages {
            crop,
            again: (below(6, 3) == 0).then(|| (1 + below(7, height), 1 + below(8, width))),
            flips: [below(9, 2) == 0, below(10, 2) == 0],
            scaled: below(11, 3) > 0,
            normalised: [0, 1, c.min(3)][below(12, 3)] * usize::from(c <= 3),
        };
        ([n, h, w, c], stages)
    })
}

fn bytes(shape: [usize; 4], seed: u64) -> ByteImages {
    let [n, h, w, c] = shape;
    let key = kiln_core::philox::Key::new(seed, 9, 0);
    let pixels = (0..(n * h * w * c) as u64).map(|i| key.below(i, 256) as u8).collect();
    let labels = (0..n).map(|i| (i % 3) as u8).collect();
    let names = ["a", "b", "c"].map(String::from).to_vec();
    ByteImages::new(Shape::new(&[h, w, c]).unwrap(), pixels, labels, names).unwrap()
}

/// A loader of images on the device.
fn loader(images: DeviceImages<Cpu>, transform: impl Transform + 'static, options: LoaderOptions) -> Loader {
    Loader::new(Arc::new(images), options)
        .unwrap()
        .with_transform(transform)
}

fn as_bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// For any images, transform, seed, epoch, batch size and position: the same bits, labels, indices and layout, whether a batch
    /// is new on the device or written over one that is there.
    #[test]
    fn batches_have_the_bits_of_the_host(
        (shape, stages) in cases(), seed in any::<u64>(), epoch in 0..5u64, batch_size in 1usize..9, workers in 0usize..3,
        shuffle in any::<bool>(), first in 0..3u64,
    ) {
        let cpu = Cpu::poisoned();
        let data = Arc::new(bytes(shape, seed));
        let options = LoaderOptions { batch_size, shuffle, seed, workers, ..Default::default() };
        let host = Loader::new(data.clone(), options).unwrap().with_transform(stages.compose());
        let device = loader(DeviceImages::new(&cpu, data).unwrap(), stages.compose(), options);
        prop_assert_eq!((host.batches(), host.samples()), (device.batches(), device.samples()));
        let position = Position { epoch, batch: first.min(host.batches() as u64) };
        let any = device.any().resume(position).unwrap();
        let (host, device) = (host.resume(position).unwrap(), device.resume(position).unwrap());
        let mut slot = None;
        for ((a, b), any) in host.zip(device).zip(any) {
            let (a, b, any) = (a.unwrap(), b.unwrap(), any.unwrap());
            prop_assert_eq!((&a.indices, a.position, a.len(), a.layout()), (&b.indices, b.position, b.len(), b.layout()));
            let (x, y) = (a.to_device(&cpu).unwrap(), b.to_device(&cpu).unwrap());
            prop_assert_eq!(y.inputs.shape(), x.inputs.shape());
            let want = as_bits(&x.inputs.to_vec().unwrap());
            prop_assert_eq!(as_bits(&y.inputs.to_vec().unwrap()), &want[..], "{:?}", stages);
            prop_assert_eq!(y.labels.to_vec::<i32>().unwrap(), x.labels.to_vec::<i32>().unwrap());
            prop_assert!(y.targets.is_none());
            prop_assert_eq!((&any.indices, any.position, any.layout()), (&b.indices, b.position, b.layout()));
            let forgotten = any.to_device(&cpu).unwrap().of::<Labelled>().unwrap();
            prop_assert_eq!(as_bits(&forgotten.inputs.to_vec().unwrap()), &want[..]);
            // A slot of another layout is refused and stays as it is.
            let slot = slot.get_or_insert(x);
            let before = slot.inputs.to_vec::<f32>().unwrap();
            match b.write_to(slot) {
                Ok(()) => prop_assert_eq!(as_bits(&slot.inputs.to_vec().unwrap()), want),
                Err(DataError::Layout { .. }) if b.len() != slot.labels.size() => {
                    prop_assert_eq!(slot.inputs.to_vec::<f32>().unwrap(), before);
                }
                Err(e) => prop_assert!(false, "{}", e),
            }
        }
    }

}

#[test]
fn datasets_of_whole_numbers_are_images_of_bytes() {
    let cpu = Cpu::new();
    let synthetic = Arc::new(Synthetic::images(70, &[6, 5, 3], 4, 1).unwrap());
    let on_device = DeviceImages::new(&cpu, synthetic.clone()).unwrap();
    assert_eq!((on_device.len(), on_device.is_empty()), (70, false));
    let bytes = on_device.bytes().to_vec::<u8>().unwrap();
    for i in 0..70 {
        let sample = synthetic.get(i).unwrap();
        let there = bytes[i * 90..(i + 1) * 90].iter().map(|&b| f32::from(b));
        assert!(sample.input.iter().copied().eq(there), "image {i}");
    }
    let empty = DeviceImages::new(&cpu, Arc::new(Synthetic::images(0, &[6, 5, 3], 4, 1).unwrap())).unwrap();
    assert!(empty.is_empty());
    assert_eq!(loader(empty, ToFloat, LoaderOptions::default()).batches(), 0);
}

#[test]
fn targets_come_along() {
    let cpu = Cpu::new();
    let shape = Shape::new(&[1, 2, 1]).unwrap();
    let targets = Labels::Targets((0..10).map(|i| i as f32 / 4.0).collect(), 2);
    let arrays = Arc::new(Arrays::new(shape, (0..10).map(|i| i as f32).collect(), targets).unwrap());
    let options = LoaderOptions {
        batch_size: 3,
        ..Default::default()
    };
    let loader = loader(DeviceImages::new(&cpu, arrays).unwrap(), Compose::new(), options);
    let mut seen = Vec::new();
    for batch in loader.epoch(0).unwrap() {
        let targets = batch.unwrap().to_device(&cpu).unwrap().targets.unwrap();
        assert_eq!(targets.shape()[1], 2);
        seen.extend(targets.to_vec::<f32>().unwrap());
    }
    assert_eq!(seen, (0..10).map(|i| i as f32 / 4.0).collect::<Vec<_>>());
}

#[test]
fn reading_tells_how_far_it_is_and_stops_when_asked() {
    let cpu = Cpu::new();
    // More than are read at once.
    let data = Arc::new(Synthetic::images(40, &[256, 256, 1], 4, 1).unwrap());
    let mut seen = Vec::new();
    let read = DeviceImages::read(&cpu, data.clone(), 2, &mut |n| {
        seen.push(n);
        true
    });
    assert_eq!(read.unwrap().unwrap().len(), 40);
    assert!(seen.len() > 1 && seen.is_sorted() && seen.ends_with(&[40]), "{seen:?}");
    assert!(DeviceImages::read(&cpu, data, 0, &mut |_| false).unwrap().is_none());
}

/// Images of one shape, but for those that `make` changes.
struct Made(fn(usize, &mut Sample));

impl Dataset for Made {
    type Sample = Sample;

    fn len(&self) -> usize {
        4
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<(), DataError> {
        sample.fill(Shape::new(&[2, 2, 1])?, [0.0; 4].into_iter())?;
        (self.0)(index, sample);
        Ok(())
    }
    fn classes(&self) -> Option<usize> {
        Some(2)
    }
}

#[test]
fn images_that_are_no_bytes_of_one_size_are_refused() {
    let cpu = Cpu::new();
    let upload = |make| DeviceImages::new(&cpu, Arc::new(Made(make))).map(|images| images.len());
    assert_eq!(upload(|_, _| {}).unwrap(), 4);
    let pixels: [fn(usize, &mut Sample); 6] = [
        |i, s| s.input[1] = if i == 2 { 0.5 } else { 0.0 },
        |i, s| s.input[1] = if i == 2 { 256.0 } else { 0.0 },
        |i, s| s.input[1] = if i == 2 { -1.0 } else { 0.0 },
        |i, s| s.input[1] = if i == 2 { -0.0 } else { 0.0 },
        |i, s| s.input[1] = if i == 2 { f32::NAN } else { 0.0 },
        |i, s| s.label = if i == 2 { 5 } else { 0 },
    ];
    for make in pixels {
        match upload(make) {
            Err(DataError::Sample { index: 2, source }) => match *source {
                DataError::InvalidArgument { argument: "pixel", .. } | DataError::Label { label: 5, .. } => {}
                other => panic!("{other}"),
            },
            other => panic!("{other:?}"),
        }
    }
    let sizes: [fn(usize, &mut Sample); 2] = [
        |i, s| {
            s.fill(
                Shape::new(&[2, 2, if i == 3 { 2 } else { 1 }]).unwrap(),
                vec![0.0; if i == 3 { 8 } else { 4 }].into_iter(),
            )
            .unwrap()
        },
        |_, s| s.shape = Shape::new(&[4]).unwrap(),
    ];
    for make in sizes {
        let refused = upload(make);
        assert!(
            matches!(&refused, Err(DataError::Shape { .. }))
                || matches!(&refused, Err(DataError::Sample { index: 3, .. })),
            "{refused:?}"
        );
    }
}

/// The error of the first batch.
fn first_error(loader: &Loader) -> DataError {
    match loader.epoch(0).unwrap().next().unwrap() {
        Err(DataError::Sample { source, .. }) => *source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn transforms_that_devices_do_not_make_are_refused() {
    let cpu = Cpu::new();
    let refused = |transform: Compose| {
        let images = DeviceImages::new(&cpu, Arc::new(bytes([3, 4, 4, 1], 0))).unwrap();
        first_error(&loader(images, transform, LoaderOptions::default()))
    };
    let erase = refused(Compose::new().then(ToFloat).then(Erase::new(0.5).unwrap()));
    assert!(erase.to_string().contains("Erase"), "{erase}");
    let closure = refused(Compose::new().then(|_: &mut Sample, _: &Draw| Ok(())));
    assert!(
        matches!(
            closure,
            DataError::InvalidArgument {
                argument: "transform",
                ..
            }
        ),
        "{closure}"
    );
    let twice = refused(Compose::new().then(Crop::new(4, 4, 1)).then(Crop::new(4, 4, 1)));
    assert!(
        matches!(
            twice,
            DataError::InvalidArgument {
                argument: "padding",
                ..
            }
        ),
        "{twice}"
    );
    let large = refused(Compose::new().then(Crop::new(5, 5, 0)));
    assert!(matches!(large, DataError::Shape { .. }), "{large}");
    let channels = refused(Compose::new().then(Normalise::new(&[0.0; 3], &[1.0; 3]).unwrap()));
    assert!(matches!(channels, DataError::Shape { .. }), "{channels}");
}

/// A batch has one table of values and one size; transforms that draw others for each sample are refused.
#[test]
fn values_and_sizes_that_differ_within_a_batch_are_refused() {
    struct Brighter;
    impl Transform for Brighter {
        fn apply(&self, sample: &mut Sample, draw: &Draw) -> Result<(), DataError> {
            sample.input.iter_mut().for_each(|x| *x += draw.uniform(0));
            Ok(())
        }
        fn on_bytes(&self, image: &mut ByteImage, draw: &Draw) -> Result<(), DataError> {
            self.apply(image.values(), draw)
        }
    }
    struct Shrink;
    impl Transform for Shrink {
        fn apply(&self, _: &mut Sample, _: &Draw) -> Result<(), DataError> {
            Ok(())
        }
        fn on_bytes(&self, image: &mut ByteImage, draw: &Draw) -> Result<(), DataError> {
            image.crop((0, 0), (1 + draw.below(0, 4) as usize, 4));
            Ok(())
        }
    }
    let cpu = Cpu::new();
    let images = || DeviceImages::new(&cpu, Arc::new(bytes([30, 4, 4, 1], 0))).unwrap();
    for refused in [
        first_error(&loader(images(), Brighter, LoaderOptions::default())),
        first_error(&loader(images(), Shrink, LoaderOptions::default())),
    ] {
        assert!(matches!(refused, DataError::Shape { what: "batch", .. }), "{refused}");
    }
}

/// Parts of a dataset on a device, and a batch that is stacked from both places.
#[test]
fn subsets_are_datasets_like_others() {
    let (cpu, data) = (Cpu::new(), Arc::new(bytes([9, 4, 5, 3], 2)));
    let images = Arc::new(DeviceImages::new(&cpu, data.clone()).unwrap());
    let some = vec![7, 0, 3, 3];
    let options = LoaderOptions::default();
    let batch = |dataset: Arc<dyn Dataset<Sample = Sample>>| {
        let loader = Loader::new(dataset, options)
            .unwrap()
            .with_transform(Flip::new(0.5).unwrap());
        let batch = loader
            .epoch(1)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .to_device(&cpu)
            .unwrap();
        (
            batch.inputs.to_vec::<f32>().unwrap(),
            batch.labels.to_vec::<i32>().unwrap(),
        )
    };
    let on_device = batch(Arc::new(Subset::new(images.clone(), some.clone()).unwrap()));
    assert_eq!(on_device, batch(Arc::new(Subset::new(data.clone(), some).unwrap())));

    let both = [images.get(0).unwrap(), data.get(1).unwrap()];
    let mixed = Stack::of(&*data).collate(&both, &[0, 1], None);
    assert!(matches!(mixed, Err(DataError::Sample { index: 1, .. })), "{mixed:?}");
    assert_eq!((both[0].input.len(), both[0].label), (0, 0));
    // What is on a device already is not read to another one.
    assert!(DeviceImages::new(&cpu, images).is_err());
}

/// A transform of a user's own that changes pixels one by one.
#[test]
fn values_of_own_transforms_are_looked_up() {
    struct Invert;
    impl Transform for Invert {
        fn apply(&self, sample: &mut Sample, _: &Draw) -> Result<(), DataError> {
            sample.input.iter_mut().for_each(|x| *x = (255.0 - *x).sqrt());
            Ok(())
        }
        fn on_bytes(&self, image: &mut ByteImage, draw: &Draw) -> Result<(), DataError> {
            self.apply(image.values(), draw)
        }
    }
    let (cpu, data) = (Cpu::new(), Arc::new(bytes([5, 3, 4, 2], 1)));
    let options = LoaderOptions::default();
    let host = Loader::new(data.clone(), options).unwrap().with_transform(Invert);
    let device = loader(DeviceImages::new(&cpu, data).unwrap(), Invert, options);
    let host = host.epoch(0).unwrap().next().unwrap().unwrap();
    let device = device
        .epoch(0)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .to_device(&cpu)
        .unwrap();
    assert_eq!(device.inputs.to_ndarray::<f32>().unwrap(), host.inputs);
}

/// Once the caches are filled, a batch costs no allocation on the device.
#[test]
fn device_memory_is_used_again() {
    use kiln_core::Runtime;
    let cpu = Cpu::new();
    let options = LoaderOptions {
        batch_size: 4,
        ..Default::default()
    };
    let images = DeviceImages::new(&cpu, Arc::new(bytes([12, 4, 4, 1], 0))).unwrap();
    let loader = loader(images, Crop::new(4, 4, 1), options);
    let epoch = |n| {
        loader
            .epoch(n)
            .unwrap()
            .for_each(|b| drop(b.unwrap().to_device(&cpu).unwrap()));
    };
    epoch(0);
    let before = cpu.memory().allocations;
    epoch(1);
    epoch(2);
    assert_eq!(cpu.memory().allocations, before);
}
