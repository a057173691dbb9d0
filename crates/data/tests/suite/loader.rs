//! The loader: the same batches for any number of workers, errors that arrive, threads that end.

use kiln_core::Shape;
use kiln_data::{
    Arrays, Compose, Crop, DataError, Dataset, Erase, Flip, Labelled, Labels, Loaded, Loader, LoaderOptions, Position,
    Result, Sample, Subset, Synthetic, ToFloat, mnist,
};
use ndarray::array;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const WORKERS: [usize; 4] = [0, 1, 2, 4];

/// What a batch says, bit for bit.
fn bits(batch: &Loaded<Labelled>) -> (Vec<u32>, Vec<usize>, Vec<i32>, Vec<usize>, Position) {
    let inputs = batch.inputs.iter().map(|x| x.to_bits()).collect();
    (
        inputs,
        batch.inputs.shape().to_vec(),
        batch.labels.to_vec(),
        batch.indices.clone(),
        batch.position,
    )
}

fn augmented(data: impl Dataset<Sample = Sample> + 'static, options: LoaderOptions) -> Loader {
    let transform = Compose::new()
        .then(Crop::new(5, 5, 1))
        .then(Flip::new(0.5).unwrap())
        .then(ToFloat)
        .then(Erase::new(0.5).unwrap());
    Loader::new(Arc::new(data), options).unwrap().with_transform(transform)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn same_batches_for_any_number_of_workers(
        n in 0..70usize, batch_size in 1..33usize, shuffle in any::<bool>(), drop_last in any::<bool>(),
        prefetch in 1..4usize, epoch in 0..3u64, start in 0.0..1.0f64,
    ) {
        let options = LoaderOptions { batch_size, shuffle, drop_last, prefetch, seed: 11, workers: 0 };
        let data = Synthetic::images(n, &[5, 5, 2], 3, 4).unwrap();
        let run = |workers, from| -> Vec<_> {
            let loader = augmented(data.clone(), LoaderOptions { workers, ..options });
            loader.resume(from).unwrap().map(|b| bits(&b.unwrap())).collect()
        };
        let whole = run(0, Position { epoch, batch: 0 });
        let batches = if drop_last { n / batch_size } else { n.div_ceil(batch_size) };
        prop_assert_eq!(whole.len(), batches);
        let mut seen: Vec<usize> = whole.iter().flat_map(|b| b.3.clone()).collect();
        if !shuffle {
            prop_assert!(seen.iter().copied().eq(0..seen.len()));
        }
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len(), if drop_last { batches * batch_size } else { n });
        // From any batch on, the rest is the same as without the stop.
        let from = (batches as f64 * start) as usize;
        for workers in WORKERS {
            prop_assert_eq!(&run(workers, Position { epoch, batch: 0 }), &whole);
            let rest = run(workers, Position { epoch, batch: from as u64 });
            prop_assert_eq!(&rest[..], &whole[from..]);
        }
    }
}

#[test]
fn epochs_and_seeds_differ() {
    let order = |seed, epoch| -> Vec<usize> {
        let data = Synthetic::images(50, &[1], 2, 0).unwrap();
        let options = LoaderOptions {
            batch_size: 50,
            shuffle: true,
            seed,
            ..Default::default()
        };
        let loader = Loader::new(Arc::new(data), options).unwrap();
        loader.epoch(epoch).unwrap().next().unwrap().unwrap().indices.clone()
    };
    assert_eq!(order(1, 0), order(1, 0));
    assert_ne!(order(1, 0), order(1, 1));
    assert_ne!(order(1, 0), order(2, 0));
    // Augmentation draws anew in each epoch.
    let loader = augmented(
        Synthetic::images(8, &[5, 5, 1], 2, 0).unwrap(),
        LoaderOptions::default(),
    );
    let first = |epoch| loader.epoch(epoch).unwrap().next().unwrap().unwrap().inputs.clone();
    assert_eq!(first(0), first(0));
    assert_ne!(first(0), first(1));
}

#[test]
fn positions_say_what_comes_next() {
    let data = Synthetic::images(10, &[1], 2, 0).unwrap();
    let options = LoaderOptions {
        batch_size: 4,
        workers: 2,
        ..Default::default()
    };
    let loader = Loader::new(Arc::new(data), options).unwrap();
    assert_eq!((loader.batches(), loader.samples()), (3, 10));
    let mut epoch = loader.epoch(7).unwrap();
    assert_eq!(epoch.len(), 3);
    assert_eq!(epoch.next().unwrap().unwrap().position, Position { epoch: 7, batch: 0 });
    let saved = epoch.position();
    assert_eq!(saved, Position { epoch: 7, batch: 1 });
    drop(epoch);
    assert_eq!(
        loader.resume(saved).unwrap().next().unwrap().unwrap().indices,
        [4, 5, 6, 7]
    );
    assert!(loader.resume(Position { epoch: 7, batch: 3 }).unwrap().next().is_none());
    let past = loader.resume(Position { epoch: 7, batch: 4 }).unwrap_err();
    assert!(matches!(
        past,
        DataError::InvalidArgument {
            argument: "position.batch",
            ..
        }
    ));
}

/// Twelve samples of which some misbehave when read.
struct Faulty {
    fault: fn(usize, &mut Sample) -> Result<()>,
    reads: Arc<AtomicUsize>,
}

impl Dataset for Faulty {
    type Sample = Sample;

    fn len(&self) -> usize {
        12
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        sample.fill(Shape::new(&[2])?, [index as f32; 2].into_iter())?;
        sample.label = 0;
        sample.targets.clear();
        (self.fault)(index, sample)
    }
    fn shape(&self) -> Option<Shape> {
        None
    }
    fn classes(&self) -> Option<usize> {
        Some(10)
    }
}

/// The outcome of every batch of three, as text, for each number of workers.
fn outcomes(fault: fn(usize, &mut Sample) -> Result<()>) -> Vec<Result<Vec<usize>, DataError>> {
    let run = |workers| -> Vec<Result<Vec<usize>, DataError>> {
        let data = Faulty {
            fault,
            reads: Arc::default(),
        };
        let options = LoaderOptions {
            batch_size: 3,
            workers,
            ..Default::default()
        };
        let loader = Loader::new(Arc::new(data), options).unwrap();
        loader.epoch(0).unwrap().map(|b| b.map(|b| b.indices.clone())).collect()
    };
    let inline = run(0);
    for workers in WORKERS {
        assert_eq!(format!("{:?}", run(workers)), format!("{inline:?}"));
    }
    inline
}

#[test]
fn errors_name_the_sample_and_the_rest_goes_on() {
    let seen = outcomes(|index, _| match index {
        4 => Err(DataError::Decode {
            path: "images/4.png".into(),
            place: kiln_data::Place::Byte(33),
            format: "PNG",
            reason: "checksum".to_string(),
        }),
        _ => Ok(()),
    });
    assert_eq!(seen.len(), 4);
    assert_eq!(seen[0].as_ref().unwrap(), &[0, 1, 2]);
    let error = seen[1].as_ref().unwrap_err();
    assert!(matches!(error, DataError::Sample { index: 4, .. }));
    assert!(matches!(error.root(), DataError::Decode { .. }));
    assert_eq!(
        error.to_string(),
        "sample 4: images/4.png: broken PNG at byte 33: checksum; fetch or export the file again"
    );
    assert_eq!(seen[3].as_ref().unwrap(), &[9, 10, 11]);
}

#[test]
fn panics_are_errors_of_their_sample() {
    let seen = outcomes(|index, _| {
        if index == 7 {
            panic!("sample seven is cursed")
        } else {
            Ok(())
        }
    });
    let error = seen[2].as_ref().unwrap_err();
    assert!(matches!(error, DataError::Sample { index: 7, .. }));
    assert!(matches!(error.root(), DataError::Panicked { message } if message == "sample seven is cursed"));
    assert!(seen[3].is_ok());
}

#[test]
fn samples_that_do_not_stack() {
    let shape = outcomes(|index, sample| {
        if index == 5 {
            sample.fill(Shape::new(&[3])?, [0.0; 3].into_iter())
        } else {
            Ok(())
        }
    });
    let error = shape[1].as_ref().unwrap_err();
    assert!(matches!(error, DataError::Sample { index: 5, .. }) && matches!(error.root(), DataError::Shape { .. }));
    // A shape that the values do not fill, and one target where the others have none.
    let lying = outcomes(|index, sample| {
        sample.shape = if index == 0 { Shape::new(&[9])? } else { sample.shape };
        Ok(())
    });
    assert!(matches!(
        lying[0].as_ref().unwrap_err().root(),
        DataError::Shape { what: "sample", .. }
    ));
    let targets = outcomes(|index, sample| {
        sample.targets.resize(usize::from(index == 1), 0.5);
        Ok(())
    });
    assert!(matches!(
        targets[0].as_ref().unwrap_err().root(),
        DataError::Shape { what: "batch", .. }
    ));
    let label = outcomes(|index, sample| {
        sample.label = if index == 11 { 10 } else { 9 };
        Ok(())
    });
    assert!(label[2].is_ok());
    let error = label[3].as_ref().unwrap_err();
    assert!(matches!(
        error.root(),
        DataError::Label {
            label: 10,
            classes: 10,
            ..
        }
    ));
}

/// Dropping an epoch early ends its threads at once: nothing is read afterwards.
#[test]
fn dropping_early_joins_the_threads() {
    for workers in [1, 2, 4] {
        let reads = Arc::new(AtomicUsize::new(0));
        let data = Arc::new(Faulty {
            fault: |_, _| Ok(()),
            reads: reads.clone(),
        });
        let options = LoaderOptions {
            batch_size: 1,
            workers,
            prefetch: 1,
            ..Default::default()
        };
        let loader = Loader::new(data.clone(), options).unwrap();
        let mut epoch = loader.epoch(0).unwrap();
        epoch.next().unwrap().unwrap();
        drop(epoch);
        let after = reads.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(reads.load(Ordering::SeqCst), after);
        // No thread holds the dataset any more: this function and the loader do.
        assert_eq!(Arc::strong_count(&data), 2);
        // And one that was never asked for anything.
        drop(loader.epoch(1).unwrap());
        assert_eq!(Arc::strong_count(&data), 2);
    }
}

/// Samples from the third on do not come before the gate is open.
struct Gated(Arc<AtomicBool>);

impl Dataset for Gated {
    type Sample = Sample;

    fn len(&self) -> usize {
        12
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        while index >= 3 && !self.0.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        sample.fill(Shape::new(&[1])?, [0.0].into_iter())
    }
    fn shape(&self) -> Option<Shape> {
        None
    }
    fn classes(&self) -> Option<usize> {
        None
    }
}

/// Whoever waits for a batch that takes long can leave, and gets it when asking again.
#[test]
fn waiting_for_a_batch_ends_when_told() {
    for workers in WORKERS {
        let gate = Arc::new(AtomicBool::new(false));
        let options = LoaderOptions {
            batch_size: 3,
            workers,
            ..Default::default()
        };
        let loader = Loader::new(Arc::new(Gated(gate.clone())), options).unwrap();
        let mut epoch = loader.epoch(0).unwrap();
        assert_eq!(epoch.next_until(&|| false).unwrap().unwrap().indices, [0, 1, 2]);
        assert!(epoch.next_until(&|| true).is_none());
        assert_eq!(epoch.len(), 3);
        gate.store(true, Ordering::SeqCst);
        assert_eq!(epoch.next().unwrap().unwrap().indices, [3, 4, 5]);
    }
}

#[test]
fn memory_of_batches_is_used_again() {
    for workers in WORKERS {
        let data = Synthetic::images(400, &[8, 8, 1], 2, 0).unwrap();
        let options = LoaderOptions {
            batch_size: 10,
            workers,
            prefetch: 2,
            ..Default::default()
        };
        let loader = Loader::new(Arc::new(data), options).unwrap();
        let mut places = std::collections::HashSet::new();
        for epoch in 0..5 {
            for batch in loader.epoch(epoch).unwrap() {
                places.insert(batch.unwrap().inputs.as_ptr() as usize);
            }
        }
        // One in hand, and per worker one in the making and two in its queue, of two hundred batches.
        assert!(
            places.len() <= 1 + 3 * workers,
            "{} for {workers} workers",
            places.len()
        );
    }
}

#[test]
fn options_are_checked() {
    let data = Arc::new(Synthetic::images(4, &[1], 2, 0).unwrap());
    let good = LoaderOptions::default();
    for (options, name) in [
        (LoaderOptions { batch_size: 0, ..good }, "batch_size"),
        (LoaderOptions { prefetch: 0, ..good }, "prefetch"),
        (
            LoaderOptions {
                prefetch: usize::MAX,
                ..good
            },
            "prefetch",
        ),
        (LoaderOptions { workers: 257, ..good }, "workers"),
    ] {
        let error = Loader::new(data.clone(), options).unwrap_err();
        assert!(matches!(error, DataError::InvalidArgument { argument, .. } if argument == name));
    }
    // A batch larger than the data is the data.
    let all = Loader::new(
        data,
        LoaderOptions {
            batch_size: usize::MAX,
            ..good
        },
    )
    .unwrap();
    assert_eq!(all.epoch(0).unwrap().map(|b| b.unwrap().len()).collect::<Vec<_>>(), [4]);
    // Sizes that no machine has are errors, not aborts.
    let endless = Arc::new(Synthetic::images(usize::MAX, &[1 << 40], 2, 0).unwrap());
    let shuffled = Loader::new(endless.clone(), LoaderOptions { shuffle: true, ..good }).unwrap();
    assert!(matches!(shuffled.epoch(0), Err(DataError::OutOfMemory { .. })));
    let ordered = Loader::new(endless, good).unwrap();
    assert!(matches!(
        ordered.epoch(0).unwrap().next().unwrap().unwrap_err().root(),
        DataError::OutOfMemory { .. }
    ));
    assert!(matches!(
        Synthetic::images(1, &[usize::MAX, 2], 2, 0),
        Err(DataError::Tensor(_))
    ));
    assert!(matches!(
        Synthetic::images(1, &[1], 0, 0),
        Err(DataError::InvalidArgument { .. })
    ));
}

#[test]
fn regression_targets_are_stacked() {
    let shape = Shape::new(&[1]).unwrap();
    let data = Arrays::new(
        shape,
        vec![1.0, 2.0, 3.0],
        Labels::Targets(vec![1.0, -1.0, 2.0, -2.0, 3.0, -3.0], 2),
    )
    .unwrap();
    let loader = Loader::new(
        Arc::new(data),
        LoaderOptions {
            batch_size: 2,
            ..Default::default()
        },
    )
    .unwrap();
    let batches: Vec<_> = loader.epoch(0).unwrap().map(|b| b.unwrap().targets.clone()).collect();
    assert_eq!(
        batches,
        [Some(array![[1.0, -1.0], [2.0, -2.0]]), Some(array![[3.0, -3.0]])]
    );
    assert!(matches!(
        Arrays::new(shape, vec![1.0], Labels::Targets(vec![1.0], 0)),
        Err(DataError::InvalidArgument { .. })
    ));
    assert!(matches!(
        Arrays::new(shape, vec![1.0], Labels::Targets(vec![1.0; 3], 2)),
        Err(DataError::Shape { .. })
    ));
    assert!(matches!(
        Arrays::new(shape, vec![1.0], Labels::Classes(vec![1; 2], 2)),
        Err(DataError::Shape { .. })
    ));
    assert!(matches!(
        Arrays::new(shape, vec![1.0], Labels::Classes(vec![2], 2)),
        Err(DataError::Label { label: 2, .. })
    ));
    assert!(matches!(
        Arrays::new(shape, vec![1.0], Labels::Classes(vec![-1], 2)),
        Err(DataError::Label { .. })
    ));
}

#[test]
fn splits_cover_each_sample_once() {
    let data = Arc::new(Synthetic::images(100, &[2], 5, 3).unwrap());
    let split = Subset::split(data.clone(), 30, 8).unwrap();
    assert_eq!((split.train.len(), split.test.len()), (70, 30));
    let mut all: Vec<Vec<u32>> = Vec::new();
    for set in [&split.train, &split.test] {
        all.extend((0..set.len()).map(|i| set.get(i).unwrap().input.iter().map(|x| x.to_bits()).collect()));
    }
    let mut want: Vec<Vec<u32>> = (0..100)
        .map(|i| data.get(i).unwrap().input.iter().map(|x| x.to_bits()).collect())
        .collect();
    all.sort();
    want.sort();
    assert_eq!(all, want);
    assert!(matches!(
        Subset::split(data.clone(), 101, 8),
        Err(DataError::InvalidArgument { .. })
    ));
    assert!(matches!(
        Subset::new(data, vec![100]),
        Err(DataError::Index { index: 100, len: 100 })
    ));
}

/// Each class of a learnable set is nearer to its own mean than to another's, in another part of the data; a random
/// set gives no such hold.
#[test]
fn synthetic_classes_can_be_learned() {
    let accuracy = |train: Synthetic, test: Synthetic| {
        let mut means = vec![vec![0.0; 48]; 4];
        let mut counts = [0.0; 4];
        for i in 0..400 {
            let s = train.get(i).unwrap();
            assert!(s.input.iter().all(|x| (0.0..=255.0).contains(x) && x.fract() == 0.0));
            counts[s.label as usize] += 1.0;
            means[s.label as usize]
                .iter_mut()
                .zip(&s.input)
                .for_each(|(m, x)| *m += x);
        }
        means
            .iter_mut()
            .zip(counts)
            .for_each(|(m, n)| m.iter_mut().for_each(|x| *x /= n));
        let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum::<f32>();
        let right = |i: &usize| {
            let s = test.get(*i).unwrap();
            let nearest =
                (0..4).min_by(|&a, &b| distance(&means[a], &s.input).total_cmp(&distance(&means[b], &s.input)));
            nearest == Some(s.label as usize)
        };
        (0..400).filter(right).count()
    };
    let learnable = Synthetic::images(400, &[4, 4, 3], 4, 1).unwrap();
    assert_ne!(learnable.get(0).unwrap(), learnable.clone().part(1).get(0).unwrap());
    assert_eq!(accuracy(learnable.clone(), learnable.clone().part(1)), 400);
    let random = learnable.random();
    let lucky = accuracy(random.clone(), random.part(1));
    assert!((60..150).contains(&lucky), "{lucky}");
}

#[test]
fn digits_through_the_loader() {
    let digits = mnist::embedded().unwrap();
    let options = LoaderOptions {
        batch_size: 128,
        shuffle: true,
        workers: 2,
        ..Default::default()
    };
    let loader = Loader::new(Arc::new(digits.test), options)
        .unwrap()
        .with_transform(ToFloat);
    let mut count = 0;
    for batch in loader.epoch(0).unwrap() {
        let batch = batch.unwrap();
        assert!(batch.inputs.iter().all(|x| (0.0..=1.0).contains(x)));
        count += batch.len();
    }
    assert_eq!(count, 1000);
}
