//! Detectors at small sizes: sizes, names, what they refuse, and that they learn.

use kiln_core::{DType, Error};
use kiln_cpu::Cpu;
use kiln_models::{BodyConfig, FasterRcnn, FasterRcnnConfig, RoiConfig, Yolo, YoloConfig, YoloTargets};
use kiln_nn::detection::{Boxes, Detections, overlaps};
use kiln_nn::optim::{Adam, Optimizer};
use kiln_nn::{Init, LoadOptions, Module, Rng, Tensor, autocast};

const SIDE: usize = 64;

/// A Faster R-CNN for tests.
fn faster_rcnn() -> FasterRcnn<Cpu> {
    let small = FasterRcnnConfig::SMALL;
    let config = FasterRcnnConfig {
        body: BodyConfig {
            blocks: [1; 4],
            width: 8,
            ..small.body
        },
        channels: 16,
        anchor_sizes: [8.0, 16.0, 24.0, 32.0, 48.0],
        roi: RoiConfig {
            representation: 32,
            ..small.roi
        },
        ..small
    };
    FasterRcnn::new(Init::new(&Cpu::new(), 1), config).unwrap()
}

/// A YOLO for tests.
fn yolo() -> Yolo<Cpu> {
    let config = YoloConfig {
        classes: 3,
        width: 0.125,
        bins: 6,
        ..YoloConfig::NANO
    };
    Yolo::new(Init::new(&Cpu::new(), 1), config).unwrap()
}

/// Images with a square of one of three colours on noise, the last without any.
fn squares(count: usize) -> (Tensor<Cpu>, Vec<Boxes>) {
    let noise = Tensor::<Cpu>::uniform(
        &Cpu::new(),
        &[count, SIDE, SIDE, 3],
        DType::F32,
        0.0,
        0.2,
        &mut Rng::new(9),
    )
    .unwrap();
    let mut pixels = noise.to_vec::<f32>().unwrap();
    let mut targets = Vec::new();
    for i in 0..count {
        if i + 1 == count {
            targets.push(Boxes::default());
            continue;
        }
        let (side, class) = (16 + 4 * i, i % 3);
        let (left, top) = (5 + 7 * i, 30 - 6 * i);
        for y in top..top + side {
            for x in left..left + side {
                pixels[((i * SIDE + y) * SIDE + x) * 3 + class] = 1.0;
            }
        }
        targets.push(Boxes {
            xyxy: vec![[left, top, left + side, top + side].map(|v| v as f32)],
            classes: vec![class as i32],
        });
    }
    let images = Tensor::from_slice(&Cpu::new(), &pixels, &[count, SIDE, SIDE, 3]).unwrap();
    (images, targets)
}

/// The losses of `steps` steps.
fn learned<M: Module<Cpu>>(net: &mut M, steps: usize, loss: impl Fn(&M) -> Tensor<Cpu>) -> Vec<f64> {
    let mut adam = Adam::new(2e-3);
    let step = |_| {
        let loss = loss(net);
        let grads = loss.backward().unwrap();
        for (name, p) in net.named_parameters() {
            let grad = grads.get(p).unwrap_or_else(|| panic!("{name} has no gradient"));
            assert!(grad.to_f64().unwrap().iter().all(|g| g.is_finite()), "{name}");
        }
        adam.step(net, &grads).unwrap();
        loss.item().unwrap()
    };
    (0..steps).map(step).collect()
}

/// True if the best box of an image is of the class, and covers the target by a half.
fn finds((found, target): (&Detections, &Boxes)) -> bool {
    let covers = |best: &[f32; 4]| overlaps(&[*best], &target.xyxy)[0] > 0.5;
    found.boxes.first().is_some_and(covers) && found.classes[0] == target.classes[0]
}

#[test]
fn faster_rcnn_learns_squares() {
    let (mut net, (images, targets)) = (faster_rcnn(), squares(4));
    let losses = learned(&mut net, 30, |net| {
        net.loss(&images, &targets).unwrap().total().unwrap()
    });
    assert!(losses[29] < 0.5 * losses[0], "{losses:?}");
    net.eval();
    let found = net.detect(&images).unwrap();
    assert!(found.iter().zip(&targets[..3]).any(finds), "{found:?}");
}

#[test]
fn yolo_learns_squares() {
    let (mut net, (images, targets)) = (yolo(), squares(4));
    let losses = learned(&mut net, 40, |net| {
        net.loss(&images, &targets).unwrap().total().unwrap()
    });
    assert!(losses[39] < 0.3 * losses[0], "{losses:?}");
    // By the statistics of the batch: the running ones, which move by 0.03 a step, are not there yet.
    let found = net.detect(&images).unwrap();
    assert!(found.iter().zip(&targets[..3]).any(finds), "{found:?}");
}

/// In mixed precision the losses are computed in f32 from features in bf16.
#[test]
fn losses_in_mixed_precision_are_near() {
    let (rcnn, yolo, (images, targets)) = (faster_rcnn(), yolo(), squares(2));
    let first = rcnn.state_dict();
    let of_rcnn = || {
        let mut again = faster_rcnn();
        again.load_state_dict(&first, LoadOptions::strict()).unwrap();
        again.loss(&images, &targets)?.objectness.item()
    };
    let of_yolo = || yolo.loss(&images, &targets)?.total()?.item();
    for (full, half) in [
        (of_rcnn().unwrap(), autocast(DType::BF16, of_rcnn).unwrap()),
        (of_yolo().unwrap(), autocast(DType::BF16, of_yolo).unwrap()),
    ] {
        assert!((full - half).abs() < 0.05 * full, "{half} in bf16, {full} in f32");
    }
    let grads = autocast(DType::BF16, || rcnn.loss(&images, &targets)?.total())
        .unwrap()
        .backward()
        .unwrap();
    assert!(
        rcnn.parameters()
            .into_iter()
            .all(|p| grads.get(p).is_some_and(|g| g.dtype() == DType::F32))
    );
}

/// Room for more targets changes nothing.
#[test]
fn empty_targets_are_none() {
    let (net, (images, targets)) = (yolo(), squares(3));
    let with = |room| {
        let targets = YoloTargets::new(&Cpu::new(), &targets, room).unwrap();
        net.loss_of(&images, &targets).unwrap().total().unwrap().item().unwrap()
    };
    assert_eq!(
        with(5),
        net.loss(&images, &targets).unwrap().total().unwrap().item().unwrap()
    );
}

/// The draws of a step are those of the number of steps before, which is saved with the weights.
#[test]
fn faster_rcnn_draws_again_from_saved_weights() {
    let (net, (images, targets)) = (faster_rcnn(), squares(2));
    let total = |net: &FasterRcnn<Cpu>| net.loss(&images, &targets).unwrap().total().unwrap().item().unwrap();
    let before = net.state_dict();
    let first = total(&net);
    assert_ne!(total(&net), first);
    let mut again = faster_rcnn();
    again.load_state_dict(&before, LoadOptions::strict()).unwrap();
    assert_eq!(total(&again), first);
}

#[test]
fn yolos_have_the_parameters_of_ultralytics() {
    for (config, parameters) in [(YoloConfig::NANO, 3_157_184), (YoloConfig::SMALL, 11_166_544)] {
        let net = Yolo::<Cpu>::new(Init::new(&Cpu::new(), 0), config).unwrap();
        assert_eq!(net.num_parameters(), parameters);
    }
}

#[test]
fn faster_rcnn_has_the_parameters_of_torchvision() {
    let mut net = FasterRcnn::<Cpu>::new(Init::new(&Cpu::new(), 0), FasterRcnnConfig::COCO).unwrap();
    // With the scales and shifts of batch norms, which are frozen: torchvision has these as buffers, and 41,755,286 parameters, of which
    // the stem's 9,408 and the first stage's 212,992 are frozen too.
    assert_eq!((net.num_parameters(), net.num_trainable()), (41_808_406, 41_532_886));
    let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
    for name in [
        "backbone.body.layer4.2.conv3.weight",
        "backbone.fpn.inner_blocks.3.0.bias",
        "backbone.fpn.layer_blocks.0.0.weight",
        "rpn.head.conv.0.0.weight",
        "rpn.head.cls_logits.bias",
        "roi_heads.box_head.fc6.weight",
        "roi_heads.box_predictor.bbox_pred.weight",
    ] {
        assert!(names.iter().any(|n| n == name), "{name}");
    }
    net.train();
    let images = Tensor::zeros(&Cpu::new(), &[1, 64, 32, 3], DType::F32).unwrap();
    assert!(net.detect(&images).is_ok());
}

#[test]
fn images_and_targets_that_do_not_fit_are_refused() {
    let (rcnn, yolo) = (faster_rcnn(), yolo());
    let of = |shape: &[usize]| Tensor::<Cpu>::zeros(&Cpu::new(), shape, DType::F32).unwrap();
    let invalid = |e: Error, argument: &str| {
        assert!(
            matches!(&e, Error::InvalidArgument { argument: found, .. } if *found == argument),
            "{e}"
        );
    };
    let (images, none) = (of(&[1, SIDE, SIDE, 3]), [Boxes::default()]);
    for shape in [
        &[1, SIDE, SIDE, 1][..],
        &[SIDE, SIDE, 3],
        &[1, 16, SIDE, 3],
        &[0, SIDE, SIDE, 3],
    ] {
        invalid(rcnn.loss(&of(shape), &none).err().unwrap(), "images");
        invalid(rcnn.detect(&of(shape)).err().unwrap(), "images");
        invalid(yolo.loss(&of(shape), &none).err().unwrap(), "images");
        invalid(yolo.detect(&of(shape)).err().unwrap(), "images");
    }
    invalid(rcnn.loss(&images, &[]).err().unwrap(), "targets");
    invalid(yolo.loss(&images, &[]).err().unwrap(), "targets");
    let class = [Boxes {
        xyxy: vec![[1.0, 1.0, 9.0, 9.0]],
        classes: vec![3],
    }];
    invalid(rcnn.loss(&images, &class).err().unwrap(), "classes");
    invalid(yolo.loss(&images, &class).err().unwrap(), "classes");
    let room = YoloTargets::new(&Cpu::new(), &[none[0].clone(), none[0].clone()], 3).unwrap();
    invalid(yolo.loss_of(&images, &room).err().unwrap(), "targets");
    let config = YoloConfig {
        bins: 1,
        ..*yolo.config()
    };
    invalid(
        Yolo::<Cpu>::new(Init::new(&Cpu::new(), 0), config).err().unwrap(),
        "bins",
    );
    let config = FasterRcnnConfig {
        classes: 0,
        ..*rcnn.config()
    };
    invalid(
        FasterRcnn::<Cpu>::new(Init::new(&Cpu::new(), 0), config).err().unwrap(),
        "classes",
    );
}

/// As torchvision's `trainable_backbone_layers`: stem first, frozen with its norm.
#[test]
fn the_first_stages_of_a_body_keep_their_weights() {
    let small = FasterRcnnConfig::SMALL;
    for (trained_stages, kept) in [
        (2, &["conv1", "bn1", "layer1", "layer2"][..]),
        (4, &["conv1", "bn1"]),
        (5, &[]),
    ] {
        let config = FasterRcnnConfig {
            body: BodyConfig {
                blocks: [1; 4],
                width: 4,
                trained_stages,
                ..small.body
            },
            ..small
        };
        let net = FasterRcnn::new(Init::new(&Cpu::new(), 1), config).unwrap();
        for (name, param) in net.named_parameters() {
            let part = name
                .strip_prefix("backbone.body.")
                .and_then(|name| name.split('.').next());
            let frozen = part.is_some_and(|part| kept.contains(&part));
            assert_eq!(param.is_trainable(), !frozen, "{name}");
        }
    }
}
