//! Allocation, copies, pointers, pinned and managed memory, peers.

use std::ffi::c_void;

use kiln_emulator::*;

use super::harness::{alloc, child, peek, pinned, process, start, stream, upload};

const NAME: &str = "memory::";

fn test(name: &str, options: &[(&str, &str)], body: impl FnOnce()) -> String {
    process(&format!("{NAME}{name}"), options, body)
}

#[test]
fn nothing_works_before_init() {
    test("nothing_works_before_init", &[], || {
        let mut count = 0;
        cu!(cuDeviceGetCount((&mut count).into()) => NOT_INITIALIZED);
        cu!(cuInit(1) => INVALID_VALUE);
        cu!(cuInit(0));
        cu!(cuInit(0));
        cu!(cuDeviceGetCount((&mut count).into()));
        assert_eq!(count, 1);
        let mut at = 0;
        cu!(cuMemAlloc_v2((&mut at).into(), 4) => INVALID_CONTEXT);
        cu!(cuCtxSynchronize() => INVALID_CONTEXT);
    });
}

#[test]
fn no_devices_is_an_error_of_init() {
    test(
        "no_devices_is_an_error_of_init",
        &[("DEVICES", "0")],
        || cu!(cuInit(0) => NO_DEVICE),
    );
}

#[test]
fn a_bad_option_is_told() {
    let said = test(
        "a_bad_option_is_told",
        &[("STREAMS", "wild")],
        || cu!(cuInit(0) => INVALID_VALUE),
    );
    assert!(child() || said.contains("KILN_EMULATOR_STREAMS is `wild`"), "{said}");
}

#[test]
fn out_of_memory_is_not_sticky() {
    test("out_of_memory_is_not_sticky", &[("MEMORY", "1000000")], || {
        start(0);
        let (mut free, mut total, mut at) = (0, 0, 0);
        for _ in 0..100 {
            cu!(cuMemAlloc_v2((&mut at).into(), 2_000_000) => OUT_OF_MEMORY);
            let a = alloc(600_000);
            cu!(cuMemAlloc_v2((&mut at).into(), 400_001) => OUT_OF_MEMORY);
            let b = alloc(400_000);
            cu!(cuMemGetInfo_v2((&mut free).into(), (&mut total).into()));
            assert_eq!((free, total), (0, 1_000_000));
            cu!(cuMemFree_v2(a));
            cu!(cuMemFree_v2(b));
        }
        cu!(cuMemGetInfo_v2((&mut free).into(), (&mut total).into()));
        assert_eq!(free, 1_000_000);
    });
}

#[test]
fn copies_and_fills_check_their_ends() {
    test("copies_and_fills_check_their_ends", &[], || {
        start(0);
        let at = alloc(132);
        let host: Vec<u32> = (0..33).collect();
        upload(at, &host);
        assert_eq!(peek(at, 33), host);
        cu!(cuMemcpyHtoD_v2(at + 4, host.as_ptr().cast(), 132) => INVALID_VALUE);
        cu!(cuMemcpyHtoD_v2(host.as_ptr() as u64, host.as_ptr().cast(), 4) => INVALID_VALUE);
        cu!(cuMemsetD32_v2(at + 2, 7, 1) => INVALID_VALUE);
        cu!(cuMemsetD32_v2(at + 4, 7, 33) => INVALID_VALUE);
        cu!(cuMemsetD32_v2(at + 4, 7, 31));
        cu!(cuMemsetD16_v2(at, 0x0102, 1));
        cu!(cuMemsetD8_v2(at + 131, 9, 1));
        let now = peek(at, 33);
        assert_eq!((now[0], now[1], now[31], now[32]), (0x0102, 7, 7, 32 | 9 << 24));
        cu!(cuMemFree_v2(at + 4) => INVALID_VALUE);
        cu!(cuMemFree_v2(at));
        cu!(cuMemFree_v2(at) => INVALID_VALUE);
        let mut out = 0u32;
        cu!(cuMemcpyDtoH_v2((&raw mut out).cast(), at, 4) => INVALID_VALUE);
    });
}

#[test]
fn rectangles_are_copied_and_filled() {
    test("rectangles_are_copied_and_filled", &[], || {
        start(0);
        let (mut at, mut pitch) = (0, 0);
        cu!(cuMemAllocPitch_v2((&mut at).into(), (&mut pitch).into(), 20, 3, 4));
        assert_eq!(pitch, 512);
        cu!(cuMemsetD2D32_v2(at, pitch, 5, 5, 3));
        let host: Vec<u32> = (0..12).collect();
        let side = |memory, host: &[u32], device, pitch, x| Side2D {
            memory,
            host: host.as_ptr() as usize,
            device,
            pitch,
            x,
            ..Side2D::default()
        };
        let there = Memcpy2D {
            src: side(1, &host, 0, 16, 4),
            dst: side(2, &[], at, pitch, 8),
            width: 12,
            height: 3,
        };
        cu!(cuMemcpy2D_v2((&there).into()));
        let rows: Vec<Vec<u32>> = (0..3).map(|y| peek(at + y * 512, 5)).collect();
        assert_eq!(rows, [[5, 5, 1, 2, 3], [5, 5, 5, 6, 7], [5, 5, 9, 10, 11]]);
        let outside = Memcpy2D { height: 4, ..there };
        cu!(cuMemcpy2D_v2((&outside).into()) => INVALID_VALUE);
    });
}

#[test]
fn pinned_memory_is_known_everywhere() {
    test("pinned_memory_is_known_everywhere", &[("DEVICES", "2")], || {
        start(0);
        let host = pinned(&[1, 2, 3]);
        let (mut device, mut flags) = (0, 0);
        let start_of = host.as_mut_ptr().cast::<c_void>();
        cu!(cuMemHostGetDevicePointer_v2((&mut device).into(), start_of, 0));
        assert_eq!(device, start_of as u64);
        cu!(cuMemHostGetFlags((&mut flags).into(), start_of));
        assert_eq!(flags, 2);
        let mut kind = 0u32;
        cu!(cuPointerGetAttribute((&raw mut kind).cast(), 2, device));
        assert_eq!(kind, 1);
        let mut own = [7u32; 40];
        let page = own.as_mut_ptr().cast::<c_void>();
        cu!(cuPointerGetAttribute((&raw mut kind).cast(), 2, page as u64) => INVALID_VALUE);
        cu!(cuMemHostRegister_v2(page, 160, 0));
        cu!(cuMemHostRegister_v2(page, 8, 0) => HOST_MEMORY_ALREADY_REGISTERED);
        cu!(cuPointerGetAttribute((&raw mut kind).cast(), 2, page as u64));
        cu!(cuMemFreeHost(page) => INVALID_VALUE);
        cu!(cuMemHostUnregister(page));
        cu!(cuMemHostUnregister(page) => HOST_MEMORY_NOT_REGISTERED);
        cu!(cuMemFreeHost(start_of));
        cu!(cuMemFreeHost(start_of) => INVALID_VALUE);
    });
}

#[test]
fn pointers_tell_what_they_are() {
    test("pointers_tell_what_they_are", &[("DEVICES", "2")], || {
        let context = start(1);
        let at = alloc(100);
        let (mut base, mut size) = (0, 0);
        cu!(cuMemGetAddressRange_v2((&mut base).into(), (&mut size).into(), at + 99));
        assert_eq!((base, size), (at, 100));
        cu!(cuMemGetAddressRange_v2((&mut base).into(), (&mut size).into(), at + 100) => NOT_FOUND);
        let (mut owner, mut device, mut host) = (CUcontext::default(), 9u32, 1u64);
        let places: [*mut c_void; 3] = [
            (&raw mut owner).cast(),
            (&raw mut device).cast(),
            (&raw mut host).cast(),
        ];
        cu!(cuPointerGetAttributes(3, [1, 9, 4][..].into(), places[..].into(), at));
        assert_eq!((owner, device, host), (context, 1, 0));
        cu!(cuPointerGetAttributes(3, [1, 9, 4][..].into(), places[..].into(), 64));
        assert_eq!((owner.0, device as i32, host), (0, -2, 0));
    });
}

#[test]
fn peers_are_enabled_once() {
    test("peers_are_enabled_once", &[("DEVICES", "2")], || {
        let one = start(1);
        let there = alloc(16);
        upload(there, &[1, 2, 3, 4]);
        let zero = start(0);
        let here = alloc(16);
        let mut can = 9;
        cu!(cuDeviceCanAccessPeer((&mut can).into(), 0, 1));
        assert_eq!(can, 1);
        cu!(cuDeviceCanAccessPeer((&mut can).into(), 0, 2) => INVALID_DEVICE);
        // Copies need no access.
        cu!(cuMemcpyPeer(here, zero, there, one, 16));
        assert_eq!(peek(here, 4), [1, 2, 3, 4]);
        cu!(cuCtxDisablePeerAccess(one) => PEER_ACCESS_NOT_ENABLED);
        cu!(cuCtxEnablePeerAccess(one, 0));
        cu!(cuCtxEnablePeerAccess(one, 0) => PEER_ACCESS_ALREADY_ENABLED);
        cu!(cuCtxEnablePeerAccess(zero, 0) => INVALID_CONTEXT);
        cu!(cuCtxDisablePeerAccess(one));
    });
}

#[test]
fn contexts_stack_and_end() {
    test("contexts_stack_and_end", &[("DEVICES", "2"), ("CHECK", "1")], || {
        let first = start(0);
        let mut second = CUcontext::default();
        cu!(cuCtxCreate_v2((&mut second).into(), 0, 1));
        let (mut now, mut device) = (CUcontext::default(), 0);
        cu!(cuCtxGetCurrent((&mut now).into()));
        cu!(cuCtxGetDevice((&mut device).into()));
        assert_eq!((now, device), (second, 1));
        let at = alloc(8);
        cu!(cuCtxPopCurrent_v2((&mut now).into()));
        assert_eq!(now, second);
        cu!(cuCtxGetDevice((&mut device).into()));
        assert_eq!(device, 0);
        let other = stream(0);
        cu!(cuCtxDestroy_v2(second));
        cu!(cuCtxDestroy_v2(second) => INVALID_CONTEXT);
        cu!(cuCtxPushCurrent_v2(second) => INVALID_CONTEXT);
        cu!(cuMemFree_v2(at) => INVALID_VALUE);
        cu!(cuStreamSynchronize(other));
        let mut active = 9;
        cu!(cuDevicePrimaryCtxRelease_v2(0));
        cu!(cuDevicePrimaryCtxGetState(0, (&mut 0).into(), (&mut active).into()));
        assert_eq!(active, 0);
        cu!(cuStreamSynchronize(other) => CONTEXT_IS_DESTROYED);
        cu!(cuCtxDestroy_v2(first) => INVALID_CONTEXT);
    });
}

#[test]
fn what_is_never_freed_is_told() {
    let said = test("what_is_never_freed_is_told", &[("CHECK", "1")], || {
        start(0);
        alloc(40);
        let freed = alloc(50);
        cu!(cuMemFree_v2(freed));
        cu!(cuDevicePrimaryCtxRelease_v2(0));
    });
    assert!(child() || said.contains("1 allocations of 40 bytes"), "{said}");
}

#[test]
fn stream_ordered_memory_is_given_back() {
    for order in ["eager", "lazy", "random:3"] {
        let options = [("STREAMS", order), ("MEMORY", "1000")];
        test("stream_ordered_memory_is_given_back", &options, || {
            start(0);
            let s = stream(1);
            for n in 0..20 {
                let mut at = 0;
                cu!(cuMemAllocAsync((&mut at).into(), 600, s));
                cu!(cuMemsetD32Async(at, n, 150, s));
                cu!(cuMemFreeAsync(at, s));
            }
            cu!(cuStreamSynchronize(s));
            let (mut free, mut total) = (0, 0);
            cu!(cuMemGetInfo_v2((&mut free).into(), (&mut total).into()));
            assert_eq!(free, 1000);
        });
    }
}

#[test]
fn what_is_absent_says_so_once() {
    let said = test("what_is_absent_says_so_once", &[], || {
        start(0);
        let mut at = 0;
        let s = stream(0);
        cu!(cuStreamBeginCapture_v2(s, 2));
        cu!(cuMemAllocAsync((&mut at).into(), 600, s) => NOT_SUPPORTED);
        cu!(cuMemAllocAsync((&mut at).into(), 600, s) => NOT_SUPPORTED);
    });
    assert!(
        child()
            || said
                .matches("stream-ordered allocation in a capture is not implemented")
                .count()
                == 1,
        "{said}"
    );
}

#[test]
fn pools_belong_to_devices() {
    test("pools_belong_to_devices", &[("DEVICES", "2")], || {
        start(0);
        let s = stream(1);
        let (mut default, mut made, mut now) = (
            CUmemoryPool::default(),
            CUmemoryPool::default(),
            CUmemoryPool::default(),
        );
        cu!(cuDeviceGetDefaultMemPool((&mut default).into(), 1));
        let props = MemPoolProps {
            allocation: 1,
            handles: 0,
            location: MemLocation { kind: 1, id: 1 },
        };
        cu!(cuMemPoolCreate((&mut made).into(), (&props).into()));
        cu!(cuDeviceSetMemPool(0, made) => INVALID_VALUE);
        cu!(cuDeviceSetMemPool(1, made));
        cu!(cuDeviceGetMemPool((&mut now).into(), 1));
        assert!(now == made && made != default);
        let (mut at, mut owner, value) = (0, 9u32, u64::MAX);
        cu!(cuMemAllocFromPoolAsync((&mut at).into(), 64, made, s));
        cu!(cuPointerGetAttribute((&raw mut owner).cast(), 9, at));
        assert_eq!(owner, 1);
        cu!(cuMemPoolSetAttribute(made, 4, (&value).into()));
        let mut read = 0;
        cu!(cuMemPoolGetAttribute(made, 4, (&mut read).into()));
        assert_eq!(read, value);
        cu!(cuMemPoolGetAttribute(default, 4, (&mut read).into()));
        assert_eq!(read, 0);
        let (zero, mut flags) = (MemLocation { kind: 1, id: 0 }, 9);
        cu!(cuMemPoolGetAccess((&mut flags).into(), made, (&zero).into()));
        assert_eq!(flags, 0);
        cu!(cuMemPoolSetAccess(
            made,
            (&MemAccess {
                location: zero,
                flags: 3
            })
                .into(),
            1
        ));
        cu!(cuMemPoolGetAccess((&mut flags).into(), made, (&zero).into()));
        assert_eq!(flags, 3);
        cu!(cuMemFreeAsync(at, s));
        cu!(cuMemPoolDestroy(made));
        cu!(cuMemPoolDestroy(made) => INVALID_VALUE);
        cu!(cuMemPoolDestroy(default) => INVALID_VALUE);
        cu!(cuMemAllocFromPoolAsync((&mut at).into(), 64, made, s) => INVALID_VALUE);
        cu!(cuStreamSynchronize(s));
    });
}

#[test]
fn hints_are_for_managed_memory() {
    test("hints_are_for_managed_memory", &[], || {
        start(0);
        let (plain, mut managed) = (alloc(16), 0);
        cu!(cuMemAllocManaged((&mut managed).into(), 16, 1));
        cu!(cuMemAdvise(managed, 16, 1, 0));
        cu!(cuMemPrefetchAsync(managed, 16, 0, CUstream(0)));
        cu!(cuMemPrefetchAsync(managed, 17, 0, CUstream(0)) => INVALID_VALUE);
        cu!(cuMemPrefetchAsync(plain, 16, 0, CUstream(0)) => INVALID_VALUE);
    });
}

#[test]
fn messages_go_to_the_log() {
    let path = std::env::temp_dir().join(format!("kiln-emulator-{}.log", std::process::id()));
    let path = std::env::var_os("KILN_EMULATOR_LOG")
        .filter(|_| child())
        .map_or(path, Into::into);
    let said = test("messages_go_to_the_log", &[("LOG", path.to_str().unwrap())], || {
        start(0);
        alloc(4);
        cu!(cuMemsetD32_v2(8, 0, 1) => INVALID_VALUE);
    });
    let log = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        child() || (log.starts_with("kiln-emulator: ") && log.contains("null") && !said.contains("kiln")),
        "{log}"
    );
    if !child() {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn bytes_written_beside_an_allocation_are_a_finding() {
    let said = test("bytes_written_beside_an_allocation_are_a_finding", &[], || {
        let wild = |by_reset: bool| {
            start(0);
            let at = alloc(5);
            // SAFETY: the driver keeps pages of its own on both sides of what it gives out.
            unsafe { *((at + 7) as *mut u8) = 0 };
            if by_reset {
                cu!(cuDevicePrimaryCtxReset_v2(0));
                return;
            }
            cu!(cuMemFree_v2(at) => LAUNCH_FAILED);
            cu!(cuCtxSynchronize() => LAUNCH_FAILED);
            cu!(cuDevicePrimaryCtxReset_v2(0));
        };
        wild(false);
        assert_eq!(kilnEmulatorFindings(), 1);
        wild(true);
        assert_eq!(kilnEmulatorFindings(), 2);
    });
    assert!(
        child() || said.matches("wrote at byte 7 of allocation #").count() == 2,
        "{said}"
    );
}
