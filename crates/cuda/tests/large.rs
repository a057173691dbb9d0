//! Tensors with more elements than 32 bits can count: an element stored at their end neither lands at their beginning nor is
//! read from there. The emulated driver takes memory only for pages that are touched, so this needs little of it.

use kiln_core::ops::{IndexOps, IndexParams, ViewParams};
use kiln_core::{DType, Runtime, Shape};
use kiln_cuda::{Cuda, CudaBuffer};

/// Odd, so that no kernel takes several elements as one and counts fewer.
const WIDTH: usize = 129;
const ROWS: usize = (1 << 32) / WIDTH + 4;
const _: () = assert!((ROWS - 3) * WIDTH > 1 << 32);
/// Bytes of an element of bf16.
const BYTES: usize = 2;

/// The bf16 of a small whole number.
fn bf16(n: usize) -> half::bf16 {
    half::bf16::from_f32(n as f32)
}

fn stored(cuda: &Cuda, values: impl Iterator<Item = usize>) -> CudaBuffer {
    cuda.upload(&values.map(bf16).collect::<Vec<_>>()).unwrap()
}

/// Reads three rows at each end by a view, by rows and element by element.
fn ends(cuda: &Cuda, table: &CudaBuffer) -> Vec<Vec<half::bf16>> {
    let mut read = Vec::new();
    for first in [0, ROWS - 3] {
        let mut by = [0; 3].map(|_| cuda.alloc(DType::BF16, 3 * WIDTH).unwrap());
        let view = ViewParams::new(&Shape::new(&[3 * WIDTH]).unwrap(), &[1], first * WIDTH);
        cuda.view_read(&view, table, &mut by[0]).unwrap();
        let rows: Vec<i32> = (0..3).map(|r| (first + r) as i32).collect();
        let each: Vec<i32> = rows.iter().flat_map(|&r| [r; WIDTH]).collect();
        let p = places(3);
        let [rows, each] = [rows, each].map(|index| cuda.upload(&index).unwrap());
        cuda.index_select(&p, table, &rows, &mut by[1]).unwrap();
        cuda.gather(&p, table, &each, &mut by[2]).unwrap();
        let [view, selected, gathered] = by.map(|y| cuda.download::<half::bf16>(&y).unwrap());
        assert_eq!((&selected, &gathered), (&view, &view), "rows from {first}");
        read.push(view);
    }
    read
}

fn places(count: usize) -> IndexParams {
    IndexParams {
        outer: 1,
        size: ROWS as u64,
        inner: WIDTH as u64,
        count: count as u64,
    }
}

#[test]
fn elements_past_32_bits_are_themselves() {
    if std::env::var_os("KILN_EMULATOR_MEMORY").is_none() {
        // SAFETY: the only test of this process, and its first use of the environment.
        unsafe { std::env::set_var("KILN_EMULATOR_MEMORY", (16u64 << 30).to_string()) };
    }
    kiln_device::emulator::use_beside().unwrap();
    let cuda = Cuda::new(0).unwrap();
    if cuda.context().free_memory().unwrap() < ROWS * WIDTH * BYTES + (1 << 20) {
        return eprintln!("skipped: the device has no {} GiB free", (ROWS * WIDTH * BYTES) >> 30);
    }
    let mut table = cuda.alloc(DType::BF16, ROWS * WIDTH).unwrap();
    let (low, high) = (|i: usize| i % 11, |i: usize| 20 + i % 13);
    for (first, value) in [(0, &low as &dyn Fn(usize) -> usize), (ROWS - 3, &high)] {
        let view = ViewParams::new(&Shape::new(&[3 * WIDTH]).unwrap(), &[1], first * WIDTH);
        let rows = stored(&cuda, (0..3 * WIDTH).map(value));
        cuda.view_write(&view, &rows, &mut table).unwrap();
    }
    let exactly = |value: &dyn Fn(usize) -> usize| (0..3 * WIDTH).map(|i| bf16(value(i))).collect::<Vec<_>>();
    assert_eq!(ends(&cuda, &table), [exactly(&low), exactly(&high)]);

    // Adds 1 to the last row twice by rows and once by elements, and to the row before it once by each.
    let ones = stored(&cuda, [1; 3 * WIDTH].into_iter());
    let rows = [ROWS - 1, ROWS - 2, ROWS - 1].map(|r| r as i32);
    cuda.index_add(&places(3), &ones, &cuda.upload(&rows).unwrap(), &mut table)
        .unwrap();
    let each: Vec<i32> = rows[..2].iter().flat_map(|&r| [r; WIDTH]).collect();
    let ones = stored(&cuda, [1; 2 * WIDTH].into_iter());
    cuda.scatter_add(&places(2), &ones, &cuda.upload(&each).unwrap(), &mut table)
        .unwrap();
    let added = |i: usize| high(i) + [0, 2, 3][i / WIDTH];
    assert_eq!(ends(&cuda, &table), [exactly(&low), exactly(&added)]);
}
