//! Libraries, their kernels, and the linker.

use std::ffi::{CStr, CString, c_void};

use kiln_emulator::*;

use super::harness::{KERNELS, alloc, child, function, launch, peek, pointers, process, start, upload};

fn test(name: &str, body: impl FnOnce()) -> String {
    process(&format!("libraries::{name}"), &[("DEVICES", "2")], body)
}

fn library(text: &str) -> CUlibrary {
    let (text, mut library) = (CString::new(text).unwrap(), CUlibrary::default());
    let none = (In::NULL, Out::NULL, 0, In::NULL, In::NULL, 0);
    let code = text.as_ptr().cast();
    cu!(cuLibraryLoadData(
        (&mut library).into(),
        code,
        none.0,
        none.1,
        none.2,
        none.3,
        none.4,
        none.5
    ));
    library
}

fn kernel(library: CUlibrary, name: &CStr) -> CUkernel {
    let mut kernel = CUkernel::default();
    cu!(cuLibraryGetKernel((&mut kernel).into(), library, name.as_ptr()));
    kernel
}

const VARIABLES: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
    .visible .global .align 4 .u32 plain = 7;\n.visible .global .attribute(.managed) .align 4 .u32 shared[3] = {1, 2, 3};\n\
    .visible .entry bump()\n{\n.reg .b32 %r<3>;\nld.global.u32 %r1, [plain];\nadd.u32 %r1, %r1, 1;\n\
    st.global.u32 [plain], %r1;\nst.global.u32 [shared+4], %r1;\nret;\n}\n";

#[test]
fn kernels_of_a_library_run_in_every_context() {
    test("kernels_of_a_library_run_in_every_context", || {
        cu!(cuInit(0));
        // No context is needed yet.
        let library = library(KERNELS);
        let kernel = kernel(library, c"move");
        for device in [0, 1] {
            start(device);
            let at = alloc(256);
            upload(at, &[5; 64]);
            assert_eq!(
                launch(CUfunction(kernel.0), 1, 32, 0, CUstream(0), &[at, at]),
                Code::SUCCESS
            );
            let mut f = CUfunction::default();
            cu!(cuKernelGetFunction((&mut f).into(), kernel));
            assert_eq!(launch(f, 1, 32, 0, CUstream(0), &[at, at]), Code::SUCCESS);
            let mut module = CUmodule::default();
            cu!(cuLibraryGetModule((&mut module).into(), library));
            assert_eq!(f, function(module, "move"));
            cu!(cuCtxSynchronize());
        }
        let (mut count, mut name, mut of) = (0, std::ptr::null::<std::ffi::c_char>(), CUlibrary::default());
        cu!(cuLibraryGetKernelCount((&mut count).into(), library));
        cu!(cuKernelGetName((&mut name).into(), kernel));
        cu!(cuKernelGetLibrary((&mut of).into(), kernel));
        // SAFETY: the name lives as long as the library.
        assert_eq!((unsafe { CStr::from_ptr(name) }, of), (c"move", library));
        let mut all = vec![CUkernel::default(); count as usize];
        cu!(cuLibraryEnumerateKernels(Out::from(&mut all[0]), count, library));
        assert!(all.contains(&kernel));
        let mut nothing = CUkernel::default();
        cu!(cuLibraryGetKernel((&mut nothing).into(), library, c"nothing".as_ptr()) => NOT_FOUND);
        cu!(cuLibraryUnload(library));
        cu!(cuLibraryUnload(library) => INVALID_HANDLE);
        assert_eq!(
            launch(CUfunction(kernel.0), 1, 32, 0, CUstream(0), &[0, 0]),
            Code::INVALID_HANDLE
        );
    });
}

#[test]
fn what_is_set_for_a_kernel_holds_for_its_functions() {
    test("what_is_set_for_a_kernel_holds_for_its_functions", || {
        start(0);
        let kernel = kernel(library(KERNELS), c"move");
        let (mut before, mut after) = (CUfunction::default(), 0);
        cu!(cuKernelGetFunction((&mut before).into(), kernel));
        cu!(cuKernelSetAttribute(8, 100 << 10, kernel, 0));
        cu!(cuKernelSetAttribute(8, 1 << 30, kernel, 0) => INVALID_VALUE);
        for value in [CUfunction(kernel.0), before] {
            cu!(cuFuncGetAttribute((&mut after).into(), 8, value));
            assert_eq!(after, 100 << 10);
        }
        cu!(cuKernelGetAttribute((&mut after).into(), 8, kernel, 0));
        assert_eq!(after, 100 << 10);
        cu!(cuKernelGetAttribute((&mut after).into(), 8, kernel, 1));
        assert_eq!(after, 48 << 10);
        let (mut offset, mut size) = (9, 0);
        cu!(cuKernelGetParamInfo(
            kernel,
            1,
            (&mut offset).into(),
            (&mut size).into()
        ));
        assert_eq!((offset, size), (8, 8));
        cu!(cuKernelGetAttribute((&mut after).into(), 8, CUkernel(1), 0) => INVALID_HANDLE);
    });
}

#[test]
fn each_context_has_its_own_variables() {
    test("each_context_has_its_own_variables", || {
        cu!(cuInit(0));
        let library = library(VARIABLES);
        let kernel = kernel(library, c"bump");
        let mut places = Vec::new();
        for device in [0, 1] {
            start(device);
            let (mut at, mut size, mut managed) = (0, 0, 0);
            cu!(cuLibraryGetGlobal(
                (&mut at).into(),
                (&mut size).into(),
                library,
                c"plain".as_ptr()
            ));
            assert_eq!((size, peek(at, 1)), (4, vec![7]));
            cu!(cuLibraryGetManaged(
                (&mut managed).into(),
                (&mut size).into(),
                library,
                c"shared".as_ptr()
            ));
            cu!(cuLibraryGetManaged((&mut at).into(), Out::NULL, library, c"plain".as_ptr()) => NOT_FOUND);
            assert_eq!(size, 12);
            assert_eq!(launch(CUfunction(kernel.0), 1, 1, 0, CUstream(0), &[]), Code::SUCCESS);
            assert_eq!((peek(at, 1), peek(managed, 3)), (vec![8], vec![1, 8, 3]));
            places.push(at);
        }
        assert_ne!(places[0], places[1]);
    });
}

#[test]
fn images_that_do_not_load_say_why() {
    let said = test("images_that_do_not_load_say_why", || {
        cu!(cuInit(0));
        let text = c".version 8.0\n.target sm_80\n.frobnicate\n";
        let mut log = [0u8; 200];
        let mut values = [log.as_mut_ptr() as usize, log.len()];
        let (options, mut library) = ([5, 6], CUlibrary::default());
        let (options, out) = (In::from(&options[..]), Out::from(&mut values[0]));
        let code = text.as_ptr().cast();
        cu!(cuLibraryLoadData((&mut library).into(), code, options, out, 2, In::NULL, In::NULL, 0) => INVALID_PTX);
        assert!(String::from_utf8_lossy(&log).contains("unknown directive `.frobnicate`"));
        assert!(values[1] > 20 && values[1] < 200);
    });
    assert!(child() || said.contains("library not loaded: PTX line 3"), "{said}");
}

fn link(inputs: &[&str]) -> Result<CUmodule, Code> {
    let mut linker = CUlinkState::default();
    cu!(cuLinkCreate_v2(0, In::NULL, Out::NULL, (&mut linker).into()));
    for text in inputs {
        let (data, none) = (In::from(text.as_bytes()), (In::NULL, In::NULL));
        cu!(cuLinkAddData_v2(
            linker,
            1,
            data,
            text.len(),
            c"part".as_ptr(),
            0,
            none.0,
            none.1
        ));
    }
    let (mut image, mut size) = (std::ptr::null::<c_void>(), 0usize);
    // SAFETY: the places live for the call.
    let code = unsafe { cuLinkComplete(linker, (&mut image).into(), (&mut size).into()) };
    if code != Code::SUCCESS {
        cu!(cuLinkDestroy(linker));
        return Err(code);
    }
    // SAFETY: the linker gave the image with its size, and lives.
    let image = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec();
    cu!(cuLinkDestroy(linker));
    let mut module = CUmodule::default();
    cu!(cuModuleLoadData((&mut module).into(), image.as_ptr().cast()));
    Ok(module)
}

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

#[test]
fn parts_are_linked() {
    let said = test("parts_are_linked", || {
        start(0);
        // Each part has a variable `own` of its own; the function and `common` are in the second.
        let first = format!(
            "{HEAD}.extern .func (.param .b32 r) twice(.param .b32 x);\n.extern .global .align 4 .u32 common;\n\
             .global .align 4 .u32 own = 3;\n.visible .entry k(.param .u64 out)\n{{\n.reg .b32 %r<5>; .reg .b64 %rd<3>;\n\
             ld.param.u64 %rd1, [out];\nld.global.u32 %r1, [own];\n{{\n.param .b32 a;\nst.param.b32 [a], %r1;\n.param .b32 r;\n\
             call (r), twice, (a);\nld.param.b32 %r2, [r];\n}}\nld.global.u32 %r3, [common];\nadd.u32 %r2, %r2, %r3;\n\
             st.global.u32 [%rd1], %r2;\nret;\n}}\n"
        );
        let second = format!(
            "{HEAD}.visible .global .align 4 .u32 common = 100;\n.global .align 4 .u32 own = 50;\n\
             .visible .func (.param .b32 r) twice(.param .b32 x)\n{{\n.reg .b32 %r<4>;\nld.param.u32 %r1, [x];\n\
             shl.b32 %r1, %r1, 1;\nld.global.u32 %r2, [own];\nadd.u32 %r1, %r1, %r2;\nst.param.b32 [r], %r1;\nret;\n}}\n"
        );
        let module = link(&[&first, &second]).unwrap();
        let at = alloc(4);
        assert_eq!(
            launch(function(module, "k"), 1, 1, 0, CUstream(0), &[at]),
            Code::SUCCESS
        );
        assert_eq!(peek(at, 1), [3 * 2 + 50 + 100]);
        assert!(link(&[KERNELS]).is_ok());
        assert_eq!(link(&[&second, &second]), Err(Code::INVALID_PTX));
        let mut linker = CUlinkState::default();
        cu!(cuLinkCreate_v2(0, In::NULL, Out::NULL, (&mut linker).into()));
        let elf = b"\x7fELF\x02\x01";
        for (kind, code) in [
            (0, Code::NO_BINARY_FOR_GPU),
            (3, Code::INVALID_IMAGE),
            (5, Code::INVALID_VALUE),
        ] {
            let (data, none) = (In::from(&elf[..]), (In::NULL, In::NULL));
            // SAFETY: the data live for the call.
            let found = unsafe { cuLinkAddData_v2(linker, kind, data, 6, c"p".as_ptr(), 0, none.0, none.1) };
            assert_eq!(found, code, "{kind}");
        }
        let path = c"/nonexistent";
        cu!(cuLinkAddFile_v2(linker, 1, path.as_ptr(), 0, In::NULL, In::NULL) => FILE_NOT_FOUND);
        cu!(cuLinkDestroy(linker));
        cu!(cuLinkDestroy(linker) => INVALID_HANDLE);
    });
    assert!(child() || said.contains("`twice` is defined twice"), "{said}");
}

#[test]
fn graphs_take_kernels_of_libraries() {
    test("graphs_take_kernels_of_libraries", || {
        start(0);
        let library = library(VARIABLES);
        let (kernel, mut at) = (kernel(library, c"bump"), 0);
        let (mut graph, mut node) = (CUgraph::default(), CUgraphNode::default());
        cu!(cuGraphCreate((&mut graph).into(), 0));
        let list = pointers(&[]);
        let params = KernelParams {
            function: CUfunction(kernel.0),
            grid: [1; 3],
            block: [1; 3],
            shared: 0,
            params: list[..].into(),
            extra: In::NULL,
        };
        cu!(cuGraphAddKernelNode(
            (&mut node).into(),
            graph,
            In::NULL,
            0,
            In::from(&params)
        ));
        let mut exec = CUgraphExec::default();
        cu!(cuGraphInstantiateWithFlags((&mut exec).into(), graph, 0));
        cu!(cuGraphLaunch(exec, CUstream(0)));
        cu!(cuLibraryGetGlobal(
            (&mut at).into(),
            Out::NULL,
            library,
            c"plain".as_ptr()
        ));
        assert_eq!(peek(at, 1), [8]);
    });
}

#[test]
fn nothing_can_be_allocated_in_a_stream() {
    test("nothing_can_be_allocated_in_a_stream", || {
        start(0);
        let mut at = 1;
        cu!(cuMemAllocAsync((&mut at).into(), 0, CUstream(0)));
        cu!(cuMemFreeAsync(at, CUstream(0)));
        cu!(cuMemAlloc_v2((&mut at).into(), 0) => INVALID_VALUE);
    });
}
