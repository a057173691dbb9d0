//! A kernel that leaves a tensor. It stops every context of its process, so the test has a process of its own.

use kiln_core::{DType, Error, Runtime};
use kiln_cuda::Cuda;
use kiln_example_kernel::SquaredRelu;

#[test]
fn an_index_outside_of_a_slice_stops_the_kernel() {
    // The checker of the emulated driver would count the access, which is the one that is wanted here.
    if std::env::var_os("KILN_EMULATOR_CHECK").is_some() {
        return;
    }
    kiln_device::emulator::use_beside().unwrap_or_else(|e| panic!("{e}"));
    let cuda = Cuda::new(0).unwrap_or_else(|e| panic!("{e}"));
    let (x, mut y) = (cuda.upload(&[1f32]).unwrap(), cuda.alloc(DType::F32, 512).unwrap());
    let launched = cuda.squared_relu(&x, &mut y).and_then(|()| cuda.sync());
    let Err(Error::DeviceUnavailable { reason, .. }) = launched else {
        panic!("{launched:?}");
    };
    assert!(reason.contains("squared_relu") && reason.contains("719"), "{reason}");
}
