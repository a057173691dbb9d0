//! Ops that read a part of a tensor: their gradients are added to one gradient of the whole.

use kiln_core::Runtime;
use kiln_cpu::Cpu;
use kiln_nn::{DType, Indices, Result, Tensor, grad};

type T = Tensor<Cpu>;

/// Ways to read parts of a tensor `[2, 6, 3]`, and the number of parts.
const WAYS: &[(&str, usize)] = &[
    ("unbind", 6),
    ("split", 4),
    ("split_sizes", 3),
    ("chunk", 3),
    ("narrow", 7),
    ("slice", 5),
    ("flip", 2),
    ("index_select", 4),
    ("gather", 2),
    ("mixed", 6),
];

fn indices(cpu: &Cpu, values: &[i32], shape: &[usize]) -> Result<Indices<Cpu>> {
    Indices::from_slice(cpu, values, shape)
}

fn parts(way: &str, x: &T) -> Result<Vec<T>> {
    let cpu = x.backend();
    let gathered = |at: i32| {
        let index: Vec<i32> = (0..12).map(|i| (i * i + at) % 6).collect();
        x.gather(1, &indices(cpu, &index, &[2, 2, 3])?)
    };
    match way {
        "unbind" => x.unbind(1),
        "split" => x.split(2, 1).and_then(|mut p| {
            p.extend(x.split(9, 2)?);
            Ok(p)
        }),
        "split_sizes" => x.split_sizes(&[1, 0, 2], 2),
        "chunk" => x.chunk(3, 1),
        // Parts that are disjoint, that overlap, that lie one inside another, that are empty, and along another axis.
        "narrow" => [
            (1, 0, 2),
            (1, 4, 2),
            (1, 1, 3),
            (1, 2, 1),
            (1, 4, 0),
            (1, 4, 1),
            (2, 1, 1),
        ]
        .iter()
        .map(|&(axis, start, length)| x.narrow(axis, start, length))
        .collect(),
        "slice" => [(0, 2), (1, 2), (5, -3), (3, 1), (4, -1)]
            .iter()
            .map(|&(start, step)| x.slice(1, Some(start), None, step))
            .collect(),
        "flip" => Ok(vec![x.flip(&[0, 2])?, x.flip(&[1])?]),
        "index_select" => [&[0][..], &[3, 3, 1], &[], &[5, 0]]
            .iter()
            .map(|at| x.index_select(1, &indices(cpu, at, &[at.len()])?))
            .collect(),
        "gather" => [0, 1].iter().map(|&at| gathered(at)).collect(),
        "mixed" => Ok(vec![
            x.narrow(1, 0, 3)?,
            x.clone(),
            gathered(2)?,
            x.narrow(1, 3, 3)?,
            x.mul_scalar(0.5)?,
            x.narrow(0, 1, 1)?,
        ]),
        other => unreachable!("{other}"),
    }
}

/// The index in the whole tensor of each element of a part.
fn origin(cpu: &Cpu, way: &str, part: usize) -> Result<Vec<f64>> {
    let numbers: Vec<f64> = (0..36).map(f64::from).collect();
    parts(way, &T::from_slice(cpu, &numbers, &[2, 6, 3])?)?[part].to_f64()
}

fn input(cpu: &Cpu, dtype: DType) -> Result<T> {
    let values: Vec<f64> = (0..36).map(|i| f64::from(i * 7 % 11) / 4.0 - 1.0).collect();
    Ok(T::from_f64(cpu, &values, &[2, 6, 3], dtype)?.requires_grad())
}

/// `Σ weight · part³` over the uses of parts; the weights are 1, 2, ….
fn cubes(x: &T, way: &str, uses: &[usize]) -> Result<T> {
    let parts = parts(way, x)?;
    let mut sum: Option<T> = None;
    for (weight, &i) in (1..).zip(uses) {
        let part = &parts[i];
        let term = part
            .mul(part)?
            .mul(part)?
            .sum(&[], false)?
            .mul_scalar(f64::from(weight))?;
        sum = Some(match sum {
            Some(sum) => sum.add(&term)?,
            None => term,
        });
    }
    Ok(sum.expect("a use"))
}

/// The sum of the weights of all uses of each element of the whole. Part 4 of `mixed` is half of every element: its weight
/// counts times 0.5^power.
fn counts(cpu: &Cpu, way: &str, uses: &[usize], power: i32) -> Result<Vec<f64>> {
    let mut counts = vec![0.0; 36];
    for (weight, &i) in (1..).zip(uses) {
        let (factor, origin) = match (way, i) {
            ("mixed", 4) => (0.5f64.powi(power), (0..36).map(f64::from).collect()),
            _ => (1.0, origin(cpu, way, i)?),
        };
        origin
            .iter()
            .for_each(|&o| counts[o as usize] += factor * f64::from(weight));
    }
    Ok(counts)
}

/// Every part once; one part alone; some parts twice and some not at all.
fn patterns(n: usize) -> Vec<Vec<usize>> {
    let some = (0..n).filter(|i| i % 3 != 1).chain([0, n - 1, 0]).collect();
    vec![(0..n).collect(), vec![n - 1], some]
}

/// `Σ w·x³` over uses of `x` has the first derivative `3x²·Σw`, the second one `6x·Σw`, and a third.
#[test]
fn gradients_of_all_orders() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = input(&cpu, DType::F64)?;
    let values = x.to_f64()?;
    for (way, uses) in WAYS
        .iter()
        .flat_map(|(way, n)| patterns(*n).into_iter().map(move |u| (*way, u)))
    {
        let weights = counts(&cpu, way, &uses, 3)?;
        let expected = |f: fn(f64) -> f64| values.iter().zip(&weights).map(|(&x, w)| f(x) * w).collect::<Vec<_>>();
        let y = cubes(&x, way, &uses)?;
        let close = |got: &T, want: Vec<f64>, order: &str| {
            for (i, (got, want)) in got.to_f64().unwrap().into_iter().zip(want).enumerate() {
                assert!(
                    (got - want).abs() <= 1e-9,
                    "{way} {uses:?} {order} at {i}: {got} for {want}"
                );
            }
        };
        let first = grad(&y, &[&x], None, true)?.remove(0).expect("first");
        close(&first, expected(|x| 3.0 * x * x), "first");
        let second = grad(&first.sum(&[], false)?, &[&x], None, true)?
            .remove(0)
            .expect("second");
        close(&second, expected(|x| 6.0 * x), "second");
        let third = second.sum(&[], false)?.backward_retain()?;
        close(third.get(&x).expect("third"), expected(|_| 6.0), "third");
        let once = y.backward()?;
        close(
            once.get(&x).expect("a gradient"),
            expected(|x| 3.0 * x * x),
            "without a graph",
        );
    }
    Ok(())
}

/// In half precision, gradients of entries that an index tensor names are added in f32 and rounded once.
#[test]
fn half_precision_is_rounded_as_others_are() -> Result<()> {
    let cpu = Cpu::poisoned();
    for dtype in [DType::BF16, DType::F16] {
        for (way, n) in WAYS {
            let x = input(&cpu, dtype)?;
            let uses: Vec<usize> = (0..*n).collect();
            let grads = cubes(&x, way, &uses)?.backward()?;
            let got = grads.get(&x).expect("a gradient");
            assert_eq!((got.dtype(), got.shape()), (dtype, x.shape()));
            let weights = counts(&cpu, way, &uses, 3)?;
            for ((got, x), w) in got.to_f64()?.into_iter().zip(x.to_f64()?).zip(weights) {
                let want = 3.0 * x * x * w;
                assert!(
                    (got - want).abs() <= 0.03 * want.abs(),
                    "{way} {dtype}: {got} for {want}"
                );
            }
        }
    }
    let table = T::zeros(&cpu, &[2, 1], DType::BF16)?.requires_grad();
    let one = indices(&cpu, &[1], &[1])?;
    let parts = (0..400)
        .map(|_| table.embedding(&one, None))
        .collect::<Result<Vec<_>>>()?;
    let y = T::concat(&parts.iter().collect::<Vec<_>>(), 0)?.sum(&[], false)?;
    assert_eq!(y.backward()?.get(&table).expect("a gradient").to_f64()?, [0.0, 400.0]);
    Ok(())
}

/// Each piece is a tensor with memory of its own: it outlives the others, whose memory is freed without it.
#[test]
fn a_piece_lives_alone() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = T::ones(&cpu, &[4, 1000], DType::F64)?.requires_grad();
    let whole = cpu.memory().live;
    let piece = x.mul_scalar(2.0)?.unbind(0)?.swap_remove(2);
    assert!(cpu.memory().live <= whole + whole / 2, "one piece, not four");
    let grads = piece.mul(&piece)?.sum(&[], false)?.backward()?;
    let got = grads.get(&x).expect("a gradient").to_f64()?;
    assert!((0..4000).all(|i| got[i] == if i / 1000 == 2 { 8.0 } else { 0.0 }));
    drop((piece, grads));
    assert_eq!(cpu.memory().live, whole);
    Ok(())
}

/// The gradients of pieces are freed as they are added: beside the gradient of the whole only one piece takes memory.
#[test]
fn pieces_do_not_pile_up() -> Result<()> {
    let cpu = Cpu::poisoned();
    let piece = 1000 * size_of::<f64>();
    let x = T::ones(&cpu, &[101, 1000], DType::F64)?.requires_grad();
    // The pieces overlap, so that together they are much larger than the whole.
    let mut sum: Option<T> = None;
    for i in 0..100 {
        let term = x.narrow(0, i, 2)?.sum(&[], false)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&term)?,
            None => term,
        });
    }
    let before = cpu.memory();
    let grads = sum.expect("a sum").backward()?;
    let most = cpu.memory().peak - before.live;
    assert!(most <= (101 + 20) * piece, "{} pieces", most / piece);
    let got = grads.get(&x).expect("a gradient").to_f64()?;
    let times = |row: usize| if row == 0 || row == 100 { 1.0 } else { 2.0 };
    assert!(got.iter().enumerate().all(|(i, &g)| g == times(i / 1000)));
    Ok(())
}

#[test]
fn bits_do_not_depend_on_threads() -> Result<()> {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| -> Result<Vec<u32>> {
            let cpu = Cpu::new();
            let numbers: Vec<f32> = (0..60_000u64).map(|i| ((i * 7919) % 1013) as f32 / 97.0).collect();
            let x = T::from_slice(&cpu, &numbers, &[30, 2000])?.requires_grad();
            let mut y = x.sum(&[0], false)?;
            for i in 0..28 {
                y = y.add(&x.narrow(0, i, 3)?.mul(&x.narrow(0, i, 3)?)?.sum(&[0], false)?)?;
                y = y.add(
                    &x.index_select(0, &indices(&cpu, &[i as i32, 3, 3], &[3])?)?
                        .sum(&[0], false)?,
                )?;
            }
            let grads = y.mul(&y)?.sum(&[], false)?.backward()?;
            let bits = grads.get(&x).expect("a gradient").to_vec::<f32>()?;
            Ok(bits.into_iter().map(f32::to_bits).collect())
        })
    };
    let one = run(1)?;
    assert!(one == run(2)? && one == run(5)?);
    Ok(())
}
