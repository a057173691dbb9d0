//! Transforms against loops that say what they do.

use kiln_core::Shape;
use kiln_data::{Compose, Crop, DataError, Draw, Erase, Flip, Normalise, Sample, ToFloat, Transform};
use proptest::prelude::*;

/// An image whose element (y, x, c) is y·10000 + x·100 + c + 1: no two alike, none 0.
fn image(h: usize, w: usize, c: usize) -> Sample {
    let mut sample = Sample::default();
    let values = (0..h * w * c).map(|i| (i / c / w * 10_000 + i / c % w * 100 + i % c + 1) as f32);
    sample
        .fill(Shape::new(&[h, w, c]).unwrap(), values.collect::<Vec<_>>().into_iter())
        .unwrap();
    sample
}

fn applied(t: &impl Transform, mut sample: Sample, draw: &Draw) -> Sample {
    t.apply(&mut sample, draw).unwrap();
    sample
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn normalise_is_per_channel(h in 0..5usize, w in 1..5usize, c in 1..4usize, one in any::<bool>()) {
        let n = if one { 1 } else { c };
        let (mean, deviation) = (&[0.5, 1.5, -2.0][..n], &[2.0, 0.25, 3.0][..n]);
        let before = image(h, w, c);
        let t = Compose::new().then(ToFloat).then(Normalise::new(mean, deviation).unwrap());
        let after = applied(&t, before.clone(), &Draw::new(0, 0, 0));
        for (i, (x, y)) in before.input.iter().zip(&after.input).enumerate() {
            prop_assert_eq!((x / 255.0 - mean[i % n]) / deviation[i % n], *y);
        }
    }

    /// A crop is the window at some (top, left) of the padded image, and every place comes up.
    #[test]
    fn crop_is_a_window(h in 1..5usize, w in 1..5usize, c in 1..3usize, pad in 0..6usize, fill in -1..2i32) {
        let before = image(h, w, c);
        let (ch, cw) = ((h + 2 * pad).div_ceil(2), (w + 2 * pad).min(w + 1));
        let crop = Crop { fill: fill as f32, ..Crop::new(ch, cw, pad) };
        let window = |top: usize, left: usize| -> Vec<f32> {
            let at = |i: usize| {
                let (y, x) = ((i / c / cw + top).checked_sub(pad)?, (i / c % cw + left).checked_sub(pad)?);
                (y < h && x < w).then(|| before.input[(y * w + x) * c + i % c])
            };
            (0..ch * cw * c).map(|i| at(i).unwrap_or(fill as f32)).collect()
        };
        let windows: Vec<_> = (0..=h + 2 * pad - ch).flat_map(|t| (0..=w + 2 * pad - cw).map(move |l| (t, l)))
            .map(|(t, l)| window(t, l)).collect();
        let mut seen = vec![false; windows.len()];
        for index in 0..40 * windows.len() {
            let after = applied(&crop, before.clone(), &Draw::new(5, 1, index));
            prop_assert_eq!(after.shape.dims(), [ch, cw, c]);
            let found = windows.iter().position(|v| *v == after.input);
            prop_assert!(found.is_some());
            // Windows that lie wholly in the padding look alike; each of them counts for all.
            windows.iter().enumerate().filter(|(_, v)| **v == after.input).for_each(|(i, _)| seen[i] = true);
        }
        prop_assert!(seen.iter().all(|&s| s), "{:?}", seen);
    }

    #[test]
    fn flip_mirrors_columns(h in 0..4usize, w in 0..6usize, c in 0..4usize) {
        let before = image(h, w, c);
        let after = applied(&Flip::new(1.0).unwrap(), before.clone(), &Draw::new(0, 0, 0));
        for i in 0..h * w * c {
            let (y, x, channel) = (i / c / w, i / c % w, i % c);
            prop_assert_eq!(after.input[i], before.input[(y * w + w - 1 - x) * c + channel]);
        }
        prop_assert_eq!(applied(&Flip::new(0.0).unwrap(), before.clone(), &Draw::new(0, 0, 0)), before);
    }

    /// What is erased is one full rectangle within the bounds, in all channels.
    #[test]
    fn erase_is_a_rectangle(h in 1..40usize, w in 1..40usize, c in 1..4usize, index in 0..1000usize) {
        let before = image(h, w, c);
        let after = applied(&Erase::new(1.0).unwrap().value(-7.0), before.clone(), &Draw::new(1, 2, index));
        let erased = |y: usize, x: usize| after.input[(y * w + x) * c] == -7.0;
        let cells: Vec<(usize, usize)> = (0..h).flat_map(|y| (0..w).map(move |x| (y, x))).filter(|&(y, x)| erased(y, x)).collect();
        if let (Some(&(top, left)), Some(&(bottom, right))) = (cells.first(), cells.last()) {
            let (eh, ew) = (bottom + 1 - top, right + 1 - left);
            prop_assert_eq!(cells.len(), eh * ew);
            prop_assert!((eh * ew) as f64 <= 0.33 * (h * w) as f64 + 1e-3);
            // Both sides were rounded down, so the ratio is within those of one more row or column.
            prop_assert!((eh as f64) < 3.3 * (ew + 1) as f64 && (eh + 1) as f64 > 0.3 * ew as f64);
        }
        for i in 0..h * w * c {
            let inside = erased(i / c / w, i / c % w);
            prop_assert_eq!(after.input[i], if inside { -7.0 } else { before.input[i] });
        }
    }
}

#[test]
fn probabilities_are_met() {
    let flip = Flip::new(0.3).unwrap();
    let erase = Erase::new(0.25).unwrap();
    let before = image(16, 16, 1);
    let share = |t: &dyn Transform| {
        let changed = |i: usize| {
            let mut sample = before.clone();
            t.apply(&mut sample, &Draw::new(9, 0, i)).unwrap();
            sample.input != before.input
        };
        (0..4000).filter(|&i| changed(i)).count() as f64 / 4000.0
    };
    // Four standard deviations of 4,000 draws.
    assert!((share(&flip) - 0.3).abs() < 0.03);
    assert!((share(&erase) - 0.25).abs() < 0.03);
}

/// Seed, epoch, sample and stage each change the draws; the same four give the same.
#[test]
fn draws_are_pure_and_distinct() {
    let draws = |d: Draw| (0..8).map(|k| d.uniform(k)).collect::<Vec<_>>();
    let base = Draw::new(1, 2, 3);
    assert_eq!(draws(base), draws(Draw::new(1, 2, 3)));
    let mut all = vec![
        draws(base),
        draws(Draw::new(2, 2, 3)),
        draws(Draw::new(1, 3, 3)),
        draws(Draw::new(1, 2, 4)),
    ];
    for a in 0..20 {
        all.push(draws(base.stage(a)));
        for b in 0..20 {
            all.push(draws(base.stage(a).stage(b)));
            all.push(draws(base.stage(a).stage(b).stage(62)));
        }
    }
    let count = all.len();
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    all.dedup();
    assert_eq!(all.len(), count);
    // Two flips in one pipeline do not always agree.
    let both = Compose::new()
        .then(Flip::new(0.5).unwrap())
        .then(Flip::new(0.5).unwrap());
    let before = image(1, 2, 1);
    let mirrored = (0..64)
        .filter(|&i| applied(&both, before.clone(), &Draw::new(0, 0, i)) != before)
        .count();
    assert!((10..54).contains(&mirrored), "{mirrored}");
}

#[test]
fn arguments_are_checked() {
    fn refused<T>(result: Result<T, DataError>, name: &str) {
        assert!(matches!(result, Err(DataError::InvalidArgument { argument, .. }) if argument == name));
    }
    refused(Normalise::new(&[], &[]), "mean");
    refused(Normalise::new(&[1.0], &[1.0, 2.0]), "mean");
    refused(Normalise::new(&[f32::NAN], &[1.0]), "mean");
    for d in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        refused(Normalise::new(&[0.0], &[d]), "deviation");
    }
    for p in [-0.1, 1.1, f32::NAN] {
        refused(Flip::new(p), "probability");
        refused(Erase::new(p), "probability");
    }
    let erase = Erase::new(1.0).unwrap();
    for area in [(0.5, 0.1), (-0.1, 0.1), (0.1, 1.1), (f32::NAN, 0.1)] {
        refused(erase.bounds(area, (1.0, 1.0)), "area");
    }
    for aspect in [(0.0, 1.0), (2.0, 1.0), (1.0, f32::INFINITY)] {
        refused(erase.bounds((0.1, 0.2), aspect), "aspect");
    }
}

#[test]
fn samples_that_do_not_fit() {
    let draw = Draw::new(0, 0, 0);
    let mut vector = Sample::default();
    vector.fill(Shape::new(&[4]).unwrap(), [0.0; 4].into_iter()).unwrap();
    let refuses = |t: &dyn Transform, sample: &Sample| {
        let error = t.apply(&mut sample.clone(), &draw).unwrap_err();
        assert!(matches!(error, DataError::Shape { .. }), "{error}");
    };
    refuses(&Flip::new(1.0).unwrap(), &vector);
    refuses(&Erase::new(1.0).unwrap(), &vector);
    refuses(&Crop::new(2, 2, 0), &vector);
    let small = image(3, 3, 1);
    refuses(&Crop::new(6, 3, 1), &small);
    refuses(&Crop::new(3, 4, 0), &small);
    refuses(&Crop::new(3, 3, usize::MAX), &small);
    refuses(&Normalise::new(&[0.0; 3], &[1.0; 3]).unwrap(), &small);
    // Crops of nothing and from nothing.
    assert!(applied(&Crop::new(0, 2, 0), small.clone(), &draw).input.is_empty());
    assert_eq!(applied(&Crop::new(2, 2, 1), image(0, 0, 2), &draw).input, [0.0; 8]);
    assert!(applied(&Crop::new(2, 2, 1), image(2, 2, 0), &draw).input.is_empty());
    let mut sample = Sample::default();
    assert!(matches!(
        sample.fill(Shape::scalar(), [].into_iter()),
        Err(DataError::Shape { .. })
    ));
}
