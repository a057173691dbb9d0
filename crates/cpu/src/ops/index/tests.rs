use crate::{Cpu, CpuBuffer};
use half::bf16;
use kiln_core::ops::{IndexOps, IndexParams, ViewParams};
use kiln_core::{DType, Element, Error, Runtime, Shape};

fn shape(d: &[usize]) -> Shape {
    Shape::new(d).unwrap()
}

fn up<T: Element>(cpu: &Cpu, values: &[T]) -> CpuBuffer {
    cpu.upload(values).unwrap()
}

/// The offsets a view visits, in order, by plain arithmetic.
fn offsets(dims: &[usize], strides: &[i64], offset: usize) -> Vec<usize> {
    let s = shape(dims);
    let of = s.strides();
    (0..s.size())
        .map(|i| {
            let at = (0..dims.len())
                .map(|d| (i / of[d] % dims[d]) as i64 * strides[d])
                .sum::<i64>();
            (offset as i64 + at) as usize
        })
        .collect()
}

type View = (usize, &'static [usize], &'static [i64], usize);

/// The size of the viewed tensor, then the view. No view overlaps itself.
const VIEWS: &[View] = &[
    (1, &[], &[], 0),
    (5, &[], &[], 3),
    (10, &[0], &[1], 0),
    (10, &[4], &[2], 1),
    (10, &[5], &[-2], 9),
    (100_000, &[99_999], &[1], 1),
    (35, &[5, 7], &[1, 5], 0),
    (6, &[3, 2], &[1, 3], 0),
    (300 * 257, &[257, 300], &[1, 257], 0),
    (3 * 65 * 33, &[3, 33, 65], &[65 * 33, 1, 33], 0),
    (4 * 70 * 130, &[4, 130, 70], &[70 * 130, 1, 130], 0),
    (60, &[5, 4, 3], &[1, 5, 20], 0),
    (60, &[3, 2, 5], &[20, -10, 2], 10),
    (2000 * 50, &[2000, 30], &[50, 1], 10),
    (2000 * 50, &[2000, 25], &[50, 2], 1),
    (2 * 3 * 4 * 5, &[5, 3, 2, 4], &[1, 20, 60, 5], 0),
];

#[test]
fn views_read_and_write_the_right_elements() {
    let cpu = Cpu::poisoned();
    for &(size, dims, strides, offset) in VIEWS {
        let p = ViewParams::new(&shape(dims), strides, offset);
        let want = offsets(dims, strides, offset);
        let x: Vec<i32> = (0..size as i32).collect();
        let mut y = cpu.alloc(DType::I32, want.len()).unwrap();
        cpu.view_read(&p, &up(&cpu, &x), &mut y).unwrap();
        assert!(
            y.as_slice::<i32>().iter().map(|&v| v as usize).eq(want.iter().copied()),
            "read {dims:?} {strides:?}"
        );
        let mut whole = up(&cpu, &vec![-1i32; size]);
        let x: Vec<i32> = (0..want.len() as i32).collect();
        cpu.view_write(&p, &up(&cpu, &x), &mut whole).unwrap();
        let mut expected = vec![-1i32; size];
        want.iter().zip(&x).for_each(|(&at, &v)| expected[at] = v);
        assert_eq!(whole.as_slice::<i32>(), expected, "write {dims:?} {strides:?}");
    }
}

#[test]
fn views_copy_every_dtype() {
    let cpu = Cpu::poisoned();
    let p = ViewParams::new(&shape(&[3, 2]), &[1, 3], 0);
    fn check<T: Element>(cpu: &Cpu, p: &ViewParams, v: [T; 6]) {
        let mut y = cpu.alloc(T::DTYPE, 6).unwrap();
        cpu.view_read(p, &up(cpu, &v), &mut y).unwrap();
        assert_eq!(y.as_slice::<T>(), [v[0], v[3], v[1], v[4], v[2], v[5]]);
    }
    let v = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    check(&cpu, &p, v);
    check(&cpu, &p, v.map(|v| v as f32));
    check(&cpu, &p, v.map(bf16::from_f64));
    check(&cpu, &p, v.map(|v| v as u8));
}

#[test]
fn expansion_repeats() {
    let cpu = Cpu::poisoned();
    for (dims, strides) in [(&[3, 4][..], &[0, 1][..]), (&[4, 3], &[1, 0]), (&[2, 4, 2], &[0, 1, 0])] {
        let p = ViewParams::new(&shape(dims), strides, 0);
        let mut y = cpu.alloc(DType::I32, shape(dims).size()).unwrap();
        cpu.view_read(&p, &up(&cpu, &[0, 1, 2, 3]), &mut y).unwrap();
        let want = offsets(dims, strides, 0);
        assert!(
            y.as_slice::<i32>().iter().map(|&v| v as usize).eq(want),
            "{dims:?} {strides:?}"
        );
    }
}

fn indices(n: usize, size: usize) -> Vec<i32> {
    (0..n)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as i32 & i32::MAX)
        .map(|i| i % size as i32)
        .collect()
}

/// Cases of outer, size, inner, count; the last ones are large enough for threads.
const CASES: &[(usize, usize, usize, usize)] = &[
    (1, 1, 1, 1),
    (2, 3, 4, 5),
    (3, 7, 1, 2),
    (2, 5, 3, 0),
    (1, 50, 33, 4000),
    (700, 9, 11, 13),
    (40, 31, 1, 2000),
];

#[test]
fn gather_and_scatter_follow_their_formulas() {
    let cpu = Cpu::poisoned();
    for &(outer, size, inner, count) in CASES {
        let p = IndexParams {
            outer: outer as u64,
            size: size as u64,
            inner: inner as u64,
            count: count as u64,
        };
        let x: Vec<f32> = (0..outer * size * inner).map(|v| v as f32).collect();
        let g: Vec<f32> = (0..outer * count * inner).map(|v| (v % 101) as f32).collect();
        let each = indices(outer * count * inner, size);
        let row = indices(count, size);
        let at = |o, j, i| (o * count + j) * inner + i;
        let mut y = cpu.alloc(DType::F32, g.len()).unwrap();
        let mut sum = up(&cpu, &x);
        let mut want = (vec![0f32; g.len()], x.clone());
        cpu.gather(&p, &up(&cpu, &x), &up(&cpu, &each), &mut y).unwrap();
        cpu.scatter_add(&p, &up(&cpu, &g), &up(&cpu, &each), &mut sum).unwrap();
        for (o, j, i) in (0..outer * count * inner).map(|v| (v / inner / count, v / inner % count, v % inner)) {
            let from = (o * size + each[at(o, j, i)] as usize) * inner + i;
            want.0[at(o, j, i)] = x[from];
            want.1[from] += g[at(o, j, i)];
        }
        assert_eq!((y.as_slice(), sum.as_slice()), (&want.0[..], &want.1[..]));
        let mut sum = up(&cpu, &x);
        let mut want = (vec![0f32; g.len()], x.clone());
        cpu.index_select(&p, &up(&cpu, &x), &up(&cpu, &row), &mut y).unwrap();
        cpu.index_add(&p, &up(&cpu, &g), &up(&cpu, &row), &mut sum).unwrap();
        for (o, j, i) in (0..outer * count * inner).map(|v| (v / inner / count, v / inner % count, v % inner)) {
            let from = (o * size + row[j] as usize) * inner + i;
            want.0[at(o, j, i)] = x[from];
            want.1[from] += g[at(o, j, i)];
        }
        assert_eq!((y.as_slice(), sum.as_slice()), (&want.0[..], &want.1[..]));
    }
}

#[test]
fn adding_rounds_halves_once() {
    let cpu = Cpu::poisoned();
    let p = IndexParams {
        outer: 1,
        size: 1,
        inner: 1,
        count: 256,
    };
    // 1 + 256·2⁻⁹ is 1.5; added one by one in bf16 every term would be lost.
    let terms = up(&cpu, &[bf16::from_f32(2f32.powi(-9)); 256]);
    let zeros = up(&cpu, &[0i32; 256]);
    for add in [Cpu::index_add, Cpu::scatter_add] {
        let mut y = up(&cpu, &[bf16::ONE]);
        add(&cpu, &p, &terms, &zeros, &mut y).unwrap();
        assert_eq!(y.as_slice::<bf16>(), [bf16::from_f32(1.5)]);
    }
}

#[test]
fn one_hot_marks_one_class() {
    let cpu = Cpu::poisoned();
    let p = IndexParams {
        outer: 3,
        size: 4,
        inner: 1,
        count: 1,
    };
    let mut y = cpu.alloc(DType::F32, 12).unwrap();
    cpu.one_hot(&p, &up(&cpu, &[3, 0, 2]), &mut y).unwrap();
    assert_eq!(y.as_slice::<f32>(), [0., 0., 0., 1., 1., 0., 0., 0., 0., 0., 1., 0.]);
}

/// The error names the position, and the destination is unchanged.
#[test]
fn indices_out_of_range_are_errors() {
    let cpu = Cpu::new();
    let p = IndexParams {
        outer: 1,
        size: 3,
        inner: 1,
        count: 4,
    };
    let rows = IndexParams {
        outer: 4,
        count: 1,
        ..p
    };
    for bad in [3, -1, i32::MAX, i32::MIN] {
        let index = up(&cpu, &[0, 2, bad, 1]);
        let three = up(&cpu, &[1f32; 3]);
        let four = up(&cpu, &[1f32; 4]);
        let mut to4 = up(&cpu, &[7f32; 4]);
        let mut to3 = up(&cpu, &[7f32; 3]);
        let mut hot = up(&cpu, &[7f32; 12]);
        for result in [
            cpu.gather(&p, &three, &index, &mut to4),
            cpu.index_select(&p, &three, &index, &mut to4),
            cpu.scatter_add(&p, &four, &index, &mut to3),
            cpu.index_add(&p, &four, &index, &mut to3),
            cpu.one_hot(&rows, &index, &mut hot),
        ] {
            let want = (i64::from(bad), 2, 3);
            assert!(
                matches!(result, Err(Error::IndexOutOfRange { index, position, size, .. }) if (index, position, size) == want),
                "{result:?}"
            );
        }
        for buffer in [to3, to4, hot] {
            assert!(buffer.as_slice::<f32>().iter().all(|&v| v == 7.0));
        }
    }
}

/// Sums of many floats at one index are the same for any number of threads.
#[test]
fn threads_do_not_change_the_sum() {
    let (size, inner, count) = (37, 64, 3000);
    let p = IndexParams {
        outer: 2,
        size,
        inner,
        count,
    };
    let n = 2 * (count * inner) as usize;
    let x: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin()).collect();
    let (row, each) = (indices(count as usize, size as usize), indices(n, size as usize));
    let sums = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let cpu = Cpu::poisoned();
            let mut y = [0; 2].map(|_| up(&cpu, &vec![0f32; 2 * (size * inner) as usize]));
            cpu.index_add(&p, &up(&cpu, &x), &up(&cpu, &row), &mut y[0]).unwrap();
            cpu.scatter_add(&p, &up(&cpu, &x), &up(&cpu, &each), &mut y[1]).unwrap();
            y.map(|y| y.as_slice::<f32>().to_vec())
        })
    };
    let one = sums(1);
    assert!(one.iter().flatten().any(|&v| v != 0.0));
    for threads in [2, 4, 7] {
        assert_eq!(sums(threads), one);
    }
}
