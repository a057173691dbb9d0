//! Batches as tensors on a backend.

use kiln_core::{DType, Runtime, Shape};
use kiln_cpu::Cpu;
use kiln_data::{Arrays, Labels, Loader, LoaderOptions, Synthetic};
use std::sync::Arc;

#[test]
fn batches_arrive_as_they_are() {
    let cpu = Cpu::new();
    let data = Synthetic::images(7, &[3, 5, 2], 4, 0).unwrap();
    let options = LoaderOptions {
        batch_size: 4,
        workers: 2,
        ..Default::default()
    };
    let loader = Loader::new(Arc::new(data), options).unwrap();
    let mut sizes = Vec::new();
    for batch in loader.epoch(0).unwrap() {
        let host = batch.unwrap();
        let batch = host.to_device(&cpu).unwrap();
        assert_eq!(batch.inputs.shape().dims(), host.inputs.shape());
        assert_eq!(batch.inputs.dtype(), DType::F32);
        assert_eq!(batch.inputs.to_ndarray::<f32>().unwrap(), host.inputs);
        assert_eq!(batch.labels.shape().dims(), [host.len()]);
        assert_eq!(batch.labels.to_vec::<i32>().unwrap(), host.labels.to_vec());
        assert!(batch.targets.is_none());
        sizes.push(batch.inputs.shape()[0]);
    }
    assert_eq!(sizes, [4, 3]);
}

#[test]
fn targets_come_along() {
    let shape = Shape::new(&[2]).unwrap();
    let data = Arrays::new(shape, vec![1.0; 6], Labels::Targets(vec![1.0, 2.0, 3.0], 1)).unwrap();
    let loader = Loader::new(Arc::new(data), LoaderOptions::default()).unwrap();
    let host = loader.epoch(0).unwrap().next().unwrap().unwrap();
    let targets = host.to_device(&Cpu::new()).unwrap().targets.unwrap();
    assert_eq!(targets.shape().dims(), [3, 1]);
    assert_eq!(targets.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
}

/// Once the first epochs have filled the caches, a batch on the device costs no allocation there.
#[test]
fn device_memory_is_used_again() {
    let cpu = Cpu::new();
    let data = Synthetic::images(12, &[4, 4, 1], 2, 0).unwrap();
    let options = LoaderOptions {
        batch_size: 4,
        ..Default::default()
    };
    let loader = Loader::new(Arc::new(data), options).unwrap();
    let epoch = |n| {
        loader
            .epoch(n)
            .unwrap()
            .for_each(|b| drop(b.unwrap().to_device(&cpu).unwrap()))
    };
    epoch(0);
    let before = cpu.memory().allocations;
    epoch(1);
    assert_eq!(cpu.memory().allocations, before);
}
