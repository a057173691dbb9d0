//! Mean average precision, compared with pycocotools.

use crate::golden::{assert_near, floats, golden, indices, output, tensor, values};
use kiln_cpu::Cpu;
use kiln_train::{Detection, DetectionEval, GroundTruth, MeanAveragePrecision, Metric, Output};
use proptest::prelude::*;
use serde_json::Value;

const EXACT: f64 = 1e-12;

type Image = (Vec<Detection>, Vec<GroundTruth>);

fn image(value: &Value) -> Image {
    let part = |name: &str| value[name].as_array().unwrap().clone();
    let number = |x: &Value| x.as_f64().unwrap();
    let bounds = |x: &Value| std::array::from_fn(|i| number(&x[i]));
    let detection = |x: &Value| Detection {
        bounds: bounds(x),
        class: number(&x[4]) as usize,
        score: number(&x[5]),
    };
    let truth = |x: &Value| GroundTruth {
        bounds: bounds(x),
        class: number(&x[4]) as usize,
        crowd: number(&x[5]) != 0.0,
        area: x[6].as_f64(),
    };
    (
        part("detections").iter().map(detection).collect(),
        part("truths").iter().map(truth).collect(),
    )
}

fn evaluated(images: &[Image]) -> DetectionEval {
    let mut eval = DetectionEval::new();
    for (detections, truths) in images {
        eval.add(detections, truths).unwrap();
    }
    eval
}

/// The bounds of a box, or its corners.
fn edges([x, y, w, h]: [f64; 4], corners: bool) -> [f64; 4] {
    if corners { [x, y, x + w, y + h] } else { [x, y, w, h] }
}

/// A batch padded with boxes of NaN, by at least one.
fn outputs(images: &[Image], corners: bool) -> Output<Cpu> {
    let n = images.len();
    let found = images.iter().map(|i| i.0.len()).max().unwrap() + 1;
    let there = images.iter().map(|i| i.1.len()).max().unwrap();
    let (mut boxes, mut scores, mut classes) = (
        vec![f64::NAN; n * found * 4],
        vec![f64::NAN; n * found],
        vec![-1; n * found],
    );
    let (mut true_boxes, mut true_classes) = (vec![f64::NAN; n * there * 4], vec![-1; n * there]);
    let (mut crowds, mut areas) = (vec![0; n * there], vec![-1.0; n * there]);
    for (i, (detections, truths)) in images.iter().enumerate() {
        for (at, d) in (i * found..).zip(detections) {
            boxes[4 * at..4 * at + 4].copy_from_slice(&edges(d.bounds, corners));
            (scores[at], classes[at]) = (d.score, d.class as i32);
        }
        for (at, t) in (i * there..).zip(truths) {
            true_boxes[4 * at..4 * at + 4].copy_from_slice(&edges(t.bounds, corners));
            (true_classes[at], crowds[at]) = (t.class as i32, i32::from(t.crowd));
            areas[at] = t.area.unwrap_or(-1.0);
        }
    }
    output()
        .with("boxes", tensor(&boxes, &[n, found, 4]))
        .with("box_scores", tensor(&scores, &[n, found]))
        .with("box_classes", indices(&classes, &[n, found]))
        .with("true_boxes", tensor(&true_boxes, &[n, there, 4]))
        .with("true_classes", indices(&true_classes, &[n, there]))
        .with("true_crowds", indices(&crowds, &[n, there]))
        .with("true_areas", tensor(&areas, &[n, there]))
}

#[test]
fn all_numbers_equal_those_of_pycocotools() {
    for case in golden("coco", "detection") {
        let images: Vec<Image> = case["images"].as_array().unwrap().iter().map(image).collect();
        let summary = evaluated(&images).summary();
        let stats = floats(&case["stats"]);
        for ((_, found), &expected) in summary.stats().into_iter().zip(&stats) {
            assert_near(found, expected, EXACT);
        }
        for (class, expected) in floats(&case["classes"]).into_iter().enumerate() {
            let found = summary.classes.iter().find(|c| c.0 == class).map_or(-1.0, |c| c.1);
            assert_near(found, expected, EXACT);
        }
        for (corners, size) in [(false, 1), (true, 7), (false, images.len())] {
            let mut metric = match corners {
                true => MeanAveragePrecision::corners(),
                false => MeanAveragePrecision::new(),
            };
            let batch = |from: usize, to: usize| outputs(&images[from..to], corners);
            let values = values(&mut metric, images.len(), size, batch).unwrap();
            for ((name, _), &expected) in summary.stats().into_iter().zip(&stats) {
                assert_near(values[name], expected, EXACT);
            }
            assert_eq!(metric.summary().unwrap().classes.len(), summary.classes.len());
        }
    }
}

#[test]
fn crowds_and_areas_need_not_be_handed_out() {
    let truth = |class| GroundTruth {
        bounds: [0.0, 0.0, 50.0, 50.0],
        class,
        crowd: false,
        area: None,
    };
    let found = Detection {
        bounds: [0.0, 0.0, 50.0, 50.0],
        class: 0,
        score: 0.5,
    };
    let mut output = outputs(&[(vec![found], vec![truth(0), truth(1)])], false);
    output.values.truncate(5);
    let values = values(&mut MeanAveragePrecision::new(), 1, 1, |_, _| output.clone()).unwrap();
    assert_near(values["map"], 0.5, EXACT);
    assert_near(values["map_medium"], 0.5, EXACT);
    assert_eq!(values["map_small"], -1.0);
}

#[test]
fn faulty_boxes_are_errors() {
    let found = |bounds, score| Detection {
        bounds,
        class: 0,
        score,
    };
    let good = [0.0, 0.0, 4.0, 4.0];
    let faulty = [
        found([f64::NAN, 0.0, 4.0, 4.0], 0.5),
        found([0.0, 0.0, -4.0, 4.0], 0.5),
        found(good, f64::NAN),
    ];
    for detection in faulty {
        assert!(DetectionEval::new().add(&[detection], &[]).is_err());
        let batch = |_, _| outputs(&[(vec![detection], vec![])], false);
        assert!(values(&mut MeanAveragePrecision::new(), 1, 1, batch).is_err());
    }
    let truth = GroundTruth {
        bounds: good,
        class: 0,
        crowd: false,
        area: Some(-1.0),
    };
    assert!(DetectionEval::new().add(&[], &[truth]).is_err());
    let other = outputs(&[(vec![found(good, 0.5)], vec![])], false).with("boxes", tensor(&[0.0; 4], &[1, 4]));
    let mut other = other;
    other.values.remove(0);
    assert!(Metric::<Cpu>::measure(&MeanAveragePrecision::new(), &other).is_err());
    assert_eq!(DetectionEval::new().summary().ap, -1.0);
}

fn boxes() -> impl Strategy<Value = [f64; 4]> {
    [0u8..60, 0u8..60, 1u8..120, 1u8..120].prop_map(|b| b.map(f64::from))
}

fn images() -> impl Strategy<Value = Vec<Image>> {
    let detection = (boxes(), 0usize..3, any::<u32>()).prop_map(|(bounds, class, score)| Detection {
        bounds,
        class,
        // Exact in f32, and different in all likelihood, as the order of ties is that of the images.
        score: f64::from(score >> 8),
    });
    let truth = (boxes(), 0usize..3, any::<bool>()).prop_map(|(bounds, class, crowd)| GroundTruth {
        bounds,
        class,
        crowd,
        area: None,
    });
    let image = (
        prop::collection::vec(detection, 0..6),
        prop::collection::vec(truth, 0..6),
    );
    prop::collection::vec(image, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn batches_and_order_do_not_matter(mut images in images(), size in 1usize..5) {
        let stats = |images: &[Image]| evaluated(images).summary().stats().map(|s| s.1);
        let whole = stats(&images);
        prop_assert!(whole.iter().all(|&s| s == -1.0 || (0.0..=1.0).contains(&s)));
        prop_assert!(whole[0] <= whole[1] && whole[2] <= whole[1]);
        prop_assert!(whole[6] <= whole[7] && whole[7] <= whole[8]);
        let batch = |from: usize, to: usize| outputs(&images[from..to], false);
        let values = values(&mut MeanAveragePrecision::new(), images.len(), size, batch).unwrap();
        prop_assert_eq!(values["map"], whole[0]);
        images.reverse();
        prop_assert_eq!(stats(&images), whole);
        for (detections, truths) in &mut images {
            detections.reverse();
            // Every object is found where it is.
            detections.clear();
            let found = |t: &GroundTruth| Detection { bounds: t.bounds, class: t.class, score: 1.0 };
            detections.extend(truths.iter().filter(|t| !t.crowd).map(found));
        }
        let perfect = evaluated(&images).summary();
        prop_assert!(perfect.ap == -1.0 || perfect.ar100 == 1.0 && perfect.ap > 1.0 - EXACT);
    }
}
