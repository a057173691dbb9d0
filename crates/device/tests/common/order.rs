//! Properties that hold in whatever order the device does its work: run with every order of the emulator's streams.

#![allow(unreachable_pub)]

use crate::common::{Bench, KERNELS};
use kiln_device::{Arg, Error, Event, Geometry, Module, Pinned, Pool, Priority, Stream};

/// Sizes that straddle the kernels' blocks and the staged uploads.
const SIZES: [usize; 9] = [1, 31, 33, 127, 129, 16383, 16384, 16385, 100_003];

fn counting(n: usize, from: u32) -> Vec<u32> {
    (from..).take(n).collect()
}

pub fn bytes_come_back(b: &Bench) {
    for n in SIZES {
        let numbers = counting(n, n as u32);
        assert_eq!(b.numbers(&b.block(&numbers)), numbers, "{n}");
    }
    let empty = b.block(&[]);
    assert_eq!((empty.len(), empty.is_empty()), (0, true));
    assert_ne!(empty.ptr(), 0);
    assert!(b.numbers(&empty).is_empty());
}

pub fn kernels_see_what_came_before(b: &Bench) {
    for n in SIZES {
        let mut block = b.block(&counting(n, 0));
        b.add(&mut block, 5).unwrap();
        b.add(&mut block, 6).unwrap();
        let mut copy = b.pool.alloc(4 * n).unwrap();
        b.stream.memset(&mut copy, 0xff).unwrap();
        assert!(b.numbers(&copy).iter().all(|x| *x == u32::MAX));
        b.stream.copy(&block, 0, &mut copy, 0, 4 * n).unwrap();
        b.add(&mut block, 1).unwrap();
        assert_eq!(b.numbers(&copy), counting(n, 11), "{n}");
    }
}

/// A host slice may be written as soon as the upload returns.
pub fn uploads_have_read_their_slice(b: &Bench) {
    for n in [3usize, 16384, 20000] {
        let mut blocks: Vec<_> = (0..40).map(|_| b.pool.alloc(4 * n).unwrap()).collect();
        let mut host = vec![0u32; n];
        for (i, block) in blocks.iter_mut().enumerate() {
            host.fill(i as u32);
            b.stream.upload(bytemuck::cast_slice(&host), block, 0).unwrap();
            b.add(block, 100).unwrap();
        }
        host.fill(12345);
        for (i, block) in blocks.iter().enumerate() {
            assert_eq!(b.numbers(block), vec![100 + i as u32; n], "upload {i} of {n}");
        }
    }
}

/// Accesses of pinned memory wait for its copies.
pub fn pinned_memory_waits(b: &Bench) {
    let n = 5000;
    let copies = Stream::new(&b.context, Priority::High).unwrap();
    let mut host = Pinned::new(&b.context, n).unwrap();
    assert!(host.iter().all(|x| *x == 0));
    let mut blocks: Vec<_> = (0..10).map(|_| b.pool.alloc(n).unwrap()).collect();
    for (i, block) in blocks.iter_mut().enumerate() {
        host.fill(i as u8);
        copies.upload_pinned(&host, block, 0).unwrap();
    }
    for (i, block) in blocks.iter().enumerate() {
        copies.download_pinned(block, 0, &mut host).unwrap();
        assert!(host.iter().all(|x| *x == i as u8), "copy {i}");
    }
    // The memory is dropped with a copy under way.
    copies.upload_pinned(&host, &mut blocks[0], 0).unwrap();
    drop(host);
    copies.synchronize().unwrap();
}

/// Upload on one stream, compute on another, ordered by events alone.
pub fn events_order_streams(b: &Bench) {
    let n = 3000;
    let copies = Stream::new(&b.context, Priority::High).unwrap();
    let (arrived, used) = (Event::new(&b.context).unwrap(), Event::new(&b.context).unwrap());
    assert!(used.is_done().unwrap(), "an event that was never recorded is done");
    let mut host = Pinned::new(&b.context, 4 * n).unwrap();
    let mut batch = b.pool.alloc(4 * n).unwrap();
    let mut sums: Vec<_> = (0..8).map(|_| b.pool.alloc(4 * n).unwrap()).collect();
    for (step, sum) in sums.iter_mut().enumerate() {
        let words: &mut [u32] = bytemuck::cast_slice_mut(&mut host);
        words.fill(step as u32);
        copies.wait(&used).unwrap();
        copies.upload_pinned(&host, &mut batch, 0).unwrap();
        copies.record(&arrived).unwrap();
        b.stream.wait(&arrived).unwrap();
        b.add(&mut batch, 1000).unwrap();
        b.stream.copy(&batch, 0, sum, 0, 4 * n).unwrap();
        b.stream.record(&used).unwrap();
    }
    used.synchronize().unwrap();
    assert!(used.is_done().unwrap() && arrived.is_done().unwrap());
    for (step, sum) in sums.iter().enumerate() {
        assert_eq!(b.numbers(sum), vec![1000 + step as u32; n], "step {step}");
    }
    b.context.synchronize().unwrap();
    assert!(copies.is_idle().unwrap() && b.stream.is_idle().unwrap());
}

pub fn events_keep_time(b: &Bench) {
    let (start, end) = (Event::timed(&b.context).unwrap(), Event::timed(&b.context).unwrap());
    let mut block = b.block(&counting(1000, 0));
    b.stream.record(&start).unwrap();
    b.add(&mut block, 1).unwrap();
    b.stream.record(&end).unwrap();
    end.synchronize().unwrap();
    assert!(end.elapsed_since(&start).unwrap() >= 0.0);
    let plain = Event::new(&b.context).unwrap();
    b.stream.record(&plain).unwrap();
    plain.synchronize().unwrap();
    assert!(plain.elapsed_since(&start).is_err(), "it keeps no time");
}

/// A captured step with a fork and a join, replayed and updated.
pub fn graphs_replay(b: &Bench) {
    let n = 700;
    let side = Stream::new(&b.context, Priority::Low).unwrap();
    let (fork, join) = (Event::new(&b.context).unwrap(), Event::new(&b.context).unwrap());
    let (mut x, mut y) = (b.block(&vec![0; n]), b.block(&vec![0; n]));
    let mut z = b.block(&vec![0; n]);
    let mut step = |by: u32| {
        b.stream.capture::<Error>(|| {
            assert!(b.stream.capturing()?);
            b.add(&mut x, by)?;
            b.stream.record(&fork)?;
            side.wait(&fork)?;
            assert!(side.capturing()?);
            b.add_on(&side, &mut y, 2 * by)?;
            b.add(&mut x, by)?;
            side.record(&join)?;
            b.stream.wait(&join)?;
            b.stream.copy(&x, 0, &mut z, 0, 4 * n)
        })
    };
    let (one, ten) = (step(1).unwrap(), step(10).unwrap());
    assert!(!b.stream.capturing().unwrap() && !side.capturing().unwrap());
    assert_eq!((one.nodes().unwrap(), one.kernel_nodes().unwrap()), (4, 3));
    assert_eq!(b.numbers(&x), vec![0; n], "to capture is not to run");

    let mut exec = one.instantiate().unwrap();
    for _ in 0..3 {
        exec.launch(&b.stream).unwrap();
    }
    assert_eq!([&x, &y, &z].map(|v| b.numbers(v)), [6, 6, 6].map(|v| vec![v; n]));
    assert!(exec.update(&ten).unwrap(), "the same step with another number");
    exec.launch(&b.stream).unwrap();
    assert_eq!([&x, &y, &z].map(|v| b.numbers(v)), [26, 26, 26].map(|v| vec![v; n]));

    let other = b.stream.capture::<Error>(|| b.add(&mut x, 1)).unwrap();
    assert!(!exec.update(&other).unwrap(), "a step of another shape");
    exec.launch(&b.stream).unwrap();
    assert_eq!(b.numbers(&z), vec![46; n], "it is as before");
}

/// A graph keeps blocks and kernels of which it holds the last reference, and releases them when it is dropped.
pub fn graphs_keep_what_they_use(b: &Bench) {
    // A direct pool gives memory back to the driver, which then reports any access to it.
    for pool in [Pool::new(&b.context), Pool::direct(&b.context)] {
        let block = |number: u32| {
            let mut block = pool.alloc(160).unwrap();
            b.stream
                .upload(bytemuck::cast_slice(&[number; 40]), &mut block, 0)
                .unwrap();
            block
        };
        let (mut x, y, mut z, mut w) = (block(1), block(2), block(3), block(4));
        let module = Module::load(&b.context, KERNELS.as_bytes()).unwrap();
        let add = module.function("add").unwrap();
        let captured = b.stream.capture::<Error>(|| {
            b.stream.copy(&y, 0, &mut x, 0, 160)?;
            b.stream.memset(&mut z, 7)?;
            let args = [Arg::value(&40u32), Arg::value(&1u32), Arg::block(&w)];
            // SAFETY: the kernel takes a count, a number, and a block of as many words as the count says.
            unsafe { b.stream.launch(&add, Geometry::linear(40, 64), &args) }
        });
        let graph = captured.unwrap();
        // After the capture, blocks that are used are not kept any more.
        b.stream.memset(&mut w, 0).unwrap();
        let live = pool.stats().live;
        drop((x, y, z, w, add, module));
        assert_eq!(pool.stats().live, live, "the graph has them");
        // Blocks that are allocated now are not those that the graph writes.
        let others: Vec<_> = (100..108).map(block).collect();
        let exec = graph.instantiate().unwrap();
        drop(graph);
        for _ in 0..3 {
            exec.launch(&b.stream).unwrap();
        }
        b.stream.synchronize().unwrap();
        for (number, other) in (100..).zip(&others) {
            assert_eq!(b.numbers(other), vec![number; 40]);
        }
        drop((exec, others));
        assert_eq!(pool.stats().live, 0, "and gives them back");
    }
}

/// Every scenario, in one process.
pub fn all() {
    let b = Bench::new();
    bytes_come_back(&b);
    kernels_see_what_came_before(&b);
    uploads_have_read_their_slice(&b);
    pinned_memory_waits(&b);
    events_order_streams(&b);
    events_keep_time(&b);
    graphs_replay(&b);
    graphs_keep_what_they_use(&b);
}
