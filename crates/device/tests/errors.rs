//! Refused calls, and their messages.

mod common;

use common::Bench;
use kiln_device::{
    Arg, Block, Context, Error, Event, Function, Geometry, Graph, GraphExec, Module, Pinned, Pool, PrivatePool, Stream,
};

fn bench() -> Bench {
    common::start(&[]);
    Bench::new()
}

#[test]
fn everything_travels_between_threads() {
    fn both<T: Send + Sync>() {}
    both::<Context>();
    both::<(Stream, Event, Graph, GraphExec)>();
    both::<(Module, Function, Pinned)>();
    both::<(Pool, PrivatePool, Block, Error)>();
}

#[test]
fn devices_are_described() {
    let b = bench();
    let driver = kiln_device::driver().unwrap();
    assert!(driver.version >= (11, 4), "{driver:?}");
    let devices = kiln_device::devices().unwrap();
    assert_eq!(&devices[0], b.context.info());
    let info = &devices[0];
    assert!(info.compute_capability >= (7, 0) && info.multiprocessors > 0 && !info.name.is_empty());
    assert_eq!(info.warp_size, 32);
    assert!(info.shared_per_block >= 48 << 10 && info.shared_per_block_optin >= info.shared_per_block);
    assert!(info.max_threads_per_block >= 1024 && info.max_grid[0] >= 65535);
    assert!(info.memory > 0 && info.memory == b.context.memory().unwrap().1);
    let count = devices.len();
    let Err(Error::NoSuchDevice {
        ordinal: 99,
        count: found,
    }) = Context::new(99)
    else {
        panic!("a context of device 99")
    };
    assert_eq!(found, count);
}

#[test]
fn ranges_outside_of_a_block_are_refused() {
    let b = bench();
    let mut x = b.pool.alloc(100).unwrap();
    let mut y = b.pool.alloc(100).unwrap();
    let mut host = [7u8; 100];
    let mut pinned = Pinned::new(&b.context, 100).unwrap();
    b.stream.upload(&host, &mut x, 0).unwrap();
    for (offset, len) in [
        (1, 100),
        (101, 0),
        (100, 1),
        (usize::MAX, 1),
        (usize::MAX, 0),
        (2, usize::MAX),
    ] {
        let small = len.min(100);
        let mut refused = vec![
            b.stream.copy(&x, offset, &mut y, 0, len),
            b.stream.copy(&x, 0, &mut y, offset, len),
        ];
        refused.push(b.stream.memset_range(&mut x, offset, len, 0));
        refused.push(b.stream.copy_peer(&x, offset, &mut y, 0, len));
        if len == small {
            refused.push(b.stream.upload(&host[..len], &mut x, offset));
            refused.push(b.stream.download(&x, offset, &mut host[..len]));
        }
        if offset > 0 {
            refused.push(b.stream.upload_pinned(&pinned, &mut x, offset));
            refused.push(b.stream.download_pinned(&x, offset, &mut pinned));
        }
        for result in refused {
            assert!(
                matches!(result, Err(Error::Range { size: 100, .. })),
                "{offset} {len}: {result:?}"
            );
        }
    }
    b.stream.download(&x, 0, &mut host).unwrap();
    assert_eq!(host, [7; 100], "nothing was done");
    b.stream.memset_range(&mut x, 10, 20, 1).unwrap();
    b.stream.copy(&x, 5, &mut y, 50, 10).unwrap();
    b.stream.download(&y, 50, &mut host[..10]).unwrap();
    assert_eq!(host[..10], [7, 7, 7, 7, 7, 1, 1, 1, 1, 1]);
}

#[test]
fn arguments_are_those_of_the_kernel() {
    let b = bench();
    let add = b.module.function("add").unwrap();
    let x = b.pool.alloc(400).unwrap();
    let (n, by, wide) = (100u32, 1u32, 1u64);
    let geometry = Geometry::linear(100, 32);
    assert_eq!(geometry.grid, [4, 1, 1]);
    assert_eq!(add.parameters(), Some(&[4, 4, 8][..]), "the driver tells them");
    let wrong: [&[Arg<'_>]; 4] = [
        &[],
        &[Arg::value(&n), Arg::value(&by)],
        &[Arg::value(&n), Arg::value(&wide), Arg::ptr(x.ptr())],
        &[Arg::value(&n), Arg::value(&by), Arg::ptr(x.ptr()), Arg::ptr(0)],
    ];
    for args in wrong {
        // SAFETY: refused before the driver sees it.
        let result = unsafe { b.stream.launch(&add, geometry, args) };
        let Err(Error::Arguments {
            kernel,
            expected,
            found,
        }) = result
        else {
            panic!("{args:?}: {result:?}")
        };
        assert_eq!((kernel.as_str(), expected), ("add", vec![4, 4, 8]));
        assert_eq!(found, args.iter().map(Arg::size).collect::<Vec<_>>());
    }
    let no_block = Geometry {
        grid: [0, 1, 1],
        ..geometry
    };
    let huge = Geometry {
        block: [2048, 1, 1],
        ..geometry
    };
    for geometry in [no_block, huge] {
        let args = [Arg::value(&n), Arg::value(&by), Arg::ptr(x.ptr())];
        // SAFETY: the arguments are right, and no such launch happens.
        let error = unsafe { b.stream.launch(&add, geometry, &args) }.unwrap_err();
        assert!(matches!(error, Error::Launch { code: 1, .. }), "{error}");
        assert!(error.to_string().contains("`add`"), "{error}");
    }
    b.stream.synchronize().unwrap();
}

#[test]
fn modules_say_what_is_wrong() {
    let b = bench();
    for image in [
        &b"no image"[..],
        b"",
        b".version 8.0\n.target sm_80\n.address_size 64\nnonsense",
        b"\x50\xed\x55\xba",
        b"\x50\xed\x55\xba\x01\0\x10\0\x01\0\0\0\0\0\0\0",
        b"\x50\xed\x55\xba\x01\0\x10\0\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let error = Module::load(&b.context, image).unwrap_err();
        assert!(matches!(error, Error::Image { .. }), "{error}");
    }
    for name in ["subtract", "", "a\0b"] {
        let error = b.module.function(name).unwrap_err();
        assert!(matches!(error, Error::NoSuchSymbol { what: "function", .. }), "{error}");
    }
    assert!(matches!(
        b.module.global("none"),
        Err(Error::NoSuchSymbol { what: "variable", .. })
    ));
    let (address, bytes) = b.module.global("factor").unwrap();
    assert!(address != 0 && bytes == 4);
    // A function keeps its module.
    let Bench {
        module, pool, stream, ..
    } = b;
    let add = module.function("add").unwrap();
    drop(module);
    let mut x = pool.alloc(4).unwrap();
    stream.memset(&mut x, 0).unwrap();
    // SAFETY: a count, a number, and a block of one word.
    unsafe {
        stream.launch(
            &add,
            Geometry::linear(1, 1),
            &[Arg::value(&1u32), Arg::value(&9u32), Arg::ptr(x.ptr())],
        )
    }
    .unwrap();
    let mut word = [0; 4];
    stream.download(&x, 0, &mut word).unwrap();
    assert_eq!(word, 9u32.to_ne_bytes());
}

#[test]
fn shared_memory_beyond_48_kib_is_asked_for() {
    let b = bench();
    let turn = b.module.function("turn").unwrap();
    assert!(turn.max_threads().unwrap() >= 1024 && turn.registers().unwrap() <= 255);
    assert_eq!(turn.static_shared().unwrap(), 0);
    let (threads, shared) = (256u32, 60 << 10);
    let last = shared / 4 - 1;
    let mut out = b.pool.alloc(4 * threads as usize).unwrap();
    b.stream.memset(&mut out, 0xff).unwrap();
    let geometry = Geometry {
        grid: [1, 1, 1],
        block: [threads, 1, 1],
        shared,
    };
    let launch = || {
        // SAFETY: the last word of the shared memory that the launch asks for, and a block of a word for each thread.
        unsafe {
            b.stream
                .launch(&turn, geometry, &[Arg::value(&last), Arg::ptr(out.ptr())])
        }
    };
    assert!(matches!(launch(), Err(Error::Launch { .. })));
    turn.set_dynamic_shared(shared).unwrap();
    launch().unwrap();
    assert_eq!(b.numbers(&out), (0..threads).collect::<Vec<_>>());
    assert!(turn.dynamic_shared().unwrap() >= shared);
    assert!(
        turn.set_dynamic_shared(b.context.info().shared_per_block_optin as u32 + 1)
            .is_err()
    );
    let (none, much) = (
        turn.occupancy(threads, 0).unwrap(),
        turn.occupancy(threads, shared).unwrap(),
    );
    assert!(none >= much && much >= 1, "{none} {much}");
}

#[test]
fn host_memory_is_kept_out_of_a_capture() {
    let b = bench();
    let mut x = b.block(&[1; 50]);
    let mut pinned = Pinned::new(&b.context, 200).unwrap();
    let graph = b
        .stream
        .capture::<Error>(|| {
            b.add(&mut x, 1)?;
            let refused = [
                b.stream.upload(&[0; 200], &mut x, 0),
                b.stream.upload_pinned(&pinned, &mut x, 0),
                b.stream.download(&x, 0, &mut [0; 200]),
                b.stream.download_pinned(&x, 0, &mut pinned),
            ];
            for result in refused {
                assert!(matches!(result, Err(Error::Capture { code: None, .. })), "{result:?}");
            }
            b.add(&mut x, 1)
        })
        .expect("what was refused did no harm");
    assert_eq!(graph.kernel_nodes().unwrap(), 2);
    graph.instantiate().unwrap().launch(&b.stream).unwrap();
    assert_eq!(b.numbers(&x), [3; 50]);
}

#[test]
fn a_broken_capture_ends() {
    let b = bench();
    let mut x = b.block(&[1; 50]);
    // Waiting for the stream invalidates a capture.
    let error = b
        .stream
        .capture::<Error>(|| {
            b.add(&mut x, 1)?;
            let error = b.stream.synchronize().unwrap_err();
            assert!(matches!(error, Error::Capture { code: Some(900), .. }), "{error}");
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(error, Error::Capture { code: Some(901), .. }), "{error}");
    // So does an error of the step, and a panic in it.
    let error = b
        .stream
        .capture(|| Err::<(), _>(b.module.function("none").unwrap_err()))
        .unwrap_err();
    assert!(matches!(error, Error::NoSuchSymbol { .. }), "{error}");
    let panic = std::panic::AssertUnwindSafe(|| b.stream.capture::<Error>(|| panic!("on purpose")));
    assert!(std::panic::catch_unwind(panic).is_err());
    assert!(!b.stream.capturing().unwrap());
    assert!(b.stream.end_capture().is_err(), "none was begun");
    b.add(&mut x, 1).unwrap();
    assert_eq!(b.numbers(&x), [2; 50]);
}
