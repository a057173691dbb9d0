//! Faster R-CNN against torchvision's, and YOLO against that of ultralytics. `faster_rcnn.py` and `yolo.py` make the files.

use super::{Golden, close, gradient};
use kiln_core::DType;
use kiln_cpu::Cpu;
use kiln_models::{BodyConfig, FasterRcnn, FasterRcnnConfig, RoiConfig, RpnConfig, Yolo, YoloConfig};
use kiln_nn::detection::{Boxes, Detections};
use kiln_nn::{Init, Module, Tensor};

/// Compares with a bound relative to the largest value: boxes pass through f32 on the host.
fn near(got: &Tensor<Cpu>, want: &Tensor<Cpu>, bound: f64, what: &str) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let (got, want) = (got.to_f64().unwrap(), want.to_f64().unwrap());
    let largest = want.iter().fold(0f64, |a, w| a.max(w.abs()));
    for (g, w) in got.iter().zip(&want) {
        assert!((g - w).abs() <= bound * largest, "{what}: {g}, expected {w}");
    }
}

/// A tensor of the file as boxes.
fn corners(x: &Tensor<Cpu>) -> Vec<[f32; 4]> {
    kiln_nn::detection::read_boxes(x).unwrap()
}

/// The images of a file, channels-last.
fn images(golden: &Golden) -> Tensor<Cpu> {
    golden.float("x").permute(&[0, 2, 3, 1]).unwrap()
}

fn same_objects(golden: &Golden, prefix: &str, found: &[Detections]) {
    for (i, found) in found.iter().enumerate() {
        let of = |what: &str| format!("{prefix}-{i}-{what}");
        let labels: Vec<i32> = golden.int(&of("labels")).to_vec().unwrap();
        // torchvision's class 0 is background.
        let wanted: Vec<i32> = labels.iter().map(|label| label - 1).collect();
        assert!(wanted.len() > 20, "{prefix}: so few objects tell little");
        assert_eq!(found.classes, wanted, "{prefix}, image {i}");
        let scores = golden.float(&of("scores")).to_f64().unwrap();
        for (got, want) in found.scores.iter().zip(scores) {
            assert!(
                (f64::from(*got) - want).abs() < 1e-5,
                "{prefix}: {got}, expected {want}"
            );
        }
        for (got, want) in found.boxes.iter().zip(corners(&golden.float(&of("boxes")))) {
            let apart = got.iter().zip(want).fold(0f32, |a, (g, w)| a.max((g - w).abs()));
            assert!(apart < 1e-3, "{prefix}: {got:?}, expected {want:?}");
        }
    }
}

#[test]
fn faster_rcnn_equals_torchvisions() {
    let golden = Golden::of(include_bytes!("../../golden/faster_rcnn.safetensors"));
    for (prefix, bottleneck) in [("bottleneck", true), ("basic", false)] {
        let coco = FasterRcnnConfig::COCO;
        let config = FasterRcnnConfig {
            classes: 3,
            body: BodyConfig {
                blocks: [1; 4],
                width: 4,
                bottleneck,
                frozen_norm: true,
                trained_stages: 5,
            },
            channels: 8,
            anchor_sizes: [8.0, 16.0, 24.0, 32.0, 64.0],
            rpn: RpnConfig {
                sampled: (1_000_000, 0.5),
                before_nms: (100, 50),
                after_nms: (60, 40),
                ..coco.rpn
            },
            roi: RoiConfig {
                sampled: (1_000_000, 0.25),
                representation: 16,
                ..coco.roi
            },
            ..coco
        };
        let mut net: FasterRcnn<Cpu> = golden.load(prefix, &[], |init| FasterRcnn::new(init, config));
        let x = images(&golden);
        same_objects(&golden, prefix, &net.detect(&x).unwrap());

        net.train();
        let target = |i| Boxes {
            xyxy: corners(&golden.float(&format!("boxes-{i}"))),
            classes: golden.int(&format!("labels-{i}")).sub(1).unwrap().to_vec().unwrap(),
        };
        let losses = net.loss(&x, &[target(0), target(1)]).unwrap();
        let each = [
            ("loss_classifier", &losses.classifier),
            ("loss_box_reg", &losses.box_reg),
            ("loss_objectness", &losses.objectness),
            ("loss_rpn_box_reg", &losses.rpn_box_reg),
        ];
        for (name, loss) in each {
            near(loss, &golden.float(&format!("{prefix}-{name}")), 1e-5, name);
        }
        let grads = losses.total().unwrap().backward().unwrap();
        for name in ["backbone.body.conv1.weight", "rpn.head.bbox_pred.weight"] {
            let parameters = net.named_parameters();
            let (_, of) = parameters.iter().find(|(n, _)| n == name).unwrap();
            let want = golden.float(&format!("{prefix}-d-{}", name.replace('.', "-")));
            let want = want.permute(&[0, 2, 3, 1]).unwrap();
            near(grads.get(of).unwrap(), &want, 1e-4, name);
        }
    }
}

#[test]
fn yolo_equals_that_of_ultralytics() {
    let golden = Golden::of(include_bytes!("../../golden/yolo.safetensors"));
    let config = YoloConfig {
        classes: 3,
        width: 0.0625,
        bins: 6,
        ..YoloConfig::NANO
    };
    // The constant numbers of the bins.
    let others = ["model.22.dfl.conv.weight"];
    let mut net: Yolo<Cpu> = golden.load("yolo", &others, |init: Init<Cpu>| Yolo::new(init, config));
    let x = images(&golden);
    let (boxes, scores) = net.forward(&x).unwrap();
    let found = golden.float("found").permute(&[0, 2, 1]).unwrap();
    let (from, to) = (
        kiln_nn::detection::BoxFormat::Xyxy,
        kiln_nn::detection::BoxFormat::Cxcywh,
    );
    let middles = kiln_nn::detection::box_convert(&boxes, from, to).unwrap();
    near(&middles, &found.narrow(-1, 0, 4).unwrap(), 1e-11, "boxes");
    close(&scores, &found.narrow(-1, 4, 3).unwrap(), "scores");

    net.train();
    let (all, classes) = (
        corners(&golden.float("boxes")),
        golden.int("classes").to_vec::<i32>().unwrap(),
    );
    let mut targets = [Boxes::default(), Boxes::default()];
    for (i, image) in golden.int("images").to_vec::<usize>().unwrap().into_iter().enumerate() {
        targets[image].xyxy.push(all[i]);
        targets[image].classes.push(classes[i]);
    }
    let losses = net.loss(&x, &targets).unwrap();
    let each = Tensor::stack(&[&losses.boxes, &losses.classes, &losses.distances], 0).unwrap();
    // ultralytics adds 1e-7 at other places, and keeps the losses in f32.
    near(&each, &golden.float("losses"), 1e-6, "losses");
    let one = Tensor::ones(&Cpu::poisoned(), &[], DType::F64).unwrap();
    let dw = gradient(&net, "model.0.conv.weight", &losses.total().unwrap(), &one);
    near(
        &dw,
        &golden.float("gradient").permute(&[0, 2, 3, 1]).unwrap(),
        1e-5,
        "gradient",
    );
}
