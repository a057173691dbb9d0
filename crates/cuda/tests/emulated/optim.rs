//! Optimizer updates against the CPU, bit for bit, over lists of many tensors.

use crate::cuda;
use crate::twin::{EDGES, bits, buffer, read, upload};
use half::{bf16, f16};
use kiln_core::ops::{AdagradParams, AdamParams, OptimOps, OptimSlot, RmspropParams, SgdParams};
use kiln_core::{Backend, Buffer, DType, Float, Runtime};
use kiln_cpu::Cpu;
use kiln_cuda::Cuda;

#[derive(Clone, Copy, Debug)]
enum Rule {
    Sgd(SgdParams),
    Adam(AdamParams),
    Rmsprop(RmspropParams),
    Adagrad(AdagradParams),
}

impl Rule {
    fn states(&self) -> usize {
        match self {
            Rule::Sgd(p) => usize::from(p.momentum != 0.0),
            Rule::Adam(p) => 2 + p.amsgrad as usize,
            Rule::Rmsprop(p) => 1 + usize::from(p.momentum != 0.0) + p.centered as usize,
            Rule::Adagrad(_) => 1,
        }
    }

    fn step<B: Backend>(&self, backend: &B, scalars: &B::Buffer, slots: &mut [OptimSlot<'_, B::Buffer>]) {
        let done = match self {
            Rule::Sgd(p) => backend.sgd(p, scalars, slots),
            Rule::Adam(p) => backend.adam(p, scalars, slots),
            Rule::Rmsprop(p) => backend.rmsprop(p, scalars, slots),
            Rule::Adagrad(p) => backend.adagrad(p, scalars, slots),
        };
        done.unwrap_or_else(|e| panic!("{self:?}: {e}"));
    }
}

/// Every setting that chooses a kernel or a branch of one.
fn rules() -> Vec<Rule> {
    let sgd = |momentum, dampening, nesterov| {
        Rule::Sgd(SgdParams {
            momentum,
            dampening,
            weight_decay: 0.02,
            nesterov,
            pad: 0,
        })
    };
    let adam = |decoupled, amsgrad| {
        Rule::Adam(AdamParams {
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-3,
            weight_decay: 0.02,
            decoupled,
            amsgrad,
        })
    };
    let rmsprop = |momentum, centered| {
        Rule::Rmsprop(RmspropParams {
            alpha: 0.9,
            eps: 1e-2,
            weight_decay: 0.02,
            momentum,
            centered,
            pad: 0,
        })
    };
    vec![
        sgd(0.0, 0.0, 0),
        sgd(0.9, 0.1, 0),
        sgd(0.9, 0.0, 1),
        adam(0, 0),
        adam(1, 0),
        adam(0, 1),
        adam(1, 1),
        rmsprop(0.0, 0),
        rmsprop(0.8, 0),
        rmsprop(0.0, 1),
        rmsprop(0.8, 1),
        Rule::Adagrad(AdagradParams {
            eps: 1e-3,
            weight_decay: 0.02,
        }),
    ]
}

/// Parameters and states after three steps; for momentum the first is a first step.
fn train<B: Backend, T: Float>(backend: &B, rule: &Rule, sizes: &[usize]) -> Vec<Vec<u8>> {
    train_with::<B, T>(backend, rule, sizes, &[None])
}

/// As [`train`], with copies of parameters in these dtypes, in turn, which come last.
fn train_with<B: Backend, T: Float>(
    backend: &B,
    rule: &Rule,
    sizes: &[usize],
    halves: &[Option<DType>],
) -> Vec<Vec<u8>> {
    let states = rule.states();
    let mut params: Vec<_> = (0..).zip(sizes).map(|(i, &n)| buffer::<B, T>(backend, n, i)).collect();
    let zeros = |n: usize| upload(backend, &vec![0f32; n]);
    let mut state: Vec<Vec<_>> = sizes.iter().map(|&n| (0..states).map(|_| zeros(n)).collect()).collect();
    let dtypes = halves.iter().cycle();
    let mut halves: Vec<_> = sizes
        .iter()
        .zip(dtypes)
        .map(|(&n, dtype)| dtype.map(|dtype| backend.alloc(dtype, n).unwrap()))
        .collect();
    for step in 0..3u16 {
        let scalars = [0.05 / f32::from(step + 1), f32::from(step + 1), 0.7, 0.5];
        let scalars = upload(backend, &scalars);
        let salt = 1000 * (u64::from(step) + 1);
        let grads: Vec<_> = (salt..)
            .zip(sizes)
            .map(|(i, &n)| buffer::<B, T>(backend, n, i))
            .collect();
        let slots = params.iter_mut().zip(&grads).zip(&mut state).zip(&mut halves);
        let mut slots: Vec<_> = slots
            .map(|(((param, grad), state), half)| OptimSlot {
                param,
                half: half.as_mut(),
                grad,
                state: state.iter_mut().collect(),
            })
            .collect();
        rule.step(backend, &scalars, &mut slots);
    }
    let raw = |buffer: &B::Buffer| {
        let mut bytes = vec![0; buffer.len() * buffer.dtype().size()];
        backend.download_bytes(buffer, &mut bytes).unwrap();
        bytes
    };
    let mut copies = Vec::new();
    for (half, param) in halves.iter().zip(&params) {
        let Some(half) = half else { continue };
        let mut cast = backend.alloc(half.dtype(), half.len()).unwrap();
        backend.cast(param, &mut cast).unwrap();
        assert!(raw(half) == raw(&cast), "{rule:?}: a copy of {} elements", half.len());
        copies.push(raw(half));
    }
    let params = params.iter().map(|p| bits(&read::<B, T>(backend, p)).to_vec());
    let state = state
        .iter()
        .flatten()
        .map(|s| bits(&read::<B, f32>(backend, s)).to_vec());
    params.chain(state).chain(copies).collect()
}

fn same_bits<T: Float>(cuda: &Cuda, rule: &Rule, sizes: &[usize]) {
    let (got, want) = (
        train::<_, T>(cuda, rule, sizes),
        train::<_, T>(&Cpu::poisoned(), rule, sizes),
    );
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        assert!(
            got == want,
            "{} {rule:?}: buffer {i} of {} parameters differs",
            T::DTYPE,
            sizes.len()
        );
    }
}

/// `count` sizes, small ones around a vector and, every so often, one around a chunk.
fn list(count: usize) -> Vec<usize> {
    let small = [0, 1, 3, 4, 5, 7, 8, 9, 31, 33, 127, 0, 64];
    let large = [4096, 1000, 4095, 8193, 4097];
    let of = |i: usize| match i % 40 {
        29 => large[i / 40 % large.len()],
        k => small[k % small.len()],
    };
    (0..count).map(of).collect()
}

#[test]
fn one_tensor_of_any_size() {
    let cuda = cuda();
    for rule in rules() {
        for n in [0, 3, 4, 4095, 4096, 4099].into_iter().chain(EDGES) {
            same_bits::<f32>(&cuda, &rule, &[n]);
        }
    }
}

#[test]
fn f32_lists() {
    let cuda = cuda();
    for rule in rules() {
        for count in [2, 31, 200] {
            same_bits::<f32>(&cuda, &rule, &list(count));
        }
        same_bits::<f32>(&cuda, &rule, &EDGES);
    }
}

/// Copies in half precision have the bits of a cast, whichever parameters have one.
#[test]
fn copies_in_half_precision() {
    let cuda = cuda();
    let some = [Some(DType::BF16), None, Some(DType::F16), Some(DType::BF16)];
    for rule in rules() {
        for sizes in [list(150), EDGES.to_vec(), vec![4096, 4099, 3, 0]] {
            for halves in [&some[..], &some[..1], &some[2..3]] {
                let got = train_with::<_, f32>(&cuda, &rule, &sizes, halves);
                assert!(
                    got == train_with::<_, f32>(&Cpu::poisoned(), &rule, &sizes, halves),
                    "{rule:?}"
                );
                let without = train::<_, f32>(&cuda, &rule, &sizes);
                assert!(got[..without.len()] == without, "{rule:?}");
            }
        }
    }
}

/// An update that the device leaves out leaves the copy as well; a copy of a dtype that is no half is refused.
#[test]
fn a_copy_is_left_with_its_parameter() {
    fn on<B: Backend>(backend: &B) {
        let Rule::Adam(p) = rules()[3] else { unreachable!() };
        let left = upload(backend, &[0.1f32, 0.5, 0.5, f32::NAN]);
        let (mut param, grad) = (upload(backend, &[1f32; 7]), upload(backend, &[1f32; 7]));
        let (mut m, mut v) = (upload(backend, &[0f32; 7]), upload(backend, &[0f32; 7]));
        let mut half = upload(backend, &[bf16::from_f32(3.0); 7]);
        let mut wrong = upload(backend, &[0f32; 7]);
        for (copy, taken) in [(&mut half, true), (&mut wrong, false)] {
            let mut slots = [OptimSlot {
                param: &mut param,
                half: Some(copy),
                grad: &grad,
                state: vec![&mut m, &mut v],
            }];
            assert_eq!(backend.adam(&p, &left, &mut slots).is_ok(), taken);
        }
        assert_eq!(read::<B, bf16>(backend, &half), [bf16::from_f32(3.0); 7]);
    }
    on(&cuda());
    on(&Cpu::poisoned());
}

#[test]
fn bf16_lists() {
    let cuda = cuda();
    for rule in rules() {
        for count in [2, 31] {
            same_bits::<bf16>(&cuda, &rule, &list(count));
        }
        same_bits::<bf16>(&cuda, &rule, &EDGES);
    }
}

#[test]
fn f16_lists() {
    let cuda = cuda();
    for rule in rules() {
        for count in [2, 31] {
            same_bits::<f16>(&cuda, &rule, &list(count));
        }
        same_bits::<f16>(&cuda, &rule, &EDGES);
    }
}

/// As many tensors as a launch's list holds are updated by one launch; one more takes a second.
#[test]
fn launches_are_few() {
    let cuda = cuda();
    for (rule, most) in [(rules()[0], 125), (rules()[1], 100), (rules()[3], 83), (rules()[5], 71)] {
        for (count, launches) in [(0, 0), (1, 1), (most, 1), (most + 1, 2), (2 * most + 1, 3)] {
            let before = cuda.launches();
            train::<_, f32>(&cuda, &rule, &vec![1; count]);
            assert_eq!(cuda.launches() - before, 3 * launches, "{rule:?} of {count} tensors");
        }
        if rule.states() == 2 {
            let before = cuda.launches();
            train_with::<_, f32>(&cuda, &rule, &[1; 71], &[None, Some(DType::F16)]);
            // The updates, and the casts that they are compared with.
            assert_eq!(cuda.launches() - before, 3 + 35, "{rule:?} with copies");
        }
        let before = cuda.launches();
        train::<_, f32>(&cuda, &rule, &[0, 0]);
        assert_eq!(cuda.launches(), before, "empty tensors are no work");
    }
}

/// A steady gradient has no variance, and rounding puts `s − a²` on either side of zero.
#[test]
fn centered_rmsprop_stays_finite_under_a_constant_gradient() {
    let cuda = cuda();
    let p = RmspropParams {
        alpha: 0.99,
        eps: 1e-2,
        weight_decay: 0.0,
        momentum: 0.0,
        centered: 1,
        pad: 0,
    };
    let grads = [0.1f32, -0.3, 0.7, 1.0, 13.7, 1e-3];
    let scalars = upload(&cuda, &[1e-3f32, 0.0, 0.0, 1.0]);
    let (mut param, grad) = (upload(&cuda, &[0f32; 6]), upload(&cuda, &grads));
    // The fixed point of the averages, one rounding to either side of it.
    let square = |up: bool| grads.map(|g| f32::from_bits(((g * g).to_bits() as i32 + if up { 1 } else { -1 }) as u32));
    for up in [false, true] {
        let (mut s, mut a) = (upload(&cuda, &square(up)), upload(&cuda, &grads));
        let mut slots = [OptimSlot {
            param: &mut param,
            half: None,
            grad: &grad,
            state: vec![&mut s, &mut a],
        }];
        for _ in 0..3 {
            cuda.rmsprop(&p, &scalars, &mut slots).unwrap();
        }
    }
    for (w, g) in cuda.download::<f32>(&param).unwrap().into_iter().zip(grads) {
        assert!(w.is_finite() && w * g < 0.0, "gradient {g}: parameter {w}");
    }
}

/// Gradients that are multiplied in place have the bits that the CPU gives them, and one number that is not finite, in any tensor
/// and at any place, is found.
fn unscaled<T: Float>(cuda: &Cuda, factor: f32, bad: Option<usize>) {
    fn run<B: Backend, T: Float>(backend: &B, factor: f32, bad: Option<usize>) -> (Vec<Vec<u8>>, i32) {
        let sizes = list(200);
        let total: usize = sizes.iter().sum();
        let mut left = bad.map(|at| at % total);
        let mut grads: Vec<_> = (0..).zip(&sizes).map(|(i, &n)| buffer::<B, T>(backend, n, i)).collect();
        for (grad, &n) in grads.iter_mut().zip(&sizes) {
            if let Some(at) = left.filter(|&at| at < n) {
                let mut values = read::<B, T>(backend, grad);
                // The bits of a NaN that is written are not said to be the same.
                values[at] = T::of(if factor == 1.0 { f64::NAN } else { f64::NEG_INFINITY });
                *grad = upload(backend, &values);
            }
            left = left.and_then(|at| at.checked_sub(n));
        }
        let (inverse, mut found) = (upload(backend, &[factor]), backend.upload(&[0i32]).unwrap());
        let mut list: Vec<_> = grads.iter_mut().collect();
        backend.unscale(&inverse, &mut list, &mut found).unwrap();
        let grads = grads.iter().map(|g| bits(&read::<B, T>(backend, g)).to_vec());
        (grads.collect(), backend.download::<i32>(&found).unwrap()[0])
    }
    let (got, found) = run::<_, T>(cuda, factor, bad);
    let (want, expected) = run::<_, T>(&Cpu::poisoned(), factor, bad);
    assert!(got == want, "{} by {factor}", T::DTYPE);
    assert_eq!(
        (found, expected),
        (i32::from(bad.is_some()), found),
        "{} by {factor}",
        T::DTYPE
    );
}

#[test]
fn gradients_are_unscaled_and_checked() {
    let cuda = cuda();
    for (i, factor) in [1.0, 0.3, 2f32.powi(-16)].into_iter().enumerate() {
        for bad in [None, Some(3), Some(7919 * (i + 1)), Some(usize::MAX)] {
            unscaled::<f32>(&cuda, factor, bad);
            unscaled::<bf16>(&cuda, factor, bad);
            unscaled::<f16>(&cuda, factor, bad);
        }
    }
}

/// A scale of NaN leaves everything as it is.
#[test]
fn a_scale_of_nan_changes_nothing() {
    let cuda = cuda();
    for rule in rules() {
        let sizes = [5, 4097];
        let mut params: Vec<_> = (0..).zip(sizes).map(|(i, n)| buffer::<_, f32>(&cuda, n, i)).collect();
        let grads: Vec<_> = (9..).zip(sizes).map(|(i, n)| buffer::<_, f32>(&cuda, n, i)).collect();
        let mut state: Vec<Vec<_>> = sizes
            .iter()
            .map(|&n| {
                (0..rule.states())
                    .map(|k| buffer::<_, f32>(&cuda, n, 20 + k as u64))
                    .collect()
            })
            .collect();
        let all = |params: &[_], state: &[Vec<_>]| {
            let all = params.iter().chain(state.iter().flatten());
            all.map(|b| bits(&read::<_, f32>(&cuda, b)).to_vec())
                .collect::<Vec<_>>()
        };
        let before = all(&params, &state);
        let mut slots: Vec<_> = params
            .iter_mut()
            .zip(&grads)
            .zip(&mut state)
            .map(|((param, grad), state)| OptimSlot {
                param,
                half: None,
                grad,
                state: state.iter_mut().collect(),
            })
            .collect();
        rule.step(&cuda, &upload(&cuda, &[0.1f32, 1.0, 0.5, f32::NAN]), &mut slots);
        assert!(all(&params, &state) == before, "{rule:?}");
    }
}
