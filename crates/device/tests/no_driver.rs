//! Without a driver there are no devices, and a reason is given. In its own process, since a driver stays once it is loaded.

use kiln_device::{Context, Error, devices, driver, set_driver};

#[test]
fn without_a_driver_there_are_no_devices_and_a_reason() {
    let missing = "/no/such/folder/libcuda.so.1";
    // SAFETY: this is the only test of its process, and no other thread reads the environment.
    unsafe { std::env::set_var("KILN_CUDA_DRIVER", missing) };
    assert_eq!(devices().unwrap(), []);
    let Err(Error::NoDriver { reason }) = Context::new(0) else {
        panic!("a context without a driver")
    };
    assert!(
        reason.contains(missing) && reason.contains("KILN_CUDA_DRIVER"),
        "{reason}"
    );
    let said = driver().unwrap_err().to_string();
    assert!(said.contains(missing) && said.contains("install"), "{said}");

    // A library that is no driver.
    // SAFETY: as above.
    unsafe { std::env::remove_var("KILN_CUDA_DRIVER") };
    set_driver("libc.so.6").unwrap();
    let said = driver().unwrap_err().to_string();
    assert!(said.contains("libc.so.6") && said.contains("cuInit"), "{said}");
    assert_eq!(devices().unwrap(), []);
}
