//! Batches of any kind: structs of arrays, padding, samplers.

use kiln_core::Backend;
use kiln_cpu::Cpu;
use kiln_data::{
    AnyBatch, ArraysOf, Batch, BatchSampler, Buckets, DataError, Dataset, Draw, EpochPlan, Loader, LoaderOptions,
    Position, Result, Weighted, arrays_of, pad,
};
use ndarray::{Array1, Array2, Array3, ArrayD, array};
use proptest::prelude::*;
use std::sync::Arc;

/// A batch with a field of every kind.
#[derive(Batch, Clone, Debug, PartialEq)]
struct Mixed {
    floats: Array3<f32>,
    doubles: Option<Array1<f64>>,
    boxes: Vec<Array2<f32>>,
    pair: (Array1<i32>, Array1<u8>),
    #[batch(skip)]
    names: Vec<String>,
}

fn mixed(shift: f32) -> Mixed {
    Mixed {
        floats: Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (i * 12 + j * 4 + k) as f32 + shift),
        doubles: Some(array![0.5 + f64::from(shift), f64::MIN_POSITIVE]),
        boxes: vec![array![[1.0 + shift, 2.0]], Array2::zeros((0, 2))],
        pair: (array![7 + shift as i32, -1], array![0, 255]),
        names: vec!["a".into()],
    }
}

/// All values of a batch.
fn read<B: Backend>(on: &MixedOn<B>) -> impl PartialEq + std::fmt::Debug + use<B> {
    let boxes = on.boxes.iter().map(|b| b.to_vec::<f32>().unwrap());
    (
        on.floats.to_vec::<f32>().unwrap(),
        on.doubles.as_ref().map(|d| d.to_vec::<f64>().unwrap()),
        boxes.collect::<Vec<_>>(),
        on.pair.0.to_vec::<i32>().unwrap(),
        on.pair.1.to_vec::<u8>().unwrap(),
    )
}

#[test]
fn a_struct_goes_to_the_device_and_is_written_over() {
    let (cpu, first, second) = (Cpu::new(), mixed(0.0), mixed(3.0));
    assert_eq!((first.len(), first.is_empty()), (2, false));
    let mut on = first.to_device(&cpu).unwrap();
    assert_eq!(on.floats.shape().dims(), [2, 3, 4]);
    assert_eq!(on.boxes[1].shape().dims(), [0, 2]);
    assert_eq!(on.pair.0.to_vec::<i32>().unwrap(), [7, -1]);
    second.write_to(&mut on).unwrap();
    assert_eq!(read(&on), read(&second.to_device(&cpu).unwrap()));
}

#[test]
fn a_batch_whose_type_is_forgotten_is_the_same_on_the_device() {
    let cpu = Cpu::new();
    let without = || Mixed {
        doubles: None,
        boxes: Vec::new(),
        ..mixed(1.0)
    };
    for (first, second) in [(mixed(0.0), mixed(3.0)), (without(), without())] {
        let (any, expected) = (AnyBatch::new(first.clone()), first.to_device(&cpu).unwrap());
        assert_eq!((any.len(), any.layout()), (first.len(), first.layout()));
        let mut on = any.to_device(&cpu).unwrap();
        assert_eq!(read(&on.of::<Mixed>().unwrap()), read(&expected));
        AnyBatch::new(second.clone()).write_to(&mut on).unwrap();
        let expected = second.to_device(&cpu).unwrap();
        assert_eq!(read(&on.of::<Mixed>().unwrap()), read(&expected));
        // As it comes back out of a file.
        let arrays = arrays_of::<Mixed, _>(&expected);
        let on = AnyBatch::from_arrays(&mut ArraysOf::new(&arrays)).unwrap();
        assert_eq!(read(&on.of::<Mixed>().unwrap()), read(&expected));
        assert_eq!(any.downcast::<Mixed>(), Some(first));
    }
    // One array has no name.
    let one = AnyBatch::new(array![1f32, 2.0]).to_device(&cpu).unwrap();
    assert_eq!(one.of::<Array1<f32>>().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let error = one.of::<Mixed>().unwrap_err();
    assert!(matches!(error, DataError::Arrays { .. }), "{error}");
    assert!(AnyBatch::new(array![1f32]).downcast::<Mixed>().is_none());
}

#[test]
fn an_array_in_any_memory_order_is_the_same_batch() {
    let cpu = Cpu::new();
    let plain = Array2::from_shape_fn((3, 5), |(i, j)| (5 * i + j) as f32);
    let transposed = plain.t().as_standard_layout().into_owned().reversed_axes();
    assert!(transposed.as_slice().is_none());
    let expected = plain.as_slice().unwrap();
    assert_eq!(transposed.to_device(&cpu).unwrap().to_vec::<f32>().unwrap(), expected);
    let mut on = Array2::<f32>::zeros((3, 5)).to_device(&cpu).unwrap();
    transposed.write_to(&mut on).unwrap();
    assert_eq!(on.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn only_batches_of_one_layout_are_written_over_each_other() {
    let cpu = Cpu::new();
    let changes: [fn(&mut Mixed); 4] = [
        |m| m.doubles = None,
        |m| m.boxes.swap(0, 1),
        |m| drop(m.boxes.pop()),
        |m| m.pair.0 = array![1],
    ];
    for change in changes {
        let mut other = mixed(1.0);
        change(&mut other);
        assert_ne!(other.layout(), mixed(0.0).layout());
        let mut on = mixed(0.0).to_device(&cpu).unwrap();
        let before = read(&on);
        let error = other.write_to(&mut on).unwrap_err();
        assert!(matches!(error, DataError::Layout { .. }), "{error}");
        assert_eq!(read(&on), before, "nothing is written");
    }
    let error = array![1f32]
        .write_to(&mut Array1::<f32>::zeros(2).to_device(&cpu).unwrap())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write the batch (f32 [1]) over one of another layout (f32 [2])"
    );
}

#[test]
fn the_first_array_that_is_not_finite_is_named() {
    let mut batch = mixed(0.0);
    assert_eq!(batch.first_non_finite(), None);
    batch.boxes[0][[0, 1]] = f32::NAN;
    assert_eq!(batch.first_non_finite().as_deref(), Some("boxes.0"));
    batch.doubles = Some(array![f64::INFINITY]);
    assert_eq!(batch.first_non_finite().as_deref(), Some("doubles"));
}

#[test]
fn arrays_of_more_dimensions_than_tensors_have_are_refused() {
    let deep = ArrayD::<f32>::zeros(vec![1; 9]);
    assert!(matches!(deep.to_device(&Cpu::new()), Err(DataError::Tensor(_))));
}

/// Sequences of tokens of different lengths; token `t` of sequence `i` is `100·i + t`.
struct Sequences(Vec<usize>);

impl Dataset for Sequences {
    type Sample = Vec<i32>;

    fn len(&self) -> usize {
        self.0.len()
    }
    fn read(&self, index: usize, sample: &mut Vec<i32>) -> Result<()> {
        sample.clear();
        sample.extend((0..self.0[index] as i32).map(|t| 100 * index as i32 + t));
        Ok(())
    }
}

#[derive(Batch, Debug)]
struct Tokens {
    ids: ArrayD<i32>,
    lengths: Array1<i32>,
}

fn collate(samples: &[Vec<i32>]) -> Result<Tokens> {
    let views: Vec<_> = samples
        .iter()
        .map(|s| ndarray::ArrayView1::from(&s[..]).into_dyn())
        .collect();
    let (ids, lengths) = pad(&views, -1, 4)?;
    Ok(Tokens { ids, lengths })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Every sample comes once, padded batches are what their samples say, and workers and resuming change nothing.
    #[test]
    fn buckets_hold_every_sample_once(
        lengths in prop::collection::vec(0usize..40, 1..60), batch_size in 1usize..9, pool in 1usize..4, epoch in 0u64..3,
    ) {
        let sizes = lengths.iter().map(|&l| l as u32).collect();
        let sampler = Buckets::new(sizes, batch_size).unwrap().pool(pool);
        prop_assert_eq!(sampler.batches(), lengths.len().div_ceil(batch_size));
        let run = |workers, from| -> Vec<_> {
            let options = LoaderOptions { workers, seed: 5, ..Default::default() };
            let loader = Loader::with_collate(Arc::new(Sequences(lengths.clone())), collate, options)
                .unwrap()
                .with_transform(|sample: &mut Vec<i32>, draw: &Draw| {
                    sample.push(draw.below(0, 10) as i32);
                    Ok(())
                })
                .with_sampler(sampler.clone());
            let batches = loader.resume(Position { epoch, batch: from }).unwrap();
            batches.map(|b| b.unwrap()).map(|b| (b.indices.clone(), b.ids.clone(), b.lengths.clone())).collect()
        };
        let all = run(0, 0);
        prop_assert_eq!(&run(3, 0), &all);
        let middle = all.len() / 2;
        prop_assert_eq!(&run(2, middle as u64)[..], &all[middle..]);
        let mut seen: Vec<usize> = all.iter().flat_map(|(indices, ..)| indices.clone()).collect();
        seen.sort_unstable();
        prop_assert!(seen.into_iter().eq(0..lengths.len()));
        for (indices, ids, counts) in &all {
            let longest = indices.iter().map(|&i| lengths[i] + 1).max().unwrap();
            prop_assert_eq!(ids.shape(), &[indices.len(), longest.next_multiple_of(4)]);
            for ((&i, row), &count) in indices.iter().zip(ids.outer_iter()).zip(counts) {
                prop_assert_eq!(count as usize, lengths[i] + 1);
                let expected = (0..lengths[i]).map(|t| (100 * i + t) as i32);
                prop_assert!(row.iter().copied().take(lengths[i]).eq(expected));
                prop_assert!(row.iter().skip(lengths[i] + 1).all(|&t| t == -1));
            }
        }
    }

    #[test]
    fn plans_cut_an_order_into_batches(samples in 0usize..50, size in 1usize..12) {
        let order: Vec<usize> = (0..samples).rev().collect();
        let plan = EpochPlan::of_size(order.clone(), size);
        let batches: Vec<Vec<usize>> = (0..plan.batches()).map(|b| plan.batch(b).collect()).collect();
        prop_assert_eq!(&batches.concat(), &order);
        prop_assert!(batches.iter().rev().skip(1).all(|b| b.len() == size));
        prop_assert_eq!(plan.batch(plan.batches()).len(), 0);
        let ends = batches.iter().scan(0, |end, b| { *end += b.len(); Some(*end) }).collect();
        let same = EpochPlan::new(order, ends).unwrap();
        prop_assert!((0..plan.batches()).all(|b| same.batch(b).eq(plan.batch(b))));
        let plain = EpochPlan::in_order(samples, size);
        prop_assert!((0..plain.batches()).flat_map(|b| plain.batch(b)).eq(0..samples));
    }
}

#[test]
fn similar_lengths_lie_together() {
    let lengths: Vec<u32> = (0..400).map(|i| (i * 7919) % 100).collect();
    let padding = |plan: EpochPlan| -> u32 {
        (0..plan.batches())
            .map(|b| {
                let batch: Vec<u32> = plan.batch(b).map(|i| lengths[i]).collect();
                let longest = batch.iter().max().unwrap();
                batch.iter().map(|l| longest - l).sum::<u32>()
            })
            .sum()
    };
    let sorted = Buckets::new(lengths.clone(), 8).unwrap();
    let (one, two) = (sorted.plan(0, 0).unwrap(), sorted.plan(0, 1).unwrap());
    assert_ne!(one, two, "epochs differ");
    let plain = EpochPlan::of_size((0..400).collect(), 8);
    assert!(10 * padding(one) < padding(plain));
}

#[test]
fn samples_are_drawn_by_their_weights() {
    let sampler = Weighted::new(&[0.0, 1.0, 3.0, 0.0], 40_000, 64).unwrap();
    assert_eq!((sampler.batches(), sampler.samples()), (625, 40_000));
    let plan = sampler.plan(1, 0).unwrap();
    let mut counts = [0u32; 4];
    (0..plan.batches())
        .flat_map(|b| plan.batch(b))
        .for_each(|i| counts[i] += 1);
    assert_eq!((counts[0], counts[3]), (0, 0));
    // Five standard deviations of a binomial distribution of 40,000 draws at 3/4 are 433.
    assert!(counts[2].abs_diff(30_000) < 433, "{counts:?}");
    assert_eq!(plan, sampler.plan(1, 0).unwrap());
    assert_ne!(plan, sampler.plan(1, 1).unwrap());
}

#[test]
fn wrong_options_are_refused() {
    let refused = |result: Result<()>| assert!(matches!(result, Err(DataError::InvalidArgument { .. })), "{result:?}");
    refused(Buckets::new(vec![1], 0).map(drop));
    refused(Weighted::new(&[1.0], 4, 0).map(drop));
    for weights in [
        &[][..],
        &[0.0],
        &[-1.0, 2.0],
        &[f64::NAN],
        &[f64::INFINITY],
        &[f64::MAX, f64::MAX],
    ] {
        refused(Weighted::new(weights, 4, 2).map(drop));
    }
    refused(EpochPlan::new(vec![0, 1, 2], vec![2]).map(drop));
    refused(EpochPlan::new(vec![0, 1, 2], vec![2, 2, 3]).map(drop));
    refused(EpochPlan::new(vec![0, 1, 2], vec![0, 3]).map(drop));
    refused(pad(&[array![1].into_dyn().view()], 0, 0).map(drop));
    let (flat, deep) = (array![1, 2].into_dyn(), array![[1, 2]].into_dyn());
    assert!(matches!(
        pad(&[flat.view(), deep.view()], 0, 1),
        Err(DataError::Shape { .. })
    ));
    let scalar = ndarray::arr0(1).into_dyn();
    assert!(matches!(pad(&[scalar.view()], 0, 1), Err(DataError::Shape { .. })));
    let (none, lengths) = pad::<i32>(&[], 0, 1).unwrap();
    assert_eq!((none.len(), lengths.len()), (0, 0));
}

#[test]
fn an_error_of_the_collate_function_ends_its_batch_only() {
    let failing = |samples: &[Vec<i32>]| match samples[0].len() {
        3 => Err(DataError::Empty {
            path: "three".into(),
            expected: "more",
        }),
        4 => panic!("four"),
        _ => collate(samples),
    };
    for workers in [0, 2] {
        let options = LoaderOptions {
            batch_size: 1,
            workers,
            ..Default::default()
        };
        let loader = Loader::with_collate(Arc::new(Sequences(vec![2, 3, 4, 5])), failing, options).unwrap();
        let results: Vec<_> = loader.epoch(0).unwrap().map(|b| b.map(|b| b.lengths[0])).collect();
        assert!(matches!(results[0], Ok(2)));
        assert!(matches!(&results[1], Err(DataError::Empty { .. })));
        assert!(matches!(&results[2], Err(DataError::Panicked { message }) if message == "four"));
        assert!(matches!(results[3], Ok(5)));
    }
}
