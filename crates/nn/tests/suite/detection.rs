//! What detectors decide on the host, against the definitions, and features of regions from several levels. The differentiable parts are
//! suites of `kiln-testkit`.

use kiln_cpu::Cpu;
use kiln_nn::detection::{
    AnchorGenerator, BalancedSampler, Boxes, Match, Matcher, MultiScaleRoiAlign, RoiAlignOptions, batched_nms, box_iou,
    box_sizes_at_least, clip_boxes, complete_box_iou, complete_box_iou_loss, nms, overlaps, read_boxes, roi_align,
    upload_boxes,
};
use kiln_nn::{DType, Error, Reduction, Result, Rng, Tensor};
use proptest::prelude::*;
use std::f64::consts::PI;

/// Boxes on a coarse grid, so that equal ones and equal overlaps occur.
fn boxes(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<[f32; 4]>> {
    let side = 1u8..6;
    let one = (0u8..6, 0u8..6, side.clone(), side).prop_map(|(x, y, w, h)| [x, y, x + w, y + h].map(f32::from));
    prop::collection::vec(one, count)
}

fn iou(a: &[f32; 4], b: &[f32; 4]) -> f64 {
    let [a, b] = [a, b].map(|b| b.map(f64::from));
    let length = |axis: usize| (a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis])).max(0.0);
    let area = |b: &[f64; 4]| (b[2] - b[0]) * (b[3] - b[1]);
    let both = length(0) * length(1);
    both / (area(&a) + area(&b) - both)
}

/// Suppression as it is defined: again and again the best box that is left stays, and those that it covers go.
fn naive_nms(boxes: &[[f32; 4]], scores: &[f32], classes: &[i32], threshold: f64) -> Vec<usize> {
    let mut left: Vec<usize> = (0..boxes.len()).collect();
    let mut kept = Vec::new();
    while let Some(&best) = left.iter().reduce(|a, b| if scores[*b] > scores[*a] { b } else { a }) {
        kept.push(best);
        left.retain(|&i| i != best && (classes[i] != classes[best] || iou(&boxes[i], &boxes[best]) <= threshold));
    }
    kept
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn suppression_is_that_of_the_definition(
        boxes in boxes(0..24),
        scores in prop::collection::vec(0u8..8, 24),
        classes in prop::collection::vec(0i32..3, 24),
        threshold in 0.05f64..0.95,
    ) {
        let n = boxes.len();
        let scores: Vec<f32> = scores[..n].iter().map(|&s| f32::from(s) / 8.0).collect();
        // Not at an overlap that f32 may have on either side of the threshold.
        prop_assume!(boxes.iter().all(|a| boxes.iter().all(|b| (iou(a, b) - threshold).abs() > 1e-6)));
        prop_assert_eq!(nms(&boxes, &scores, threshold).unwrap(), naive_nms(&boxes, &scores, &[0; 24], threshold));
        let found = batched_nms(&boxes, &scores, &classes[..n], threshold).unwrap();
        prop_assert_eq!(found, naive_nms(&boxes, &scores, &classes, threshold));
    }

    #[test]
    fn overlaps_of_the_host_are_those_of_tensors(a in boxes(0..5), b in boxes(0..5)) {
        let upload = |x: &[[f32; 4]]| upload_boxes(&Cpu::poisoned(), x, DType::F32).unwrap();
        let (x, y) = (upload(&a), upload(&b));
        prop_assert_eq!(read_boxes(&x).unwrap(), a.clone());
        let found = overlaps(&a, &b);
        prop_assert_eq!(&box_iou(&x, &y).unwrap().to_vec::<f32>().unwrap(), &found);
        let wanted = a.iter().flat_map(|a| b.iter().map(move |b| iou(a, b)));
        prop_assert!(found.iter().zip(wanted).all(|(f, w)| (f64::from(*f) - w).abs() < 1e-6));
    }

    #[test]
    fn matches_are_those_of_the_definition(targets in boxes(0..4), candidates in boxes(0..12), low_quality in any::<bool>()) {
        let found = Matcher::new(0.6, 0.25, low_quality).unwrap().assign(&overlaps(&targets, &candidates), candidates.len()).unwrap();
        prop_assert_eq!(found.len(), candidates.len());
        for (c, found) in candidates.iter().zip(found) {
            let of = |t: &[f32; 4]| overlaps(&[*t], &[*c])[0];
            let best = targets.iter().map(of).fold(f32::NEG_INFINITY, f32::max);
            let first = targets.iter().position(|t| of(t) == best);
            // A candidate that no other covers this target more than.
            let is_largest = |t: &[f32; 4]| candidates.iter().all(|d| overlaps(&[*t], &[*d])[0] <= of(t));
            let wanted = match first {
                Some(first) if best >= 0.6 || (low_quality && targets.iter().any(is_largest)) => Match::Target(first),
                Some(_) if best >= 0.25 => Match::Ignored,
                _ => Match::Background,
            };
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn samples_are_as_many_as_asked_for(kinds in prop::collection::vec(0u8..3, 0..40), size in 0usize..20, percent in 0u8..=100, seed in 0u64..9) {
        let of = |kind: &u8| [Match::Target(7), Match::Background, Match::Ignored][*kind as usize];
        let matches: Vec<Match> = kinds.iter().map(of).collect();
        let fraction = f64::from(percent) / 100.0;
        let sampler = BalancedSampler::new(size, fraction).unwrap();
        let drawn = sampler.sample(&matches, &mut Rng::new(seed)).unwrap();
        let count = |kind| kinds.iter().filter(|k| **k == kind).count();
        let positive = ((size as f64 * fraction) as usize).min(count(0));
        prop_assert_eq!(drawn.positive.len(), positive);
        prop_assert_eq!(drawn.negative.len(), (size - positive).min(count(1)));
        for (of, kind) in [(&drawn.positive, 0), (&drawn.negative, 1)] {
            prop_assert!(of.iter().all(|&i| kinds[i] == kind) && of.is_sorted_by(|a, b| a < b));
        }
        prop_assert_eq!(sampler.sample(&matches, &mut Rng::new(seed)).unwrap(), drawn);
    }
}

/// Every candidate is drawn about as often as every other.
#[test]
fn samples_are_fair() -> Result<()> {
    let (sampler, mut rng) = (BalancedSampler::new(10, 0.5)?, Rng::new(3));
    let matches: Vec<Match> = (0..40)
        .map(|i| {
            if i % 2 == 0 {
                Match::Target(0)
            } else {
                Match::Background
            }
        })
        .collect();
    let mut counts = [0; 40];
    for _ in 0..400 {
        let drawn = sampler.sample(&matches, &mut rng)?;
        for i in drawn.positive.into_iter().chain(drawn.negative) {
            counts[i] += 1;
        }
    }
    // A quarter of 400, with a standard deviation of 8.7.
    assert!(counts.iter().all(|&n| (60..140).contains(&n)), "{counts:?}");
    Ok(())
}

#[test]
fn scores_that_are_no_numbers_come_first() -> Result<()> {
    let apart: Vec<[f32; 4]> = (0..4)
        .map(|i| [10.0 * i as f32, 0.0, 10.0 * i as f32 + 5.0, 5.0])
        .collect();
    assert_eq!(nms(&apart, &[0.5, f32::NAN, 0.0, -0.0], 0.5)?, [1, 0, 2, 3]);
    // A box without an area covers nothing, and is covered by nothing.
    assert_eq!(nms(&[[1.0; 4], [1.0; 4]], &[0.5, 0.5], 0.5)?, [0, 1]);
    assert!(nms(&apart, &[0.5], 0.5).is_err());
    assert!(batched_nms(&apart, &[0.5; 4], &[1], 0.5).is_err());
    Ok(())
}

/// Values of torchvision 0.29, `AnchorGenerator(((32, 50),), ((0.5, 1.0, 2.0),))` for features of 2 × 3 in an image of 20 × 33.
#[test]
fn anchors_are_those_of_torchvision() -> Result<()> {
    let anchors = AnchorGenerator::new(vec![vec![32.0, 50.0]], vec![0.5, 1.0, 2.0])?;
    let all = anchors.generate(&[(2, 3)], (20, 33))?;
    let cell = [
        [-23.0, -11.0, 23.0, 11.0],
        [-35.0, -18.0, 35.0, 18.0],
        [-16.0, -16.0, 16.0, 16.0],
        [-25.0, -25.0, 25.0, 25.0],
        [-11.0, -23.0, 11.0, 23.0],
        [-18.0, -35.0, 18.0, 35.0],
    ];
    assert_eq!(all[0].len(), 36);
    for (i, found) in all[0].iter().enumerate() {
        let (x, y) = ((i / 6 % 3 * 11) as f32, (i / 18 * 10) as f32);
        let base = cell[i % 6];
        assert_eq!(*found, [base[0] + x, base[1] + y, base[2] + x, base[3] + y]);
    }
    for refused in [
        AnchorGenerator::new(vec![vec![]], vec![1.0]),
        AnchorGenerator::new(vec![vec![1.0]], vec![-1.0]),
    ] {
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    }
    assert!(anchors.generate(&[], (20, 33)).is_err());
    assert!(anchors.generate(&[(0, 3)], (20, 33)).is_err());
    Ok(())
}

#[test]
fn regions_take_the_level_of_their_size() -> Result<()> {
    let cpu = Cpu::poisoned();
    let level = |side: usize, seed| Tensor::randn(&cpu, &[2, side, side / 2, 3], DType::F64, &mut Rng::new(seed));
    let levels = [level(64, 0)?, level(32, 1)?, level(16, 2)?];
    let rois = [
        vec![[0.0, 0.0, 8.0, 9.0], [3.0, 5.0, 120.0, 250.0], [10.0, 10.0, 70.0, 60.0]],
        vec![[20.0, 20.0, 60.0, 100.0], [0.0, 0.0, 30.0, 30.0]],
    ];
    let mut pool = MultiScaleRoiAlign::new((2, 3), 2);
    pool.canonical_scale = 112.0;
    let y = pool.forward(&levels, &rois, (256, 128))?;
    let mut number = 0;
    for (image, rois) in rois.iter().enumerate() {
        for &roi in rois {
            let area = (roi[2] - roi[0]) * (roi[3] - roi[1]);
            let wanted = (4.0 + (area.sqrt() / 112.0).log2()).floor().clamp(2.0, 4.0) as usize - 2;
            let mut of = vec![vec![]; 2];
            of[image].push(roi);
            let options = RoiAlignOptions {
                output: (2, 3),
                spatial_scale: [0.25, 0.125, 0.0625][wanted],
                sampling_ratio: 2,
                aligned: false,
            };
            let alone = roi_align(&levels[wanted], &of, &options)?;
            assert_eq!(y.narrow(0, number, 1)?.to_f64()?, alone.to_f64()?, "{roi:?}");
            number += 1;
        }
    }
    assert_eq!(
        pool.forward(&levels, &[vec![], vec![]], (256, 128))?.shape().dims(),
        [0, 2, 3, 3]
    );
    assert!(pool.forward(&levels[..0], &rois, (256, 128)).is_err());
    assert!(
        pool.forward(&[levels[0].clone(), levels[2].clone()], &rois, (256, 128))
            .is_err()
    );
    assert!(pool.forward(&levels, &rois, (256, 256)).is_err());
    Ok(())
}

/// The gradient of the complete overlap is that of its value with the weight of the aspect ratios held.
#[test]
fn complete_overlap_holds_its_weight() -> Result<()> {
    let (a, b) = ([0.0, 0.0, 2.0, 3.0], [0.5, 1.0, 4.0, 2.2]);
    let of = |values: [f64; 4]| Tensor::from_f64(&Cpu::poisoned(), &values, &[1, 4], DType::F64);
    let angle = |b: &[f64; 4]| ((b[2] - b[0]) / (b[3] - b[1])).atan();
    let ratio = |a: &[f64; 4]| 4.0 / (PI * PI) * (angle(a) - angle(&b)).powi(2);
    let distance = |a: &[f64; 4]| -> Result<f64> {
        let x = of(*a)?;
        kiln_nn::detection::distance_box_iou(&x, &of(b)?)?.item()
    };
    let (v, iou) = (ratio(&a), box_iou(&of(a)?, &of(b)?)?.item()?);
    let alpha = v / (1.0 - iou + v);
    let x = of(a)?.requires_grad();
    let value = complete_box_iou(&x, &of(b)?)?;
    assert!((value.item()? - (distance(&a)? - alpha * v)).abs() < 1e-6);
    let loss = complete_box_iou_loss(&x, &of(b)?, Reduction::Mean)?;
    assert!((loss.item()? - (1.0 - value.item()?)).abs() < 1e-6);
    for (sign, y) in [(1.0, value), (-1.0, loss)] {
        let grads = y.sum(&[], false)?.backward()?;
        let grad = grads.get(&x).map(Tensor::to_f64).transpose()?.unwrap_or_default();
        for i in 0..4 {
            let held = |step: f64| -> Result<f64> {
                let mut a = a;
                a[i] += step;
                Ok(distance(&a)? - alpha * ratio(&a))
            };
            let wanted = (held(1e-5)? - held(-1e-5)?) / 2e-5;
            assert!(
                (sign * grad[i] - wanted).abs() < 1e-5,
                "{i}: {}, expected {wanted}",
                grad[i]
            );
        }
    }
    Ok(())
}

#[test]
fn targets_are_checked_and_boxes_clipped() {
    let one = |b: [f32; 4], class| Boxes {
        xyxy: vec![b],
        classes: vec![class],
    };
    let good = [1.0, 2.0, 3.0, 4.0];
    assert!(one(good, 0).check(1).is_ok() && Boxes::default().check(1).is_ok());
    let argument = |boxes: Boxes| match boxes.check(2) {
        Err(Error::InvalidArgument { argument, value, .. }) => (argument, value),
        other => panic!("{other:?}"),
    };
    for b in [
        [1.0, 2.0, 1.0, 4.0],
        [1.0, 5.0, 3.0, 4.0],
        [f32::NAN, 2.0, 3.0, 4.0],
        [1.0, 2.0, f32::INFINITY, 4.0],
    ] {
        let (argument, value) = argument(one(b, 0));
        assert!(argument == "xyxy" && value.ends_with("at 0"), "{value}");
    }
    assert_eq!(argument(one(good, 2)).0, "classes");
    assert_eq!(argument(one(good, -1)).0, "classes");
    let missing = Boxes {
        xyxy: vec![good],
        classes: vec![],
    };
    assert_eq!(argument(missing), ("classes", "0 classes".to_string()));
    let mut boxes = [[-5.0, -5.0, 100.0, 3.0], [2.0, 2.0, 2.5, 2.1]];
    clip_boxes(&mut boxes, (50, 60));
    assert_eq!(boxes, [[0.0, 0.0, 60.0, 3.0], [2.0, 2.0, 2.5, 2.1]]);
    assert_eq!(box_sizes_at_least(&boxes, 0.3), [0]);
}
