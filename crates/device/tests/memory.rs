//! Memory that runs out, and the pool, on a device of 256 MiB; on a real one less is known of its free memory.

mod common;

use common::{Bench, start};
use kiln_device::{Context, Error, Pool, PoolStats};

const MEMORY: usize = 256 << 20;

fn bench() -> Bench {
    start(&[("KILN_EMULATOR_MEMORY", "268435456")]);
    Bench::new()
}

/// One test, since all look at the same device's free memory.
#[test]
fn memory_is_counted_and_comes_back() {
    let b = bench();
    running_out_is_an_error_and_no_more(&b);
    cached_memory_is_given_up_before_that(&b);
    the_last_memory_goes_to_requests_of_any_size(&b);
    a_steady_step_asks_the_driver_for_nothing(&b);
    private_memory_stays_apart(&b);
    a_private_pool_has_one_segment(&b);
    a_direct_pool_keeps_nothing(&b);
    threads_share_a_pool(&b);
    everything_made_is_given_back(&b);
}

fn everything_made_is_given_back(b: &Bench) {
    let free = b.context.free_memory().unwrap();
    for _ in 0..20 {
        let other = Bench::new();
        let mut x = other.block(&[1; 3000]);
        let graph = other.stream.capture::<Error>(|| other.add(&mut x, 1)).unwrap();
        let exec = graph.instantiate().unwrap();
        exec.launch(&other.stream).unwrap();
        // Dropped in another order than they were made in, with work under way.
        drop(graph);
        let Bench {
            pool,
            stream,
            module,
            context,
        } = other;
        drop((context, module, pool, stream));
        drop((exec, x));
    }
    assert_free(b, free);
}

fn running_out_is_an_error_and_no_more(b: &Bench) {
    let pool = Pool::new(&b.context);
    let (free_before, total) = b.context.memory().unwrap();
    assert!(free_before <= total);
    for cycle in 0..100 {
        let free = b.context.free_memory().unwrap();
        match pool.alloc(2 * free) {
            Err(Error::OutOfMemory {
                ordinal: 0,
                requested,
                free: found,
                total: all,
            }) => {
                assert_eq!((requested, all), (2 * free, total), "cycle {cycle}");
                // NVIDIA's driver keeps a page of its own, once.
                assert!(found + (2 << 20) >= free, "the cache was given back: {found} < {free}");
            }
            other => panic!("cycle {cycle}: {other:?}"),
        }
        let mut small = pool.alloc(4 * 100).unwrap();
        b.stream.memset(&mut small, 1).unwrap();
        b.add(&mut small, 1).unwrap();
        assert_eq!(b.numbers(&small), vec![0x0101_0102; 100]);
    }
    for absurd in [usize::MAX, usize::MAX / 2, isize::MAX as usize] {
        let error = pool.alloc(absurd).unwrap_err();
        assert!(
            matches!(error, Error::OutOfMemory { requested, .. } if requested == absurd),
            "{error}"
        );
    }
    drop(pool);
    assert_free(b, free_before);
}

/// Asserts that as much memory is free as was before.
fn assert_free(b: &Bench, before: usize) {
    let (free, total) = b.context.memory().unwrap();
    assert!(free == before || total > MEMORY, "{} bytes are not back", before - free);
}

fn cached_memory_is_given_up_before_that(b: &Bench) {
    let pool = Pool::new(&b.context);
    // A multiple of what segments are rounded to.
    let part = (b.context.free_memory().unwrap() / 8).next_multiple_of(2 << 20) - (2 << 20);
    drop((0..5).map(|_| pool.alloc(part).unwrap()).collect::<Vec<_>>());
    let stats = pool.stats();
    assert_eq!((stats.live, stats.cached, stats.peak), (0, 5 * part, 5 * part));
    // This fits only if cached memory is given back, of which as much goes as comes.
    let large = pool.alloc(4 * part).unwrap();
    assert_eq!(pool.stats().cached, part);
    assert_eq!(pool.stats().releases, 4);
    drop(large);
    pool.release_cached().unwrap();
    assert_eq!(pool.stats().cached, 0);
}

/// A request is out of memory only if the device has not its bytes: no segment for later requests comes before it.
fn the_last_memory_goes_to_requests_of_any_size(b: &Bench) {
    let pool = Pool::new(&b.context);
    let before = b.context.free_memory().unwrap();
    // Less than the segment of either size of request.
    let filler = pool.alloc((before - (9 << 20)).next_multiple_of(2 << 20)).unwrap();
    let free = b.context.free_memory().unwrap();
    assert!((1 << 20..20 << 20).contains(&free) || before > MEMORY, "{free}");
    let blocks: Vec<_> = (0..4).map(|_| pool.alloc(free / 5).unwrap()).collect();
    let small = pool.alloc(1000).unwrap();
    match pool.alloc(free / 2) {
        Err(Error::OutOfMemory { requested, free, .. }) => assert!(free < requested, "{free} of {requested}"),
        other => panic!("{other:?}"),
    }
    drop((blocks, small, filler, pool));
    assert_free(b, before);
}

/// Takes and returns blocks as a training step would, and gives their addresses.
fn step(pool: &Pool) -> Vec<u64> {
    let mut addresses = Vec::new();
    let mut kept = Vec::new();
    for (i, bytes) in [4, 3 << 20, 70_000, 0, 12 << 20, 512, 1 << 20, 2 << 20]
        .into_iter()
        .enumerate()
    {
        let block = pool.alloc(bytes).unwrap();
        addresses.push(block.ptr());
        if i % 3 != 0 {
            kept.push(block);
        }
        if i == 5 {
            kept.remove(1);
        }
    }
    addresses
}

fn a_steady_step_asks_the_driver_for_nothing(b: &Bench) {
    let pool = Pool::new(&b.context);
    step(&pool);
    let (second, allocations) = (step(&pool), pool.stats().allocations);
    for _ in 0..10 {
        assert_eq!(step(&pool), second);
    }
    let stats = pool.stats();
    assert_eq!((stats.allocations, stats.requests, stats.live), (allocations, 96, 0));
}

fn private_memory_stays_apart(b: &Bench) {
    let free = b.context.free_memory().unwrap();
    let pool = Pool::new(&b.context);
    let private = pool.private().unwrap();
    let outside = pool.alloc(1000).unwrap();
    let mut kept = None;
    let graph = {
        let _entered = pool.enter(&private);
        b.stream
            .capture::<Error>(|| {
                for by in 1..4 {
                    // Too large for the memory that the pool has: the driver is asked in the capture.
                    let mut scratch = pool.alloc(11 << 20)?;
                    b.stream.memset(&mut scratch, 0)?;
                    b.add(&mut scratch, by)?;
                    kept = Some(scratch);
                }
                Ok(())
            })
            .unwrap()
    };
    let kept = kept.unwrap();
    assert_eq!(private.reserved(), 24 << 20, "two blocks, one of them used twice");
    let (reserved, address) = (private.reserved(), kept.ptr());
    drop(outside);
    // The block is free, but not for others.
    let exec = graph.instantiate().unwrap();
    exec.launch(&b.stream).unwrap();
    assert_eq!(b.numbers(&kept)[..3], [3; 3]);
    drop(kept);
    let others: Vec<_> = (0..4).map(|_| pool.alloc(11 << 20).unwrap()).collect();
    assert!(others.iter().all(|o| o.ptr() != address));
    exec.launch(&b.stream).unwrap();
    b.stream.synchronize().unwrap();
    pool.release_cached().unwrap();
    assert_eq!(private.reserved(), reserved);
    drop(others);

    // Another thread's requests do not go there.
    let entered = pool.enter(&private);
    std::thread::scope(|s| {
        s.spawn(|| assert_ne!(pool.alloc(11 << 20).unwrap().ptr(), address));
    });
    // Nested, and back.
    let inner = pool.private().unwrap();
    let within = pool.enter(&inner);
    assert_ne!(pool.alloc(11 << 20).unwrap().ptr(), address);
    drop(within);
    let again = pool.alloc(11 << 20).unwrap();
    assert_eq!(again.ptr(), address.min(again.ptr()), "the lowest of two that fit");
    drop(entered);

    // The private pool lives as long as a block of it.
    drop((exec, graph, private, inner));
    pool.release_cached().unwrap();
    assert_eq!(pool.stats().live + pool.stats().cached, reserved);
    drop(again);
    assert_eq!(pool.stats().live + pool.stats().cached, 0);
    assert_free(b, free);
}

/// The sizes of a step in two orders: a private pool begins with one segment in which they all fit.
fn a_private_pool_has_one_segment(b: &Bench) {
    const MB: usize = 1 << 20;
    let pool = Pool::new(&b.context);
    let free = b.context.free_memory().unwrap();
    let lasting = pool.alloc(12 * MB).unwrap();
    let step = || {
        let mut small: Vec<_> = (0..4).map(|_| pool.alloc(11 * MB).unwrap()).collect();
        small.truncate(1);
        let large = pool.alloc(33 * MB).unwrap();
        drop((small, large));
    };
    step();
    let private = pool.private().unwrap();
    assert_eq!(private.reserved(), 44 * MB);
    let entered = pool.enter(&private);
    step();
    drop(entered);
    assert_eq!(private.reserved(), 44 * MB);
    // What has been seen is forgotten.
    assert_eq!(pool.private().unwrap().reserved(), 0);
    step();
    pool.begin();
    assert_eq!(pool.private().unwrap().reserved(), 0);
    drop((private, lasting, pool));
    assert_free(b, free);
}

fn a_direct_pool_keeps_nothing(b: &Bench) {
    let pool = Pool::direct(&b.context);
    let free = b.context.free_memory().unwrap();
    for bytes in [0, 1, 511, 5000, 3 << 20] {
        let block = pool.alloc(bytes).unwrap();
        assert_eq!(pool.stats().live, bytes.max(1));
        drop(block);
        assert_free(b, free);
    }
    let stats = pool.stats();
    assert_eq!((stats.allocations, stats.releases), (5, 5));
    let private = pool.private().unwrap();
    let entered = pool.enter(&private);
    let at = pool.alloc(1000).unwrap().ptr();
    assert_eq!(pool.alloc(1000).unwrap().ptr(), at);
    assert_eq!(pool.alloc(999).unwrap().len(), 999);
    assert_eq!(private.reserved(), 1999);
    drop((entered, private));
    assert_free(b, free);
}

fn threads_share_a_pool(b: &Bench) {
    let pool = Pool::new(&b.context);
    std::thread::scope(|s| {
        for t in 0..4u32 {
            let pool = pool.clone();
            s.spawn(move || {
                let context: &Context = pool.context();
                let stream = kiln_device::Stream::new(context, kiln_device::Priority::Normal).unwrap();
                for round in 0..50u32 {
                    let mut block = pool.alloc(4096).unwrap();
                    let numbers = vec![t * 1000 + round; 1024];
                    stream.upload(bytemuck::cast_slice(&numbers), &mut block, 0).unwrap();
                    b.add_on(&stream, &mut block, 1).unwrap();
                    let mut back = vec![0u32; 1024];
                    stream.download(&block, 0, bytemuck::cast_slice_mut(&mut back)).unwrap();
                    assert_eq!(back, vec![t * 1000 + round + 1; 1024]);
                }
            });
        }
    });
    let PoolStats { live, requests, .. } = pool.stats();
    assert_eq!((live, requests), (0, 200));
}
