//! Two devices.

mod common;

use common::{Bench, KERNELS};
use kiln_device::{Arg, Context, Error, Event, Geometry, Module, Pool, Priority, Stream};
use std::io::Write;

#[test]
fn devices_copy_to_each_other_and_are_not_confused() {
    common::start(&[("KILN_EMULATOR_DEVICES", "2"), ("KILN_EMULATOR_STREAMS", "lazy")]);
    if kiln_device::devices().unwrap().len() < 2 {
        // This is another driver, with one device. The message bypasses libtest, which keeps the output of passing tests.
        let _ = writeln!(std::io::stderr(), "skipped: two devices are needed, and one is here");
        return;
    }
    let near = Bench::new();
    let context = Context::new(1).unwrap();
    assert_eq!((near.context.ordinal(), context.ordinal()), (0, 1));
    let (pool, stream) = (Pool::new(&context), Stream::new(&context, Priority::Normal).unwrap());

    let (n, one, ten) = (5000, 1u32, 10u32);
    let count = n as u32;
    let numbers: Vec<u32> = (0..count).collect();
    let mut here = near.block(&numbers);
    near.add(&mut here, 1).unwrap();
    let mut there = pool.alloc(4 * n).unwrap();

    // The stream of either device, ordered after the other by an event.
    near.stream.copy_peer(&here, 0, &mut there, 0, 4 * n).unwrap();
    let sent = Event::new(&near.context).unwrap();
    near.stream.record(&sent).unwrap();
    stream.wait(&sent).unwrap();
    let add = Module::load(&context, KERNELS.as_bytes())
        .unwrap()
        .function("add")
        .unwrap();
    // SAFETY: a count, a number, and a block of as many words as the count says.
    unsafe {
        let args = [Arg::value(&count), Arg::value(&ten), Arg::ptr(there.ptr())];
        stream.launch(&add, Geometry::linear(count, 64), &args).unwrap();
    }
    let mut back = vec![0u32; n];
    stream.download(&there, 0, bytemuck::cast_slice_mut(&mut back)).unwrap();
    assert!(back.iter().zip(0..).all(|(b, i)| *b == i + 11));
    stream.copy_peer(&there, 4, &mut here, 0, 400).unwrap();
    near.stream.wait_for(&stream).unwrap();
    assert_eq!(near.numbers(&here)[..100], back[1..101]);

    // Objects of one device with a stream of the other.
    let refused = [
        stream.memset(&mut here, 0),
        stream.upload(&[0; 4], &mut here, 0),
        near.stream.copy(&here, 0, &mut there, 0, 4),
        near.stream.download(&there, 0, &mut [0; 4]),
        near.stream.record(&Event::new(&context).unwrap()),
        // SAFETY: refused before the driver sees it.
        unsafe { near.stream.launch(&add, Geometry::linear(1, 1), &[]) },
    ];
    for result in refused {
        assert!(matches!(result, Err(Error::DeviceMismatch { .. })), "{result:?}");
    }

    if near.context.can_access_peer(&context).unwrap() {
        near.context.enable_peer(&context).unwrap();
        near.context.enable_peer(&context).unwrap();
        // A kernel here on memory there.
        let mut sum = there;
        let args = [Arg::value(&count), Arg::value(&one), Arg::ptr(sum.ptr())];
        let add = near.module.function("add").unwrap();
        near.stream.wait_for(&stream).unwrap();
        // SAFETY: as above; the devices reach each other's memory.
        unsafe { near.stream.launch(&add, Geometry::linear(count, 64), &args).unwrap() };
        stream.wait_for(&near.stream).unwrap();
        stream.download(&sum, 0, bytemuck::cast_slice_mut(&mut back)).unwrap();
        assert!(back.iter().zip(0..).all(|(b, i)| *b == i + 12));
        stream.memset(&mut sum, 0).unwrap();
    }
    assert!(near.context.can_access_peer(&near.context).unwrap());
    near.context.enable_peer(&near.context).unwrap();
}
