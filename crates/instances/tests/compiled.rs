//! A program that names the crate uses its code instead of compiling its own.

use kiln_instances::cpu::{Cpu, DType, Tensor};

/// The address of a function as this program calls it.
fn address(function: *const ()) -> usize {
    function as usize
}

#[test]
fn this_program_has_no_copy_of_its_own() {
    let listed: Vec<usize> = kiln_instances::cpu::functions().into_iter().map(address).collect();
    for function in [
        Tensor::backward as *const (),
        Tensor::prelu as *const (),
        Tensor::to_dtype as *const (),
    ] {
        assert!(listed.contains(&address(function)));
    }
}

#[test]
fn the_names_are_those_of_the_generic_crate() {
    let x = Tensor::ones(&Cpu::new(), &[2], DType::F32).unwrap();
    let same: kiln_nn::Tensor<kiln_cpu::Cpu> = x;
    assert_eq!(same.to_vec::<f32>().unwrap(), [1.0; 2]);
}
