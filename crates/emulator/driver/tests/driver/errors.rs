//! Names of errors, and errors that stay.

use std::ffi::{CStr, c_char};

use kiln_emulator::*;

use super::harness::{child, process, start};

fn test(name: &str, options: &[(&str, &str)], body: impl FnOnce()) -> String {
    process(&format!("errors::{name}"), options, body)
}

#[test]
fn codes_have_names_and_meanings() {
    let mut text: *const c_char = std::ptr::null();
    for (code, name) in [
        (0, "CUDA_SUCCESS"),
        (2, "CUDA_ERROR_OUT_OF_MEMORY"),
        (908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"),
    ] {
        cu!(cuGetErrorName(Code(code), (&mut text).into()));
        // SAFETY: the driver gives a string that lives for ever.
        assert_eq!(unsafe { CStr::from_ptr(text) }.to_str(), Ok(name));
        cu!(cuGetErrorString(Code(code), (&mut text).into()));
        // SAFETY: as above.
        assert!(!unsafe { CStr::from_ptr(text) }.is_empty());
    }
    cu!(cuGetErrorName(Code(12345), (&mut text).into()) => INVALID_VALUE);
    assert!(text.is_null());
}

#[test]
fn devices_describe_themselves() {
    test("devices_describe_themselves", &[("DEVICES", "3"), ("SM", "90")], || {
        start(2);
        let (mut major, mut count, mut version) = (0, 0, 0);
        cu!(cuDeviceGetAttribute((&mut major).into(), 75, 2));
        cu!(cuDeviceGetAttribute((&mut major).into(), 75, 3) => INVALID_DEVICE);
        cu!(cuDeviceGetCount((&mut count).into()));
        cu!(cuDriverGetVersion((&mut version).into()));
        assert_eq!((major, count, version), (9, 3, 13000));
        let mut name = [1 as c_char; 64];
        cu!(cuDeviceGetName(name.as_mut_ptr(), 64, 2));
        // SAFETY: the driver ends it with a NUL.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().unwrap().to_string();
        assert!(name.contains("9.0"), "{name}");
        let (mut one, mut two) = (CUuuid::default(), CUuuid::default());
        cu!(cuDeviceGetUuid_v2((&mut one).into(), 1));
        cu!(cuDeviceGetUuid_v2((&mut two).into(), 2));
        assert_ne!(one, two);
        let (mut bus, mut found) = ([0 as c_char; 16], 9);
        cu!(cuDeviceGetPCIBusId(bus.as_mut_ptr(), 16, 1));
        cu!(cuDeviceGetByPCIBusId((&mut found).into(), bus.as_ptr()));
        assert_eq!(found, 1);
    });
}

#[test]
fn images_that_cannot_be_run_say_why() {
    let said = test("images_that_cannot_be_run_say_why", &[], || {
        start(0);
        let (mut module, mut log) = (CUmodule::default(), [1 as c_char; 200]);
        cu!(cuModuleLoadData((&mut module).into(), std::ptr::null()) => INVALID_VALUE);
        cu!(cuModuleLoadData((&mut module).into(), c"neither".as_ptr().cast()) => INVALID_IMAGE);
        cu!(cuModuleLoadData((&mut module).into(), c"\x7fELF".as_ptr().cast()) => NO_BINARY_FOR_GPU);
        let options = [5, 6, 3, 4];
        let mut info = [1 as c_char; 10];
        let mut values = [
            log.as_mut_ptr() as usize,
            log.len(),
            info.as_mut_ptr() as usize,
            info.len(),
        ];
        let (options, image) = (options[..].into(), c"\x7fELF".as_ptr().cast());
        let place = (&mut values[0]).into();
        cu!(cuModuleLoadDataEx((&mut module).into(), image, 4, options, place) => NO_BINARY_FOR_GPU);
        // SAFETY: the driver ends what it writes with a NUL.
        let text = unsafe { CStr::from_ptr(log.as_ptr()) }.to_str().unwrap();
        assert!(
            text.contains("cubin") && values[1] == text.len() && info[0] == 0 && values[3] == 0,
            "{text} {values:?}"
        );
        cu!(cuModuleUnload(module) => INVALID_HANDLE);
    });
    assert!(
        child() || said.contains("module not loaded: the image is a cubin"),
        "{said}"
    );
}
