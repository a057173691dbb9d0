//! Memory, errors and captured steps.

use crate::twin::{bits, buffer, read, upload};
use crate::{cuda, with};
use half::{bf16, f16};
use kiln_core::ops::{Distribution, ElementwiseOps, GroupNormParams, OptimSlot, RandomParams, SgdParams};
use kiln_core::{Backend, DType, Element, Error, Result, Runtime, Shape};
use kiln_cpu::Cpu;
use kiln_cuda::{Cuda, Options};
use kiln_nn::{Indices, Tensor};

fn round_trip<T: Element>(cuda: &Cuda, of: impl Fn(usize) -> T) {
    for n in [0, 1, 31, 33, 1000, 70_001] {
        let values: Vec<T> = (0..n).map(&of).collect();
        let buffer = cuda.upload(&values).unwrap();
        let mut copy = cuda.alloc(T::DTYPE, n).unwrap();
        cuda.copy(&buffer, &mut copy).unwrap();
        assert_eq!(cuda.download::<T>(&buffer).unwrap(), values, "{n} of {}", T::DTYPE);
        assert_eq!(cuda.download::<T>(&copy).unwrap(), values, "{n} of {}", T::DTYPE);
    }
}

#[test]
fn values_come_back() {
    for cuda in [cuda(), with(Options::default())] {
        round_trip(&cuda, |i| i as f32 + 0.5);
        round_trip(&cuda, |i| bf16::from_f32(i as f32));
        round_trip(&cuda, |i| f16::from_f32((i % 2048) as f32));
        round_trip(&cuda, |i| i as i32 - 7);
        round_trip(&cuda, |i| i as u8);
    }
}

/// Uploads of several sizes, one behind the other and over the same buffer, each read by an op before the next.
#[test]
fn uploads_keep_their_order() {
    for cuda in [cuda(), with(Options::default())] {
        let sizes = [20_000usize, 70_000, 1000, 70_000, 40_000, 100_000, 16_384, 16_385];
        let mut read = Vec::new();
        for round in 0..3 {
            for (i, &n) in sizes.iter().enumerate() {
                let values: Vec<f32> = (0..n).map(|j| (round * 100 + i * 7 + j % 13) as f32).collect();
                let mut buffer = cuda.upload(&vec![-1f32; n]).unwrap();
                cuda.write(&values, &mut buffer).unwrap();
                let mut sum = cuda.alloc(DType::F32, n).unwrap();
                cuda.copy(&buffer, &mut sum).unwrap();
                cuda.write(&vec![0.5f32; n], &mut buffer).unwrap();
                cuda.accumulate(&buffer, &mut sum).unwrap();
                read.push((sum, values));
            }
        }
        for (sum, values) in read {
            let expected: Vec<f32> = values.iter().map(|v| v + 0.5).collect();
            assert!(cuda.download::<f32>(&sum).unwrap() == expected);
        }
    }
}

/// A buffer is filled piece by piece, by small and large pieces; a piece that does not fit is refused.
#[test]
fn parts_are_uploaded_to_their_places() {
    for cuda in [cuda(), with(Options::default())] {
        let expected: Vec<f32> = (0..90_000).map(|i| i as f32).collect();
        let mut buffer = cuda.upload(&vec![-1f32; expected.len()]).unwrap();
        let bytes: Vec<u8> = expected.iter().flat_map(|v| v.to_ne_bytes()).collect();
        for (from, to) in [(70_001, 90_000), (0, 3), (3, 20_000), (20_000, 70_001)] {
            cuda.upload_part(&bytes[4 * from..4 * to], &mut buffer, 4 * from)
                .unwrap();
        }
        for (count, offset) in [(8, bytes.len() - 4), (1, bytes.len()), (4, usize::MAX)] {
            let refused = cuda.upload_part(&bytes[..count], &mut buffer, offset);
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{offset}");
        }
        assert!(cuda.download::<f32>(&buffer).unwrap() == expected);
    }
}

#[test]
fn new_memory_is_poisoned_when_asked() {
    let cuda = cuda();
    let buffer = cuda.alloc(DType::F32, 37).unwrap();
    assert!(cuda.download::<f32>(&buffer).unwrap().iter().all(|v| v.is_nan()));
}

#[test]
fn memory_is_counted() {
    let cuda = with(Options::default());
    let before = cuda.memory();
    let buffer = cuda.alloc(DType::F32, 10_000).unwrap();
    assert!(cuda.memory().live >= before.live + 40_000);
    drop(buffer);
    assert_eq!(cuda.memory().live, before.live);
    let allocations = cuda.memory().allocations;
    for _ in 0..10 {
        cuda.alloc(DType::F32, 10_000).unwrap();
    }
    assert_eq!(cuda.memory().allocations, allocations, "a freed block is used again");
}

/// Asking for more memory than there is gives an error that says how much was asked for, and nothing is lost by it.
#[test]
fn out_of_memory_is_recoverable() {
    let cuda = with(Options::default());
    let free = cuda.context().free_memory().unwrap();
    let mut stats = None;
    for cycle in 0..100 {
        match cuda.alloc(DType::U8, 2 * free) {
            Err(Error::OutOfMemory {
                device,
                requested,
                free: Some(left),
            }) => {
                assert_eq!(device, "cuda:0");
                assert!(requested >= 2 * free && left < requested, "{requested} of {left}");
            }
            other => panic!("cycle {cycle}: {other:?}"),
        }
        let small = cuda.upload(&[1f32, 2.0, 3.0]).unwrap();
        assert_eq!(cuda.download::<f32>(&small).unwrap(), [1.0, 2.0, 3.0]);
        drop(small);
        // The failure released cached memory, so each cycle allocates its small batch anew.
        let now = cuda.memory();
        let before = *stats.get_or_insert((now.live, now.cached));
        assert_eq!((now.live, now.cached), before, "cycle {cycle} left something behind");
    }
    // Other tests of this process hold memory too, but none as much as 256 MiB.
    let now = cuda.context().free_memory().unwrap();
    assert!(now + (256 << 20) >= free, "{free} bytes were free, {now} are");
    assert!(matches!(
        cuda.alloc(DType::F32, usize::MAX / 2),
        Err(Error::TooLarge { .. })
    ));
}

fn select(cuda: &Cuda, index: i32) -> Result<Tensor<Cuda>> {
    let x = Tensor::from_slice(cuda, &[1f32, 2.0, 3.0], &[3])?;
    x.index_select(0, &Indices::from_slice(cuda, &[0, index], &[2])?)
}

/// A bad index that only a kernel sees is reported once, by the next download; with `blocking`, by the op itself.
#[test]
fn faults_are_reported_once() {
    let bad = |r: Result<Vec<f32>>| match r {
        Err(Error::IndexOutOfRange {
            op,
            index,
            position,
            size,
        }) => assert_eq!((op, index, position, size), ("index_select", 3, 1, 3)),
        other => panic!("{other:?}"),
    };
    let later = with(Options::default());
    let y = select(&later, 3).unwrap();
    bad(y.to_vec());
    assert_eq!(select(&later, 2).unwrap().to_vec::<f32>().unwrap(), [1.0, 3.0]);
    let y = select(&later, 3).unwrap();
    bad(later.sync().map(|()| Vec::new()));
    later.sync().unwrap();
    drop(y);

    let blocking = with(Options {
        blocking: true,
        ..Options::default()
    });
    bad(select(&blocking, 3).map(|_| Vec::new()));
    assert_eq!(select(&blocking, 2).unwrap().to_vec::<f32>().unwrap(), [1.0, 3.0]);
}

/// A small step: a ticket, dropout of what batch norm gives, and an update by its result.
struct Step<B: Backend> {
    backend: B,
    counter: B::Buffer,
    ticket: B::Buffer,
    x: B::Buffer,
    y: B::Buffer,
    stats: [B::Buffer; 2],
    dropped: B::Buffer,
    weight: B::Buffer,
    velocity: B::Buffer,
    scalars: B::Buffer,
}

const ROWS: usize = 70;
const CHANNELS: usize = 12;

impl<B: Backend> Step<B> {
    fn new(backend: &B) -> Self {
        let n = ROWS * CHANNELS;
        let int = |v: i32| backend.upload(&[v]).unwrap_or_else(|e| panic!("{e}"));
        let floats = |n: usize| upload(backend, &vec![0f32; n]);
        Step {
            backend: backend.clone(),
            counter: int(5),
            ticket: int(0),
            x: buffer::<B, f32>(backend, n, 1),
            y: floats(n),
            stats: [floats(CHANNELS), floats(CHANNELS)],
            dropped: floats(n),
            weight: buffer::<B, f32>(backend, n, 2),
            velocity: floats(n),
            scalars: upload(backend, &[0.1f32, 0.0, 0.0, 1.0]),
        }
    }

    fn run(&mut self) -> Result<()> {
        let b = &self.backend;
        b.tick(&mut self.counter, &mut self.ticket)?;
        let p = GroupNormParams::batch("batch_norm", &Shape::new(&[ROWS, CHANNELS])?, 1e-5)?;
        let [mean, rstd] = &mut self.stats;
        // This op takes scratch memory: a captured step has memory of its own.
        b.group_norm(&p, &self.x, None, None, &mut self.y, mean, rstd)?;
        let p = RandomParams::new("step", Distribution::Bernoulli, ROWS * CHANNELS, (0.4, 0.0), 11, 3)?;
        b.dropout(&p, &self.ticket, &self.y, &mut self.dropped)?;
        let p = SgdParams {
            momentum: 0.9,
            dampening: 0.0,
            weight_decay: 0.01,
            nesterov: 0,
            pad: 0,
        };
        let slot = OptimSlot {
            param: &mut self.weight,
            half: None,
            grad: &self.dropped,
            state: vec![&mut self.velocity],
        };
        b.sgd(&p, &self.scalars, &mut [slot])?;
        b.copy(&self.weight, &mut self.x)
    }

    fn result(&self) -> Vec<f32> {
        read(&self.backend, &self.weight)
    }
}

#[test]
fn a_replayed_step_is_the_step() {
    for options in [
        Options::default(),
        Options {
            blocking: true,
            poison: true,
            ..Options::default()
        },
    ] {
        let (cuda, plain) = (with(options), with(options));
        let (mut captured, mut eager) = (Step::new(&cuda), Step::new(&plain));
        // The first step loads the kernels, which no capture can.
        captured.run().unwrap();
        eager.run().unwrap();
        let graph = cuda.capture(&mut || captured.run()).unwrap();
        let mut graph = graph.expect("CUDA captures");
        // tick, two of batch norm, dropout and the update
        assert_eq!(graph.launches(), 5);
        for replay in 0..4 {
            if replay > 0 {
                cuda.replay(&mut graph).unwrap();
            }
            // Other work between replays does not disturb the graph's memory.
            let other = cuda.upload(&vec![7f32; ROWS * CHANNELS * 2]).unwrap();
            eager.run().unwrap();
            assert_eq!(
                bits(&captured.result()),
                bits(&eager.result()),
                "replay {replay}, {options:?}"
            );
            assert_eq!(cuda.download::<f32>(&other).unwrap(), vec![7f32; ROWS * CHANNELS * 2]);
        }
        let ticket = cuda.download::<i32>(&captured.ticket).unwrap();
        assert_eq!(ticket, [9], "a captured step counts on");
    }
}

/// The same step on the CPU gives the same bits of random numbers and updates, and the same values of the norm.
#[test]
fn a_step_is_the_cpus() {
    let (mut cuda, mut cpu) = (Step::new(&cuda()), Step::new(&Cpu::poisoned()));
    for _ in 0..3 {
        cuda.run().unwrap();
        cpu.run().unwrap();
    }
    for (a, b) in cuda.result().into_iter().zip(cpu.result()) {
        assert!((a - b).abs() <= 1e-4, "{a}, on the CPU {b}");
    }
}

/// Calls that would wait or read host memory are refused in a capture, by name, and the device stays usable.
#[test]
fn captures_refuse_transfers() {
    let cuda = with(Options::default());
    let x = upload(&cuda, &[1f32; 40]);
    let refused = |name: &str, result: Result<()>| match result {
        Err(Error::NotCapturable { what, device }) => {
            assert_eq!((what, device.as_str()), (name, "cuda:0"));
        }
        other => panic!("{name}: {other:?}"),
    };
    let attempts: [(&str, &dyn Fn() -> Result<()>); 4] = [
        ("an upload", &|| cuda.upload(&[1f32]).map(|_| ())),
        ("a download", &|| cuda.download::<f32>(&x).map(|_| ())),
        ("waiting", &|| cuda.sync()),
        ("a second capture", &|| cuda.capture(&mut || Ok(())).map(|_| ())),
    ];
    for (name, attempt) in attempts {
        refused(name, cuda.capture(&mut || attempt()).map(|_| ()));
        assert_eq!(read::<_, f32>(&cuda, &x), vec![1f32; 40], "after {name}");
    }
    let mut y = upload(&cuda, &[0f32; 40]);
    let mut graph = cuda
        .capture(&mut || cuda.copy(&x, &mut y))
        .unwrap()
        .expect("CUDA captures");
    cuda.replay(&mut graph).unwrap();
    assert_eq!(read::<_, f32>(&cuda, &y), vec![1f32; 40]);
}

/// An error in a capture is the body's, and nothing of the body ran.
#[test]
fn a_failed_capture_runs_nothing() {
    let cuda = with(Options::default());
    let (x, mut y) = (upload(&cuda, &[1f32; 40]), upload(&cuda, &[0f32; 40]));
    let result = cuda.capture(&mut || {
        cuda.copy(&x, &mut y)?;
        Err(Error::invalid("step", "body", "it", "something else"))
    });
    assert!(
        matches!(result, Err(Error::InvalidArgument { op: "step", .. })),
        "{result:?}"
    );
    assert_eq!(read::<_, f32>(&cuda, &y), vec![0f32; 40]);
}

#[test]
fn a_device_that_is_not_there() {
    let _ = cuda();
    match Cuda::new(99) {
        Err(Error::DeviceUnavailable { device, reason }) => {
            assert_eq!(device, "cuda:99");
            assert!(reason.contains("99"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

/// A request that cannot be served gives cached memory back, which must not spoil what another thread records meanwhile.
#[test]
fn running_out_of_memory_leaves_captures_of_others_alone() {
    let (recorder, other) = (with(Options::default()), with(Options::default()));
    let mut buffer = recorder.alloc(DType::F32, 1000).unwrap();
    recorder.fill(0.0, &mut buffer).unwrap();
    let free = other.context().free_memory().unwrap();
    drop(other.alloc(DType::F32, 1000).unwrap());
    let graph = recorder.capture(&mut || {
        let failed = std::thread::scope(|scope| scope.spawn(|| other.alloc(DType::U8, 2 * free).err()).join());
        assert!(matches!(failed.unwrap(), Some(Error::OutOfMemory { .. })));
        recorder.fill(7.0, &mut buffer)
    });
    recorder.replay(&mut graph.unwrap().unwrap()).unwrap();
    assert!(recorder.download::<f32>(&buffer).unwrap().iter().all(|&x| x == 7.0));
}

/// Threads with handles of their own record on one device at the same time: each waits for its turn.
#[test]
fn threads_record_side_by_side() {
    let run = |value: f64| {
        let cuda = with(Options::default());
        let mut buffer = cuda.alloc(DType::F32, 1000).unwrap();
        // The first call loads the kernel, which no capture can.
        cuda.fill(0.0, &mut buffer).unwrap();
        for i in 0..10 {
            let graph = cuda.capture(&mut || {
                // Long enough for the other threads to reach their capture.
                std::thread::sleep(std::time::Duration::from_millis(1));
                cuda.fill(value + f64::from(i), &mut buffer)
            });
            assert!(graph.unwrap_or_else(|e| panic!("recording {i}: {e}")).is_some());
            let want = (value + f64::from(i)) as f32;
            assert!(cuda.download::<f32>(&buffer).unwrap().iter().all(|&x| x == want));
        }
    };
    std::thread::scope(|scope| {
        for value in [100.0, 200.0, 300.0] {
            scope.spawn(move || run(value));
        }
    });
}
