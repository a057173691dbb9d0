use super::*;
use kiln_core::ops::{Activation, Window};
use kiln_core::{Runtime, Shape};

/// The default choice, and every algorithm by its name.
fn algorithms() -> impl Iterator<Item = Cpu> {
    let named = |name: &&str| Cpu::builder().algorithm(name).unwrap().build();
    std::iter::once(Cpu::poisoned()).chain(plan::NAMES.iter().map(named))
}

/// Every algorithm is one that some case chooses, or that a device of its name takes.
#[test]
fn a_named_algorithm_is_taken_where_it_computes_the_case() {
    let shape = |dims: [usize; 4]| Shape::new(&dims).unwrap();
    let (window, pool) = (Window::new([3, 3]), Window::new([2, 2]).stride([2, 2]));
    let (p, _) = ConvPoolParams::new(
        "test",
        &shape([4, 20, 20, 3]),
        &shape([32, 3, 3, 3]),
        (&window, 1),
        (&pool, false),
    )
    .unwrap();
    for name in plan::NAMES.iter().filter(|name| **name != plan::ARGMAX) {
        let cpu = Cpu::builder().algorithm(name).unwrap().build();
        assert_eq!(cpu.conv_pool_algorithm(&p, DType::F32), Some(*name));
    }
    // Sums of more than one block of k do not stay in registers.
    let (deep, _) = ConvPoolParams::new(
        "test",
        &shape([4, 20, 20, 64]),
        &shape([32, 3, 3, 64]),
        (&window, 1),
        (&pool, false),
    )
    .unwrap();
    let cpu = Cpu::builder().algorithm(plan::REGISTERS).unwrap().build();
    assert_ne!(cpu.conv_pool_algorithm(&deep, DType::F32), Some(plan::REGISTERS));
    let usual = Cpu::new().conv_pool_algorithm(&p, DType::F32);
    for other in [plan::ARGMAX, "direct"] {
        let cpu = Cpu::builder().algorithm(other).unwrap().build();
        assert_eq!(cpu.conv_pool_algorithm(&p, DType::F32), usual);
    }
}

/// Compares several parts, the last of them smaller, with the whole batch at once, by every algorithm.
#[test]
fn parts_agree_with_the_whole() {
    let side_by_side = Window::new([2, 2]).stride([2, 2]);
    let overlapping = Window::new([3, 3]).stride([2, 2]).padding([1, 1]);
    let plain = |k: usize| Window::new([k, k]);
    for (batch, size, [channels, outputs], window, pool) in [
        (50, 28, [1, 32], plain(3), side_by_side),
        (100, 20, [3, 6], plain(5), side_by_side),
        (40, 24, [6, 16], plain(5), side_by_side),
        (
            110,
            23,
            [7, 5],
            plain(3).stride([2, 1]).padding([2, 1]).dilation([2, 1]),
            side_by_side,
        ),
        (60, 21, [1, 41], plain(5).padding([2, 2]), side_by_side),
        (
            150,
            26,
            [2, 16],
            plain(3).stride([2, 1]).padding([1, 0]).dilation([1, 2]),
            side_by_side,
        ),
        (50, 28, [1, 32], plain(3), overlapping),
        (300, 20, [1, 2], plain(5), side_by_side),
        (3, 40, [2, 20], plain(3), side_by_side),
    ] {
        let shape = |dims: [usize; 4]| Shape::new(&dims).unwrap();
        let kernel = window.kernel[2];
        let x = shape([batch, size, size, channels]);
        let w = shape([outputs, kernel, kernel, channels]);
        let (mut p, y) = ConvPoolParams::new("test", &x, &w, (&window, 1), (&pool, false)).unwrap();
        p.conv.activation = Activation::Relu as u32;
        let parts = BatchSplit::new(&p);
        assert!(parts.is_profitable(&Cpu::new()));
        let cpu = Cpu::poisoned();
        // Values of few bits: sums are exact in any order.
        let upload = |n: usize, salt: usize| {
            let values: Vec<f32> = (0..n)
                .map(|i| ((i * 7919 + salt) % 997 % 16) as f32 / 8.0 - 1.0)
                .collect();
            cpu.upload(&values).unwrap()
        };
        let (x, w, bias) = (upload(x.size(), 1), upload(w.size(), 2), upload(outputs, 3));
        let g = upload(y.size(), 4);
        let run = |cpu: &Cpu, whole: bool| {
            let mut out = cpu.alloc(DType::F32, y.size()).unwrap();
            let mut index = cpu.alloc(DType::I32, y.size()).unwrap();
            let operands = (&x, &w, Some(&bias));
            if whole {
                separate::forward(cpu, &p, operands, (&mut out, &mut index)).unwrap();
            } else {
                cpu.conv_max_pool(&p, &x, &w, Some(&bias), &mut out, &mut index)
                    .unwrap();
            }
            let of = PooledGrad {
                g: &g,
                y: &out,
                index: &index,
            };
            let floats = |b: &CpuBuffer| b.as_slice::<f32>().to_vec();
            let mut results = vec![floats(&out)];
            for wanted in [
                [true; 3],
                [false, true, true],
                [true, false, false],
                [false, false, true],
            ] {
                let mut grads = [x.len(), w.len(), outputs].map(|n| cpu.alloc(DType::F32, n).unwrap());
                let [dx, dw, db] = grads.each_mut();
                let to = ConvPoolGrads {
                    dx: wanted[0].then_some(dx),
                    dw: wanted[1].then_some(dw),
                    db: wanted[2].then_some(db),
                };
                if whole {
                    separate::gradients(cpu, &p, &of, (&x, &w), to).unwrap();
                } else {
                    cpu.conv_max_pool_grad(&p, &of, &x, &w, to).unwrap();
                }
                let wanted = grads.iter().zip(wanted).filter(|(_, wanted)| *wanted);
                results.extend(wanted.map(|(grad, _)| floats(grad)));
            }
            (index.as_slice::<i32>().to_vec(), results)
        };
        assert_eq!(batch > parts.images, batch > 3, "{} images a part", parts.images);
        let want = run(&cpu, true);
        for cpu in algorithms() {
            let name = cpu.preferred_algorithm();
            assert!(
                run(&cpu, false) == want,
                "{batch} images of {size}, {channels} to {outputs}, {window:?}: {name:?}"
            );
        }
    }
}

/// NaN is larger than all numbers, and the first of equals is chosen, in all three algorithms: by planes, in registers and
/// as two ops.
#[test]
fn the_first_of_the_largest_is_chosen() {
    let shape = |dims: [usize; 4]| Shape::new(&dims).unwrap();
    let (window, pool) = (Window::new([5, 5]), Window::new([2, 2]).stride([2, 2]));
    for [channels, outputs] in [[3, 6], [1, 3], [5, 2], [2, 16]] {
        for f in [Activation::None, Activation::Relu] {
            let (x, w) = (shape([3, 14, 47, channels]), shape([outputs, 5, 5, channels]));
            let (mut p, y) = ConvPoolParams::new("test", &x, &w, (&window, 1), (&pool, false)).unwrap();
            p.conv.activation = f as u32;
            let mut values: Vec<f32> = (0..x.size()).map(|i| (i * 7919 % 997 % 3) as f32 - 1.0).collect();
            values[5 * 47] = f32::NAN;
            let weights: Vec<f32> = (0..w.size()).map(|i| (i * 31 % 11 % 3) as f32 - 1.0).collect();
            let cpu = Cpu::poisoned();
            let (x, w) = (cpu.upload(&values).unwrap(), cpu.upload(&weights).unwrap());
            let run = |fused: bool| {
                let mut out = cpu.alloc(DType::F32, y.size()).unwrap();
                let mut index = cpu.alloc(DType::I32, y.size()).unwrap();
                match fused {
                    true => cpu.conv_max_pool(&p, &x, &w, None, &mut out, &mut index),
                    false => separate::forward(&cpu, &p, (&x, &w, None), (&mut out, &mut index)),
                }
                .unwrap();
                let some = |y: &f32| (!y.is_nan()).then_some(*y);
                let out: Vec<_> = out.as_slice::<f32>().iter().map(some).collect();
                (out, index.as_slice::<i32>().to_vec())
            };
            let (got, want) = (run(true), run(false));
            assert!(got == want, "{channels} to {outputs}, {f:?}");
            assert!(want.0.contains(&None));
        }
    }
}

/// Images without elements still have padding, whose results are the bias.
#[test]
fn padding_alone_is_pooled() {
    let window = Window::new([1, 1]).padding([1, 1]);
    let shape = |dims: &[usize]| Shape::new(dims).unwrap();
    let pool = Window::new([2, 2]).stride([2, 2]);
    let (x, w) = (shape(&[2, 0, 2, 1]), shape(&[16, 1, 1, 1]));
    let (p, y) = ConvPoolParams::new("test", &x, &w, (&window, 1), (&pool, false)).unwrap();
    let cpu = Cpu::poisoned();
    let [x, w, bias] = [0, 16, 16].map(|n| cpu.upload(&vec![3f32; n]).unwrap());
    let mut out = cpu.alloc(DType::F32, y.size()).unwrap();
    let mut index = cpu.alloc(DType::I32, y.size()).unwrap();
    cpu.conv_max_pool(&p, &x, &w, Some(&bias), &mut out, &mut index)
        .unwrap();
    assert_eq!(out.as_slice::<f32>(), vec![3.0; 2 * 2 * 16]);
}

#[test]
fn a_derivative_that_does_not_follow_from_the_result_is_refused() {
    let shape = |dims: [usize; 4]| Shape::new(&dims).unwrap();
    let window = Window::new([2, 2]);
    let (x, w) = (shape([1, 4, 4, 1]), shape([1, 2, 2, 1]));
    let (mut p, y) = ConvPoolParams::new("test", &x, &w, (&window, 1), (&window, false)).unwrap();
    p.conv.activation = Activation::Gelu as u32;
    let cpu = Cpu::new();
    let [g, x, w] = [y.size(), x.size(), w.size()].map(|n| cpu.upload(&vec![0f32; n]).unwrap());
    let index = cpu.upload(&vec![0i32; y.size()]).unwrap();
    let of = PooledGrad {
        g: &g,
        y: &g,
        index: &index,
    };
    let nothing = ConvPoolGrads {
        dx: None,
        dw: None,
        db: None,
    };
    let e = cpu.conv_max_pool_grad(&p, &of, &x, &w, nothing).unwrap_err();
    assert!(e.to_string().contains("activation"), "{e}");
}

/// A NaN result passes its gradient on, as ReLU's own op does; results of zero and less do not.
#[test]
fn relu_gives_what_two_ops_give() {
    let shape = |dims: [usize; 4]| Shape::new(&dims).unwrap();
    let window = Window::new([2, 2]);
    let (x, w) = (shape([1, 4, 4, 1]), shape([1, 2, 2, 1]));
    let (mut p, _) = ConvPoolParams::new("test", &x, &w, (&window, 1), (&window, false)).unwrap();
    p.conv.activation = Activation::Relu as u32;
    let cpu = Cpu::poisoned();
    let (g, y) = (
        cpu.upload(&[1f32, 2.0, 3.0, 4.0]).unwrap(),
        cpu.upload(&[f32::NAN, 0.0, 5.0, -1.0]).unwrap(),
    );
    let index = cpu.upload(&[0i32, 1, 3, 4]).unwrap();
    let of = PooledGrad {
        g: &g,
        y: &y,
        index: &index,
    };
    // The convolution selects the first element of each window.
    let x = cpu.upload(&[1f32; 16]).unwrap();
    let w = cpu.upload(&[1f32, 0.0, 0.0, 0.0]).unwrap();
    let run = |fused: bool| {
        let (mut dx, mut db) = (cpu.alloc(DType::F32, 16).unwrap(), cpu.alloc(DType::F32, 1).unwrap());
        let to = ConvPoolGrads {
            dx: Some(&mut dx),
            dw: None,
            db: Some(&mut db),
        };
        match fused {
            true => cpu.conv_max_pool_grad(&p, &of, &x, &w, to),
            false => separate::gradients(&cpu, &p, &of, (&x, &w), to),
        }
        .unwrap();
        (dx.as_slice::<f32>().to_vec(), db.as_slice::<f32>()[0])
    };
    let mut dx = vec![0.0; 16];
    (dx[0], dx[4]) = (1.0, 3.0);
    let want = (dx, 4.0);
    assert_eq!((run(true), run(false)), (want.clone(), want));
}
