//! Fat binaries with PTX and machine code, as nvcc makes them, and the parts that the driver uses of each.

use std::ffi::{CString, c_void};

use kiln_emulator::*;

use super::harness::{KERNELS, alloc, function, launch, process, start};

fn test(name: &str, options: &[(&str, &str)], body: impl FnOnce()) {
    process(&format!("images::{name}"), options, body);
}

/// A fat binary of one entry for each of (kind, architecture, bytes): 1 is PTX, 2 a cubin.
fn fatbin(entries: &[(u16, u32, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, arch, bytes) in entries {
        let mut header = [0u8; 64];
        header[..2].copy_from_slice(&kind.to_le_bytes());
        header[4] = 64;
        header[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        header[28..32].copy_from_slice(&arch.to_le_bytes());
        body.extend(header);
        body.extend(*bytes);
    }
    let mut image = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    image.extend((body.len() as u64).to_le_bytes());
    image.extend(body);
    image
}

/// The parts of a cubin that are read, for one kernel with this many registers.
fn cubin(kernel: &str, registers: u32) -> Vec<u8> {
    let mut symbols = vec![0u8; 48];
    symbols[24] = 1;
    let mut info = vec![4, 0x2f, 8, 0, 1, 0, 0, 0];
    info.extend(registers.to_le_bytes());
    let strings = [b"\0", kernel.as_bytes(), b"\0"].concat();
    let bodies = [
        (3u32, 0u8, 0u8, b"\0.nv.info\0".to_vec()),
        (3, 0, 0, strings),
        (2, 0, 1, symbols),
        (1, 1, 0, info),
    ];
    let (mut elf, mut headers) = (vec![0u8; 64], Vec::new());
    elf[..4].copy_from_slice(b"\x7fELF");
    for (kind, name, link, body) in bodies {
        let mut header = [0u8; 64];
        (header[0], header[40]) = (name, link);
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&(elf.len() as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(body.len() as u64).to_le_bytes());
        elf.extend(body);
        headers.extend(header);
    }
    let table = elf.len() as u64;
    elf[0x28..0x30].copy_from_slice(&table.to_le_bytes());
    elf[0x3a..0x40].copy_from_slice(&[64, 0, 4, 0, 0, 0]);
    elf.extend(headers);
    elf
}

fn load(image: *const c_void) -> CUmodule {
    let mut module = CUmodule::default();
    cu!(cuModuleLoadData((&mut module).into(), image));
    module
}

#[test]
fn registers_limit_launches_as_on_the_device() {
    test("registers_limit_launches_as_on_the_device", &[], || {
        start(0);
        let at = alloc(4096);
        cu!(cuMemsetD32_v2(at, 0, 1024));
        for (registers, most) in [(64, 1024), (65, 896), (128, 512), (255, 256)] {
            let code = cubin("move", registers);
            let image = fatbin(&[(2, 80, &code[..]), (1, 80, KERNELS.as_bytes())]);
            let f = function(load(image.as_ptr().cast()), "move");
            let mut value = 0;
            cu!(cuFuncGetAttribute((&mut value).into(), 4, f));
            assert_eq!(value, registers as i32);
            assert_eq!(
                launch(f, 1, most, 0, CUstream(0), &[at, at]),
                Code::SUCCESS,
                "{registers}"
            );
            if most < 1024 {
                let refused = launch(f, 1, most + 1, 0, CUstream(0), &[at, at]);
                assert_eq!(refused, Code::LAUNCH_OUT_OF_RESOURCES, "{registers}");
            }
            let mut blocks = 0;
            cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                (&mut blocks).into(),
                f,
                256,
                0
            ));
            assert_eq!(blocks as u32, most / 256, "{registers}");
        }
        cu!(cuCtxSynchronize());
    });
}

#[test]
fn the_wrapper_of_host_code_is_followed() {
    test("the_wrapper_of_host_code_is_followed", &[("SM", "86")], || {
        start(0);
        let code = cubin("move", 40);
        // Machine code for another major architecture says nothing of this device.
        let image = fatbin(&[(2, 90, &code[..]), (1, 80, KERNELS.as_bytes()), (1, 90, b"nothing")]);
        let wrapper = [0x0000_0001_4662_43b1, image.as_ptr() as u64, 0];
        let f = function(load(wrapper.as_ptr().cast()), "move");
        let mut value = 0;
        cu!(cuFuncGetAttribute((&mut value).into(), 4, f));
        assert_eq!(value, 32);
        let mut module = CUmodule::default();
        cu!(cuModuleLoadFatBinary((&mut module).into(), image.as_ptr().cast()));
        let newer = fatbin(&[(1, 90, KERNELS.as_bytes())]);
        cu!(cuModuleLoadData((&mut module).into(), newer.as_ptr().cast()) => NO_BINARY_FOR_GPU);
    });
}

#[test]
fn what_is_too_large_for_a_device_is_refused() {
    test("what_is_too_large_for_a_device_is_refused", &[], || {
        start(0);
        let load = |kernel: &str| {
            let text = CString::new(format!(".version 8.0\n.target sm_80\n.address_size 64\n{kernel}\n")).unwrap();
            let mut module = CUmodule::default();
            // SAFETY: the text ends with a NUL.
            let code = unsafe { cuModuleLoadData((&mut module).into(), text.as_ptr().cast()) };
            (code, module)
        };
        let (code, _) = load(".visible .entry k(.param .align 4 .b8 p[1000000000])\n{\nret;\n}");
        assert_eq!(code, Code::INVALID_PTX);
        let (code, module) = load(".visible .entry k()\n{\n.shared .align 4 .b8 s[49153];\nret;\n}");
        assert_eq!(code, Code::SUCCESS);
        let mut kernel = CUfunction::default();
        cu!(cuModuleGetFunction((&mut kernel).into(), module, c"k".as_ptr()) => INVALID_PTX);
        let (code, module) =
            load(".visible .entry k()\n{\n.local .align 4 .b8 x[100000000];\nst.local.u32 [x], 0;\nret;\n}");
        assert_eq!(code, Code::SUCCESS);
        let kernel = function(module, "k");
        assert_eq!(
            launch(kernel, 1, 32, 0, CUstream(0), &[]),
            Code::LAUNCH_OUT_OF_RESOURCES
        );
        cu!(cuCtxSynchronize());
    });
}
