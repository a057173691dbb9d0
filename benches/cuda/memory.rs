//! Memory-bound ops: elementwise, reductions, softmax, losses and indexing. Bytes are those that must be read and
//! written once; their rate is to be compared with that of `copy`.

use crate::measure::{Bench, Cost, random};
use kiln_core::ops::{
    AxisParams, Binary, BroadcastParams, CrossEntropyParams, ElementwiseOps, IndexOps, IndexParams, LossOps, Reduce,
    ReduceOps, ReduceParams, SoftmaxOps, SoftmaxParams, Unary, UnaryParams, ViewParams,
};
use kiln_core::{DType, Result, Runtime, Shape};
use kiln_cuda::{Cuda, reduce, softmax};

const DTYPES: [DType; 2] = [DType::F32, DType::BF16];
/// Tokens, width and vocabulary of a small language model.
const TOKENS: usize = 8192;
const WIDTH: usize = 768;
const WORDS: usize = 50257;

pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<()> {
    for dtype in DTYPES {
        elementwise(bench, cuda, dtype)?;
        reductions(bench, cuda, dtype)?;
        rows(bench, cuda, dtype)?;
        losses(bench, cuda, dtype)?;
        indexing(bench, cuda, dtype)?;
    }
    Ok(())
}

/// The cost of moving `elements` of `dtype`.
fn moved(dtype: DType, elements: usize) -> Cost {
    Cost {
        bytes: (elements * dtype.size()) as u64,
        ..Cost::default()
    }
}

fn elementwise(bench: &Bench, cuda: &Cuda, dtype: DType) -> Result<()> {
    let n = TOKENS * 4 * WIDTH;
    let id = |what: &str| format!("{what}/{dtype}/{TOKENS}x{}", 4 * WIDTH);
    if !["relu", "gelu", "gelu_grad", "add_row", "accumulate", "to_f16"]
        .iter()
        .any(|what| bench.wants(&id(what), moved(dtype, 2 * n)))
    {
        return Ok(());
    }
    let (x, bias) = (random(cuda, 1, dtype, n)?, random(cuda, 2, dtype, 4 * WIDTH)?);
    let (mut y, mut dx) = (cuda.alloc(dtype, n)?, cuda.alloc(dtype, n)?);
    for (name, f) in [("relu", Unary::Relu), ("gelu", Unary::Gelu)] {
        let p = UnaryParams::new(f, n, 0.0, 0.0);
        bench.measure(cuda, &id(name), "auto", moved(dtype, 2 * n), || {
            cuda.unary(&p, &x, &mut y)
        })?;
    }
    let p = UnaryParams::new(Unary::Gelu, n, 0.0, 0.0);
    bench.measure(cuda, &id("gelu_grad"), "auto", moved(dtype, 3 * n), || {
        cuda.unary_grad(&p, &x, &y, &x, &mut dx)
    })?;
    let (rows, row) = (Shape::new(&[TOKENS, 4 * WIDTH])?, Shape::new(&[4 * WIDTH])?);
    let (p, _) = BroadcastParams::new("add", Binary::Add as u32, &rows, &row, None)?;
    bench.measure(cuda, &id("add_row"), "auto", moved(dtype, 2 * n), || {
        cuda.binary(&p, &x, &bias, &mut y)
    })?;
    bench.measure(cuda, &id("accumulate"), "auto", moved(dtype, 3 * n), || {
        cuda.accumulate(&x, &mut y)
    })?;
    let mut half = cuda.alloc(DType::F16, n)?;
    let bytes = (n * (dtype.size() + 2)) as u64;
    let cost = Cost {
        bytes,
        ..Cost::default()
    };
    bench.measure(cuda, &id("to_f16"), "auto", cost, || cuda.cast(&x, &mut half))
}

fn reductions(bench: &Bench, cuda: &Cuda, dtype: DType) -> Result<()> {
    let n = 1 << 24;
    let id = format!("sum/{dtype}/{n}");
    if bench.wants(&id, moved(dtype, n)) {
        let (x, mut y) = (random(cuda, 1, dtype, n)?, cuda.alloc(dtype, 1)?);
        for variant in reduce::Algorithm::ALL {
            bench.measure(cuda, &id, variant.name(), moved(dtype, n), || {
                cuda.sum_with(variant, &x, &mut y)
            })?;
        }
    }
    for (rows, columns) in [(TOKENS, WIDTH), (TOKENS, 4 * WIDTH), (32 * 56 * 56, 64)] {
        for (name, axis) in [("sum_rows", 1), ("sum_columns", 0)] {
            let id = format!("{name}/{dtype}/{rows}x{columns}");
            if !bench.wants(&id, moved(dtype, rows * columns)) {
                continue;
            }
            let shape = Shape::new(&[rows, columns])?;
            let (p, out) = ReduceParams::new("sum", Reduce::Sum, &shape, &[axis], false)?;
            let (x, mut y) = (random(cuda, 1, dtype, rows * columns)?, cuda.alloc(dtype, out.size())?);
            bench.measure(cuda, &id, "auto", moved(dtype, rows * columns), || {
                cuda.reduce(&p, &x, &mut y)
            })?;
        }
    }
    let id = |what: &str| format!("{what}/{dtype}/256x{WORDS}");
    let n = 256 * WORDS;
    let p = AxisParams::new("axis", &Shape::new(&[256, WORDS])?, 1, 50, false)?;
    if ["argmax", "cumsum", "top_k"]
        .iter()
        .any(|what| bench.wants(&id(what), moved(dtype, n)))
    {
        let (x, mut y) = (random(cuda, 1, dtype, n)?, cuda.alloc(dtype, n)?);
        let (mut values, mut index) = (cuda.alloc(dtype, 256 * 50)?, cuda.alloc(DType::I32, 256 * 50)?);
        let mut best = cuda.alloc(DType::I32, 256)?;
        bench.measure(cuda, &id("argmax"), "auto", moved(dtype, n), || {
            cuda.arg_reduce(&p, &x, &mut best)
        })?;
        bench.measure(cuda, &id("cumsum"), "auto", moved(dtype, 2 * n), || {
            cuda.cumsum(&p, &x, &mut y)
        })?;
        bench.measure(cuda, &id("top_k"), "auto", moved(dtype, n), || {
            cuda.top_k(&p, &x, &mut values, &mut index)
        })?;
    }
    Ok(())
}

fn rows(bench: &Bench, cuda: &Cuda, dtype: DType) -> Result<()> {
    for (outer, n) in [(96 * 1024, 128), (12 * 1024, 1024), (TOKENS, 4096)] {
        let id = format!("softmax/{dtype}/{outer}x{n}");
        let slope = format!("softmax_grad/{dtype}/{outer}x{n}");
        let least = moved(dtype, 2 * outer * n);
        if ![&id, &slope].iter().any(|id| bench.wants(id, least)) {
            continue;
        }
        let p = SoftmaxParams::new("softmax", &Shape::new(&[outer, n])?, 1, false)?;
        let (x, mut y) = (random(cuda, 1, dtype, outer * n)?, cuda.alloc(dtype, outer * n)?);
        for variant in softmax::Algorithm::ALL
            .into_iter()
            .filter(|variant| variant.computes(&p))
        {
            bench.measure(cuda, &id, variant.name(), moved(dtype, 2 * outer * n), || {
                cuda.softmax_with(variant, &p, &x, &mut y)
            })?;
        }
        let mut dx = cuda.alloc(dtype, outer * n)?;
        bench.measure(cuda, &slope, "auto", moved(dtype, 3 * outer * n), || {
            cuda.softmax_grad(&p, &y, &x, &mut dx)
        })?;
    }
    Ok(())
}

fn losses(bench: &Bench, cuda: &Cuda, dtype: DType) -> Result<()> {
    for (rows, classes) in [(16384, 10), (8192, 1000), (4096, WORDS)] {
        let id = format!("cross_entropy/{dtype}/{rows}x{classes}");
        if !bench.wants(&id, moved(dtype, 3 * rows * classes)) {
            continue;
        }
        let (logits, row) = (Shape::new(&[rows, classes])?, Shape::new(&[rows])?);
        let p = CrossEntropyParams::new("cross_entropy", &logits, &row, 0.0, -100)?;
        let labels: Vec<i32> = (0..rows).map(|r| (r * 7919 % classes) as i32).collect();
        let (x, labels) = (random(cuda, 1, dtype, rows * classes)?, cuda.upload(&labels)?);
        let (mut loss, mut weight) = (cuda.alloc(DType::F32, rows)?, cuda.alloc(DType::F32, rows)?);
        let (g, mut dx) = (random(cuda, 2, DType::F32, rows)?, cuda.alloc(dtype, rows * classes)?);
        // The logits are read for the losses and for the gradient.
        bench.measure(cuda, &id, "auto", moved(dtype, 3 * rows * classes), || {
            cuda.cross_entropy(&p, &x, &labels, None, &mut loss, &mut weight)?;
            cuda.cross_entropy_grad(&p, &x, &labels, None, &g, None, &mut dx)
        })?;
    }
    Ok(())
}

fn indexing(bench: &Bench, cuda: &Cuda, dtype: DType) -> Result<()> {
    let id = |what: &str| format!("{what}/{dtype}/{TOKENS}x{WIDTH}of{WORDS}");
    if ["embedding", "embedding_grad"]
        .iter()
        .any(|what| bench.wants(&id(what), moved(dtype, 2 * TOKENS * WIDTH)))
    {
        let p = IndexParams::new("embedding", &Shape::new(&[WORDS, WIDTH])?, 0, TOKENS)?;
        // Word frequencies as in a text (Zipf): the r-th most common word is about 1/r as frequent as the first.
        let word = |i: usize| ((WORDS as f64).powf((i * 7919 % TOKENS) as f64 / TOKENS as f64) - 1.0) as i32;
        let index = cuda.upload(&(0..TOKENS).map(word).collect::<Vec<_>>())?;
        let mut table = random(cuda, 1, dtype, WORDS * WIDTH)?;
        let mut y = cuda.alloc(dtype, TOKENS * WIDTH)?;
        bench.measure(cuda, &id("embedding"), "auto", moved(dtype, 2 * TOKENS * WIDTH), || {
            cuda.index_select(&p, &table, &index, &mut y)
        })?;
        bench.measure(
            cuda,
            &id("embedding_grad"),
            "auto",
            moved(dtype, 3 * TOKENS * WIDTH),
            || cuda.index_add(&p, &y, &index, &mut table),
        )?;
    }
    let (h, w) = (4096, 4096);
    let id = format!("transpose/{dtype}/{h}x{w}");
    if bench.wants(&id, moved(dtype, 2 * h * w)) {
        let p = ViewParams::new(&Shape::new(&[h, w])?, &[1, h as i64], 0);
        let (x, mut y) = (random(cuda, 1, dtype, h * w)?, cuda.alloc(dtype, h * w)?);
        bench.measure(cuda, &id, "auto", moved(dtype, 2 * h * w), || {
            cuda.view_read(&p, &x, &mut y)
        })?;
    }
    Ok(())
}
