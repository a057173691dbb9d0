//! The calls of ops of integer tensors and masks. The tensors are the case's integers: what is computed with, then indices and masks.

use crate::{Case, Out};
use kiln_cpu::Cpu;
use kiln_nn::ops::index::AxisIndex;
use kiln_nn::{Indices, Result};

/// The results of the op of a name.
pub(crate) fn call(name: &str, case: &Case) -> Result<Vec<Out>> {
    let x = &case.ints[0];
    let other = |i: usize| &case.ints[i];
    let (axis, keep) = (|| case.int("axis"), case.flag("keep"));
    let ends = |i: usize| case.list("ends")[i];
    let all = || case.ints.iter().collect::<Vec<_>>();
    let y = match name {
        "eq" => x.eq(other(1)),
        "ne" => x.ne(other(1)),
        "lt" => x.lt(other(1)),
        "le" => x.le(other(1)),
        "gt" => x.gt(other(1)),
        "ge" => x.ge(other(1)),
        "add" => x.add(other(1)),
        "sub" => x.sub(other(1)),
        "mul" => x.mul(other(1)),
        "pow" => x.pow(case.int("k") as u32),
        "floor_divide" => x.floor_divide(other(1)),
        "remainder" => x.remainder(other(1)),
        "maximum" => x.maximum(other(1)),
        "minimum" => x.minimum(other(1)),
        "abs" => x.abs(),
        "neg" => x.neg(),
        "sign" => x.sign(),
        "clamp" => x.clamp(case.int("low") as i32, case.int("high") as i32),
        "bitwise_and" => x.bitwise_and(other(1)),
        "bitwise_or" => x.bitwise_or(other(1)),
        "bitwise_xor" => x.bitwise_xor(other(1)),
        "bitwise_not" => x.bitwise_not(),
        "bitwise_left_shift" => x.left_shift(other(1)),
        "bitwise_right_shift" => x.right_shift(other(1)),
        "logical_and" => x.logical_and(other(1)),
        "logical_or" => x.logical_or(other(1)),
        "logical_xor" => x.logical_xor(other(1)),
        "logical_not" => x.logical_not(),
        "where" => Indices::where_(other(2), x, other(1)),
        "sum" => x.sum(&case.list("axes"), keep),
        "max" => x.max(&case.list("axes"), keep),
        "min" => x.min(&case.list("axes"), keep),
        "any" => x.any(&case.list("axes"), keep),
        "all" => x.all(&case.list("axes"), keep),
        "count_nonzero" => x.count_nonzero(&case.list("axes")),
        "cumsum" => x.cumsum(axis()),
        "argmax" => x.argmax(axis(), keep),
        "argmin" => x.argmin(axis(), keep),
        "argsort" => x.argsort(axis(), keep),
        "bincount" => x.bincount(case.int("k") as usize),
        "nonzero" => x.to_mask()?.nonzero(),
        "reshape" => x.reshape(&case.list("shape")),
        "permute" => x.permute(&case.list("axes")),
        "transpose" => x.transpose(ends(0), ends(1)),
        "squeeze" => x.squeeze(ends(0)),
        "unsqueeze" => x.unsqueeze(ends(0)),
        "flatten" => x.flatten(ends(0), ends(1)),
        "unflatten" => x.unflatten(axis(), &case.list("shape")),
        "expand" => x.expand(&case.list("shape")),
        "narrow" => x.narrow(ends(0), ends(1) as usize, ends(2) as usize),
        "flip" => x.flip(&case.list("axes")),
        "diagonal" => x.diagonal(ends(0), ends(1), ends(2)),
        "roll" => x.roll(ends(0), ends(1)),
        "tile" => x.tile(&case.sizes("shape")),
        "concat" => Indices::concat(&all(), axis()),
        "stack" => Indices::stack(&all(), axis()),
        "gather" => x.gather(axis(), other(1)),
        "index_select" => x.index_select(axis(), other(1)),
        "masked_select" => x.masked_select(other(1)),
        "scatter" => x.scatter(axis(), other(2), other(1)),
        "scatter_add" => x.scatter_add(axis(), other(2), other(1)),
        "index_put" => {
            let index: Vec<AxisIndex<Cpu>> = case.ints[2..].iter().cloned().map(AxisIndex::Entries).collect();
            x.index_put(index, other(1))
        }
        "sort" | "top_k" => {
            let (values, index) = match name {
                "sort" => x.sort(axis(), keep)?,
                _ => x.top_k(case.int("k") as usize, axis(), keep)?,
            };
            return Ok(vec![values.into(), index.into()]);
        }
        "split" => {
            return Ok(x
                .split(case.int("k") as usize, axis())?
                .into_iter()
                .map(Out::from)
                .collect());
        }
        _ => panic!("{name} has no call"),
    };
    Ok(vec![y?.into()])
}
