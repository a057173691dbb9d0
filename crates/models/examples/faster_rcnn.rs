//! Compares [`FasterRcnn`] with `fasterrcnn_resnet50_fpn` of torchvision, on the weights, the image and the answers in a file that
//! `crates/models/tests/golden/faster_rcnn.py --full FILE` makes:
//!
//! ```text
//! cargo run -p kiln-models --example faster_rcnn -- full.safetensors
//! ```
//!
//! It prints how many objects both found, and how far boxes and scores are apart, and fails if that is more than 0.1 pixel or 0.001.

use kiln_core::DType;
use kiln_cpu::Cpu;
use kiln_models::{FasterRcnn, FasterRcnnConfig};
use kiln_nn::detection::read_boxes;
use kiln_nn::{Init, Layout, LoadOptions, Module, weights};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args()
        .nth(1)
        .ok_or("the argument is a file of faster_rcnn.py --full")?;
    let cpu = Cpu::new();
    let (entries, _) = weights::read(Path::new(&file), &cpu)?;
    let float = |name: &str| -> Result<_, Box<dyn Error>> {
        Ok(entries
            .float(name)
            .ok_or_else(|| format!("{file} has no {name}"))?
            .to_dtype(DType::F32)?)
    };
    let mut net = FasterRcnn::new(Init::new(&cpu, 0), FasterRcnnConfig::COCO)?;
    let report = net.load_state_dict(&entries.part("full"), LoadOptions::partial().layout(Layout::Torch))?;
    let known = report.missing.iter().all(|name| name == "step");
    if !known || !report.unexpected.is_empty() || !report.mismatched.is_empty() {
        return Err(report.to_string().into());
    }
    net.eval();
    let found = net.detect(&float("x")?.permute(&[0, 2, 3, 1])?)?.remove(0);
    let labels: Vec<i32> = entries.int("full-0-labels").ok_or("no labels")?.to_vec()?;
    let (scores, boxes) = (
        float("full-0-scores")?.to_vec::<f32>()?,
        read_boxes(&float("full-0-boxes")?)?,
    );
    println!("{} objects, torchvision {}", found.len(), labels.len());
    let (mut score, mut side, mut classes) = (0f32, 0f32, 0);
    for i in 0..found.len().min(labels.len()) {
        score = score.max((found.scores[i] - scores[i]).abs());
        side = found.boxes[i]
            .iter()
            .zip(boxes[i])
            .fold(side, |most, (a, b)| most.max((a - b).abs()));
        classes += usize::from(found.classes[i] + 1 != labels[i]);
    }
    println!("boxes {side:e} pixels apart at most, scores {score:e}, {classes} of other classes");
    match found.len() == labels.len() && classes == 0 && side < 0.1 && score < 1e-3 {
        true => Ok(()),
        false => Err("the two differ".into()),
    }
}
