//! Runs the examples for a few steps.

#![allow(dead_code, missing_docs)]

#[path = "../examples/custom_layer.rs"]
mod custom_layer;
#[path = "../examples/gradient_penalty.rs"]
mod gradient_penalty;
#[path = "../examples/own_training_loop.rs"]
mod own_training_loop;
#[path = "../examples/train_mnist.rs"]
mod train_mnist;

use kiln_train::TrainOptions;

#[test]
fn train_mnist() {
    let options = TrainOptions {
        max_steps: Some(3),
        ..Default::default()
    };
    train_mnist::run(options).unwrap();
}

#[test]
fn own_training_loop() {
    let accuracy = own_training_loop::run(60).unwrap();
    assert!(accuracy > 0.6, "{accuracy}");
}

#[test]
fn custom_layer() {
    let loss = custom_layer::run(100).unwrap();
    assert!(loss < 0.7, "{loss}: the product's variance is 1");
}

#[test]
fn gradient_penalty() {
    let [distance, slope] = gradient_penalty::run(60).unwrap();
    assert!(distance > 0.5 && (0.5..1.5).contains(&slope), "{distance}, {slope}");
}
