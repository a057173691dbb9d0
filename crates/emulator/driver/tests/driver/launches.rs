//! Modules, launches, their limits, and the state that faults leave behind.

use std::ffi::{CString, c_void};

use kiln_emulator::*;

use super::harness::{
    KERNELS, alloc, child, function, kernel, launch, peek, pinned, pointers, process, start, stream, upload,
};

const NULL: CUstream = CUstream(0);

fn test(name: &str, options: &[(&str, &str)], body: impl FnOnce()) -> String {
    process(&format!("launches::{name}"), options, body)
}

#[test]
fn kernels_run_in_every_order_of_streams() {
    for order in ["eager", "lazy", "random:1"] {
        test("kernels_run_in_every_order_of_streams", &[("STREAMS", order)], || {
            start(0);
            let scale = kernel("scale");
            for n in [1, 31, 33, 127, 129, 1000] {
                let (at, s) = (alloc(4 * n), stream(1));
                upload(at, &(0..n as u32).collect::<Vec<_>>());
                assert_eq!(
                    launch(scale, (n as u32).div_ceil(128), 128, 0, s, &[at, n as u64]),
                    Code::SUCCESS
                );
                cu!(cuStreamSynchronize(s));
                assert_eq!(peek(at, n), (0..n as u32).map(|i| 3 * i).collect::<Vec<_>>());
            }
        });
    }
}

#[test]
fn variables_have_addresses_and_values() {
    test("variables_have_addresses_and_values", &[("CHECK", "1")], || {
        start(0);
        let text = CString::new(KERNELS).unwrap();
        let (mut module, mut at, mut size) = (CUmodule::default(), 0, 0);
        cu!(cuModuleLoadData((&mut module).into(), text.as_ptr().cast()));
        cu!(cuModuleGetGlobal_v2(
            (&mut at).into(),
            (&mut size).into(),
            module,
            c"factor".as_ptr()
        ));
        assert_eq!((size, peek(at, 1)), (4, vec![3]));
        let (follow, y) = (function(module, "follow"), alloc(4));
        assert_eq!(launch(follow, 1, 1, 0, NULL, &[y]), Code::SUCCESS);
        assert_eq!(peek(y, 1), [33]);
        upload(at, &[7]);
        assert_eq!(launch(follow, 1, 1, 0, NULL, &[y]), Code::SUCCESS);
        assert_eq!(peek(y, 1), [37]);
        cu!(cuModuleGetGlobal_v2((&mut at).into(), (&mut size).into(), module, c"nothing".as_ptr()) => NOT_FOUND);
        let mut f = CUfunction::default();
        cu!(cuModuleGetFunction((&mut f).into(), module, c"nothing".as_ptr()) => NOT_FOUND);
        cu!(cuMemFree_v2(at) => INVALID_VALUE);
        cu!(cuModuleUnload(module));
        assert_eq!(launch(follow, 1, 1, 0, NULL, &[y]), Code::INVALID_HANDLE);
        cu!(cuMemcpyDtoH_v2((&raw mut size).cast(), at, 4) => INVALID_VALUE);
    });
}

#[test]
fn parameters_come_in_one_buffer_too() {
    test("parameters_come_in_one_buffer_too", &[], || {
        start(0);
        let (scale, at) = (kernel("scale"), alloc(16));
        upload(at, &[1, 2, 3, 4]);
        let buffer = [at, 3];
        let send = |size: usize, code: Code| {
            let extra: [*const c_void; 5] = [
                std::ptr::without_provenance(1),
                buffer.as_ptr().cast(),
                std::ptr::without_provenance(2),
                (&raw const size).cast(),
                std::ptr::null(),
            ];
            // SAFETY: the list is closed and its buffer holds what it says.
            let got = unsafe { cuLaunchKernel(scale, 1, 1, 1, 4, 1, 1, 0, NULL, In::NULL, extra[..].into()) };
            assert_eq!(got, code);
        };
        send(12, Code::SUCCESS);
        send(16, Code::SUCCESS);
        send(11, Code::INVALID_VALUE);
        assert_eq!(peek(at, 4), [9, 18, 27, 4]);
        // SAFETY: no parameters are given where some are needed.
        let none = unsafe { cuLaunchKernel(scale, 1, 1, 1, 4, 1, 1, 0, NULL, In::NULL, In::NULL) };
        assert_eq!(none, Code::INVALID_VALUE);
    });
}

#[test]
fn limits_of_launches_are_kept() {
    test("limits_of_launches_are_kept", &[], || {
        start(0);
        let text = CString::new(KERNELS).unwrap();
        let mut module = CUmodule::default();
        cu!(cuModuleLoadData((&mut module).into(), text.as_ptr().cast()));
        let (scale, roomy, at) = (function(module, "scale"), function(module, "roomy"), alloc(4));
        assert_eq!(launch(scale, 1, 256, 0, NULL, &[at, 0]), Code::SUCCESS);
        assert_eq!(launch(scale, 1, 257, 0, NULL, &[at, 0]), Code::INVALID_VALUE);
        assert_eq!(launch(roomy, 1, 1025, 0, NULL, &[at]), Code::INVALID_VALUE);
        assert_eq!(launch(roomy, 0, 1, 0, NULL, &[at]), Code::INVALID_VALUE);
        assert_eq!(launch(roomy, 1, 0, 0, NULL, &[at]), Code::INVALID_VALUE);
        assert_eq!(launch(roomy, 1, 1, (48 << 10) - 1024, NULL, &[at]), Code::SUCCESS);
        assert_eq!(peek(at, 1), [7 + (48 << 10) - 1024]);
        assert_eq!(launch(roomy, 1, 1, (48 << 10) - 1023, NULL, &[at]), Code::INVALID_VALUE);
        let most = (163 << 10) - 1024;
        cu!(cuFuncSetAttribute(roomy, 8, most + 1) => INVALID_VALUE);
        cu!(cuFuncSetAttribute(roomy, 8, most));
        assert_eq!(launch(roomy, 1, 1, most as u32, NULL, &[at]), Code::SUCCESS);
        let mut value = 0;
        for (attribute, wanted) in [(0, 1024), (1, 1024), (2, 12), (8, most), (6, 80)] {
            cu!(cuFuncGetAttribute((&mut value).into(), attribute, roomy));
            assert_eq!(value, wanted, "{attribute}");
        }
        let mut again = CUfunction::default();
        cu!(cuModuleGetFunction((&mut again).into(), module, c"roomy".as_ptr()));
        assert_eq!(again, roomy);
        // Nothing of this harmed the context.
        cu!(cuCtxSynchronize());
        assert_eq!(kilnEmulatorFindings(), 0);
    });
}

#[test]
fn occupancy_is_bounded_by_threads_and_shared_memory() {
    test("occupancy_is_bounded_by_threads_and_shared_memory", &[], || {
        start(0);
        let (mut blocks, mut grid, mut best) = (0, 0, 0);
        let (scale, roomy) = (kernel("scale"), kernel("roomy"));
        for (threads, dynamic, wanted) in [(32, 0, 32), (64, 0, 32), (128, 0, 16), (256, 0, 8), (128, 40 << 10, 4)] {
            cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                (&mut blocks).into(),
                scale,
                threads,
                dynamic
            ));
            assert_eq!(blocks, wanted, "{threads} {dynamic}");
        }
        cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor((&mut blocks).into(), scale, 0, 0) => INVALID_VALUE);
        cu!(cuOccupancyMaxPotentialBlockSize(
            (&mut grid).into(),
            (&mut best).into(),
            scale,
            None,
            0,
            0
        ));
        assert_eq!((grid, best), (8 * 108, 256));
        cu!(cuOccupancyMaxPotentialBlockSize(
            (&mut grid).into(),
            (&mut best).into(),
            roomy,
            None,
            0,
            200
        ));
        assert!(best <= 200 && best % 32 == 0, "{best}");
    });
}

#[test]
fn faults_stay_until_the_context_is_reset() {
    for order in ["eager", "lazy", "random:4"] {
        let said = test(
            "faults_stay_until_the_context_is_reset",
            &[("STREAMS", order), ("DEVICES", "2")],
            || {
                let other = start(1);
                let there = alloc(4);
                let context = start(0);
                let (copy, at, s) = (kernel("move"), alloc(16), stream(1));
                launch(copy, 1, 5, 0, s, &[at, at]);
                cu!(cuStreamSynchronize(s) => ILLEGAL_ADDRESS);
                assert_eq!(kilnEmulatorFindings(), 1);
                let mut pointer = 0;
                cu!(cuMemAlloc_v2((&mut pointer).into(), 4) => ILLEGAL_ADDRESS);
                cu!(cuMemFree_v2(at) => ILLEGAL_ADDRESS);
                cu!(cuCtxSynchronize() => ILLEGAL_ADDRESS);
                cu!(cuMemsetD32_v2(at, 0, 1) => ILLEGAL_ADDRESS);
                assert_eq!(launch(copy, 1, 1, 0, NULL, &[at, at]), Code::ILLEGAL_ADDRESS);
                // Another context is not affected.
                cu!(cuCtxSetCurrent(other));
                cu!(cuMemsetD32_v2(there, 0, 1));
                cu!(cuCtxSetCurrent(context));
                cu!(cuDevicePrimaryCtxReset_v2(0));
                cu!(cuCtxSynchronize() => CONTEXT_IS_DESTROYED);
                start(0);
                alloc(4);
                cu!(cuCtxSynchronize());
            },
        );
        assert!(
            child() || (said.contains("move") && said.contains("thread (4,0,0)")),
            "{said}"
        );
    }
}

#[test]
fn each_fault_has_its_code() {
    let said = test("each_fault_has_its_code", &[("DEVICES", "2")], || {
        start(1);
        let there = alloc(64);
        let other = start(0);
        let fails = |name: &str, params: &dyn Fn(u64) -> Vec<u64>, code: Code| {
            start(0);
            let (f, at) = (kernel(name), alloc(64));
            assert_eq!(launch(f, 1, 1, 0, NULL, &params(at)), code, "{name}");
            cu!(cuDevicePrimaryCtxReset_v2(0));
        };
        fails("stop", &|_| vec![], Code::LAUNCH_FAILED);
        fails("move", &|at| vec![at + 1, at], Code::MISALIGNED_ADDRESS);
        fails("move", &|at| vec![at, 0], Code::ILLEGAL_ADDRESS);
        let host = [0u32; 4];
        fails("move", &|at| vec![at, host.as_ptr() as u64], Code::ILLEGAL_ADDRESS);
        fails("move", &|at| vec![at, there], Code::ILLEGAL_ADDRESS);
        fails(
            "move",
            &|at| {
                vec![at, {
                    let gone = alloc(4);
                    cu!(cuMemFree_v2(gone));
                    gone
                }]
            },
            Code::ILLEGAL_ADDRESS,
        );
        assert_eq!(kilnEmulatorFindings(), 6);
        assert_ne!(other.0, 0);
    });
    for part in [
        "null pointer",
        "host pointer",
        "peer access",
        "was freed",
        "in stop",
        "in move",
    ] {
        assert!(child() || said.contains(part), "{part}: {said}");
    }
}

#[test]
fn kernels_reach_pinned_managed_and_peer_memory() {
    test(
        "kernels_reach_pinned_managed_and_peer_memory",
        &[("DEVICES", "2")],
        || {
            let one = start(1);
            let there = alloc(4);
            upload(there, &[11]);
            start(0);
            let (copy, host, mut managed) = (kernel("move"), pinned(&[5]), 0);
            cu!(cuMemAllocManaged((&mut managed).into(), 4, 1));
            assert_eq!(
                launch(copy, 1, 1, 0, NULL, &[managed, host.as_ptr() as u64]),
                Code::SUCCESS
            );
            cu!(cuCtxSynchronize());
            // SAFETY: managed memory is the host's too.
            assert_eq!(unsafe { *(managed as *const u32) }, 5);
            cu!(cuCtxEnablePeerAccess(one, 0));
            assert_eq!(
                launch(copy, 1, 1, 0, NULL, &[host.as_ptr() as u64, there]),
                Code::SUCCESS
            );
            cu!(cuCtxSynchronize());
            assert_eq!(host, [11]);
        },
    );
}

#[test]
fn launches_are_of_the_current_context() {
    test("launches_are_of_the_current_context", &[("DEVICES", "2")], || {
        start(0);
        let (copy, s, at) = (kernel("move"), stream(0), alloc(4));
        start(1);
        assert_eq!(launch(copy, 1, 1, 0, s, &[at, at]), Code::INVALID_CONTEXT);
        assert_eq!(launch(copy, 1, 1, 0, NULL, &[at, at]), Code::INVALID_CONTEXT);
        cu!(cuCtxSynchronize());
    });
}

#[test]
fn kernels_are_captured_with_their_parameters() {
    for order in ["eager", "random:3"] {
        test(
            "kernels_are_captured_with_their_parameters",
            &[("STREAMS", order)],
            || {
                start(0);
                let (scale, at, s) = (kernel("scale"), alloc(8), stream(1));
                upload(at, &[1, 1]);
                cu!(cuStreamBeginCapture_v2(s, 0));
                assert_eq!(launch(scale, 1, 32, 0, s, &[at, 1]), Code::SUCCESS);
                assert_eq!(launch(scale, 1, 32, 0, s, &[at, 2]), Code::SUCCESS);
                let (mut graph, mut exec, mut nodes, mut n) = (
                    CUgraph::default(),
                    CUgraphExec::default(),
                    [CUgraphNode::default(); 2],
                    2,
                );
                cu!(cuStreamEndCapture(s, (&mut graph).into()));
                cu!(cuGraphInstantiateWithFlags((&mut exec).into(), graph, 0));
                cu!(cuGraphGetNodes(graph, (&mut nodes[0]).into(), (&mut n).into()));
                for _ in 0..3 {
                    cu!(cuGraphLaunch(exec, s));
                }
                cu!(cuStreamSynchronize(s));
                assert_eq!(peek(at, 2), [729, 27]);
                let values = [at, 0];
                let params = pointers(&values);
                let node = KernelParams {
                    function: scale,
                    grid: [1; 3],
                    block: [32, 1, 1],
                    shared: 0,
                    params: params[..].into(),
                    extra: In::NULL,
                };
                cu!(cuGraphExecKernelNodeSetParams(exec, nodes[0], (&node).into()));
                cu!(cuGraphLaunch(exec, s));
                cu!(cuStreamSynchronize(s));
                assert_eq!(peek(at, 2), [729 * 3, 27 * 3]);
                let wide = KernelParams {
                    block: [257, 1, 1],
                    ..node
                };
                cu!(cuGraphExecKernelNodeSetParams(exec, nodes[0], (&wide).into()) => INVALID_VALUE);
                let other = KernelParams {
                    function: kernel("scale"),
                    ..node
                };
                cu!(cuGraphExecKernelNodeSetParams(exec, nodes[0], (&other).into()) => INVALID_VALUE);
            },
        );
    }
}

#[test]
fn kernels_can_be_listed() {
    test("kernels_can_be_listed", &[], || {
        start(0);
        let text = CString::new(KERNELS).unwrap();
        let (mut module, mut count, mut name) = (CUmodule::default(), 0, std::ptr::null::<std::ffi::c_char>());
        cu!(cuModuleLoadData((&mut module).into(), text.as_ptr().cast()));
        cu!(cuModuleGetFunctionCount((&mut count).into(), module));
        assert_eq!(count as usize, KERNELS.matches(".entry").count());
        let mut all = vec![CUfunction::default(); count as usize];
        cu!(cuModuleEnumerateFunctions((&mut all[0]).into(), count, module));
        cu!(cuFuncGetName((&mut name).into(), all[1]));
        // SAFETY: the driver's name ends with a NUL and lives as long as the module.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(name) }, c"move");
        assert_eq!(function(module, "move"), all[1]);
    });
}
#[test]
fn the_checker_makes_a_race_an_error() {
    let said = test("the_checker_makes_a_race_an_error", &[("CHECK", "1")], || {
        start(0);
        let (race, at) = (kernel("race"), alloc(4));
        launch(race, 1, 64, 0, NULL, &[at]);
        cu!(cuCtxSynchronize() => LAUNCH_FAILED);
        assert!(kilnEmulatorFindings() > 0);
    });
    assert!(child() || said.contains("in race"), "{said}");
    // Without the checker there is no error.
    test("the_checker_makes_a_race_an_error", &[("CHECK", "0")], || {
        start(0);
        let (race, at) = (kernel("race"), alloc(4));
        assert_eq!(launch(race, 1, 64, 0, NULL, &[at]), Code::SUCCESS);
        cu!(cuCtxSynchronize());
    });
}

#[test]
fn the_checker_sees_what_was_never_written() {
    test("the_checker_sees_what_was_never_written", &[("CHECK", "1")], || {
        start(0);
        let (copy, at) = (kernel("move"), alloc(8));
        upload(at, &[1]);
        assert_eq!(launch(copy, 1, 1, 0, NULL, &[at + 4, at]), Code::SUCCESS);
        assert_eq!(launch(copy, 1, 2, 0, NULL, &[at, at]), Code::SUCCESS);
        let fresh = alloc(4);
        launch(copy, 1, 1, 0, NULL, &[at, fresh]);
        cu!(cuCtxSynchronize() => LAUNCH_FAILED);
    });
}
