//! The cost of gradients of pieces of a tensor, in the bytes that ops move.

use kiln_core::{DType, Result};
use kiln_cpu::Cpu;
use kiln_nn::{Indices, Tensor, grad};
use kiln_profile::{Mark, Profiled};

type T = Tensor<Profiled<Cpu>>;

/// The pieces of a tensor `[2, n, 3]` along its second axis, by one op for all or by one for each.
fn pieces(way: &str, x: &T) -> Result<Vec<T>> {
    let n = x.shape()[1];
    let one = |i: usize| Indices::from_slice(x.backend(), &[i as i32], &[1]);
    let each = |f: &dyn Fn(usize) -> Result<T>| (0..n).map(f).collect();
    match way {
        "unbind" => x.unbind(1),
        "split" => x.split(1, 1),
        "split_sizes" => x.split_sizes(&vec![1; n], 1),
        "chunk" => x.chunk(n, 1),
        "narrow" => each(&|i| x.narrow(1, i, 1)),
        "slice" => each(&|i| x.slice(1, Some(i as isize), Some(i as isize + 1), 1)),
        "overlapping" => each(&|i| x.narrow(1, i.min(n - 2), 2)),
        "index_select" => each(&|i| x.index_select(1, &one(i)?)),
        "gather" => each(&|i| x.gather(1, &Indices::from_slice(x.backend(), &[i as i32; 6], &[2, 1, 3])?)),
        "embedding" => {
            let table = x.reshape(&[2 * n, 3])?;
            each(&|i| table.embedding(&one(i)?, None))
        }
        other => unreachable!("{other}"),
    }
}

/// Bytes that the ops of a backward pass move.
fn bytes(way: &str, n: usize, dtype: DType, create_graph: bool) -> Result<u64> {
    let watched = Profiled::new(&Cpu::new());
    let x = T::ones(&watched, &[2, n, 3], dtype)?.requires_grad();
    let y = pieces(way, &x)?.iter().map(|p| p.mul(p)).collect::<Result<Vec<T>>>()?;
    let y = T::concat(&y.iter().collect::<Vec<_>>(), 0)?.sum(&[], false)?;
    watched.step(|| match create_graph {
        false => y.backward().map(drop),
        true => {
            let first = grad(&y, &[&x], None, true)?.remove(0).expect("a gradient");
            first.mul(&first)?.sum(&[], false)?.backward().map(drop)
        }
    })?;
    let timeline = watched.timeline();
    let costs = timeline.steps[0].marks.iter().map(|m| match m {
        Mark::Op { cost, .. } => cost.bytes,
        _ => 0,
    });
    Ok(costs.sum())
}

#[test]
fn the_gradient_of_pieces_costs_what_the_whole_does() -> Result<()> {
    for way in [
        "unbind",
        "split",
        "split_sizes",
        "chunk",
        "narrow",
        "slice",
        "overlapping",
        "index_select",
        "gather",
        "embedding",
    ] {
        for (dtype, create_graph) in [(DType::F32, false), (DType::BF16, false), (DType::F32, true)] {
            let (few, many) = (
                bytes(way, 8, dtype, create_graph)?,
                bytes(way, 64, dtype, create_graph)?,
            );
            assert!(
                many <= 9 * few,
                "{way} {dtype} {create_graph}: {few} bytes for 8, {many} for 64"
            );
        }
    }
    Ok(())
}
