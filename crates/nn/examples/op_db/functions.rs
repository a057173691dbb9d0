//! The calls of functions, reductions and moves of tensors.

use crate::{Case, Out};
use kiln_cpu::Cpu;
use kiln_nn::ops::index::AxisIndex;
use kiln_nn::{Indices, Pad, Result, Tensor};

fn one(y: impl Into<Out>) -> Result<Option<Vec<Out>>> {
    Ok(Some(vec![y.into()]))
}

/// The results of the op of a name; `None` if it is one of the layers.
pub(crate) fn call(name: &str, case: &Case) -> Result<Option<Vec<Out>>> {
    let x = &case.x[0];
    let (axis, keep) = (|| case.int("axis"), case.flag("keep"));
    let ends = |i: usize| case.list("ends")[i];
    let value = || case.f64("value");
    let y = match name {
        "abs" => x.abs(),
        "acos" => x.acos(),
        "acosh" => x.acosh(),
        "asin" => x.asin(),
        "asinh" => x.asinh(),
        "atan" => x.atan(),
        "atanh" => x.atanh(),
        "ceil" => x.ceil(),
        "cos" => x.cos(),
        "cosh" => x.cosh(),
        "erf" => x.erf(),
        "erfc" => x.erfc(),
        "exp" => x.exp(),
        "exp2" => x.exp2(),
        "expm1" => x.expm1(),
        "floor" => x.floor(),
        "log" => x.log(),
        "log10" => x.log10(),
        "log1p" => x.log1p(),
        "log2" => x.log2(),
        "neg" => x.neg(),
        "reciprocal" => x.reciprocal(),
        "round" => x.round(),
        "rsqrt" => x.rsqrt(),
        "sigmoid" => x.sigmoid(),
        "sign" => x.sign(),
        "sin" => x.sin(),
        "sinh" => x.sinh(),
        "sqrt" => x.sqrt(),
        "square" => x.square(),
        "tan" => x.tan(),
        "tanh" => x.tanh(),
        "trunc" => x.trunc(),
        "relu" => x.relu(),
        "relu6" => x.clamp(0.0, 6.0),
        "silu" => x.silu(),
        "mish" => x.mish(),
        "selu" => x.selu(),
        "softsign" => x.softsign(),
        "hardsigmoid" => x.hardsigmoid(),
        "hardswish" => x.hardswish(),
        "log_sigmoid" => x.log_sigmoid(),
        "elu" => x.elu(value()),
        "celu" => x.celu(value()),
        "leaky_relu" => x.leaky_relu(value()),
        "hardtanh" | "clamp" => clamp(x, case.f64("low"), case.f64("high")),
        "gelu" => x.gelu(),
        "gelu_tanh" => x.gelu_tanh(),
        "softplus" => x.softplus(case.f64("low"), case.f64("high")),
        "hardshrink" => x.hardshrink(value()),
        "softshrink" => x.softshrink(value()),
        "prelu" => x.prelu(&case.x[1]),
        "glu" => x.glu(axis()),
        "clamp_tensors" => {
            let (low, high) = (case.flag("low"), case.flag("high"));
            x.clamp_tensors(low.then(|| &case.x[1]), high.then(|| &case.x[case.x.len() - 1]))
        }
        "add" => x + &case.x[1],
        "sub" => x - &case.x[1],
        "mul" => x * &case.x[1],
        "div" => x / &case.x[1],
        "pow" => x.pow(&case.x[1]),
        "maximum" => x.maximum(&case.x[1]),
        "minimum" => x.minimum(&case.x[1]),
        "atan2" => x.atan2(&case.x[1]),
        "remainder" => x.remainder(&case.x[1]),
        "fmod" => x.fmod(&case.x[1]),
        "floor_divide" => x.floor_divide(&case.x[1]),
        "logaddexp" => x.logaddexp(&case.x[1]),
        "matmul" => x.matmul(&case.x[1]),
        "lerp" => x.lerp(&case.x[1], &case.x[2]),
        "where" => Tensor::where_(&case.ints[0], x, &case.x[1]),
        "sum" => x.sum(&case.list("axes"), keep),
        "mean" => x.mean(&case.list("axes"), keep),
        "max" => x.max(&case.list("axes"), keep),
        "min" => x.min(&case.list("axes"), keep),
        "logsumexp" => x.logsumexp(&case.list("axes"), keep),
        "prod" => x.prod(&case.list("axes"), keep),
        "var" => x.var(&case.list("axes"), case.int("correction") as usize, keep),
        "std" => x.std(&case.list("axes"), case.int("correction") as usize, keep),
        "norm_nuclear" => x.norm_nuclear(keep),
        "norm" => x.norm(value(), &case.list("axes"), keep),
        "cumsum" => x.cumsum(axis()),
        "cumprod" => x.cumprod(axis()),
        "sorted" => x.sort(axis(), keep).map(|(values, _)| values),
        "reshape" => {
            let dims = case.list("shape");
            x.reshape(&dims[..])
        }
        "flatten" => x.flatten(ends(0), ends(1)),
        "permute" => x.permute(&case.list("axes")),
        "expand" => x.expand(&case.list("shape")),
        "flip" => x.flip(&case.list("axes")),
        "transpose" => x.transpose(ends(0), ends(1)),
        "squeeze" => x.squeeze(ends(0)),
        "unsqueeze" => x.unsqueeze(ends(0)),
        "narrow" => x.narrow(ends(0), ends(1) as usize, ends(2) as usize),
        "select" => x.i(at(x, ends(0), AxisIndex::At(ends(1)))),
        "diagonal" => x.diagonal(ends(0), ends(1), ends(2)),
        "tril" => x.tril(axis()),
        "triu" => x.triu(axis()),
        "tile" => x.tile(&case.sizes("shape")),
        "unflatten" => x.unflatten(axis(), &case.list("shape")[..]),
        "slice" => {
            let bound = |name: &str| case.args[name].as_i64().map(|v| v as isize);
            x.slice(axis(), bound("start"), bound("end"), case.int("step"))
        }
        "roll" => x.roll(ends(0), ends(1)),
        "concat" => Tensor::concat(&case.x.iter().collect::<Vec<_>>(), axis()),
        "stack" => Tensor::stack(&case.x.iter().collect::<Vec<_>>(), axis()),
        "gather" => x.gather(axis(), &case.ints[0]),
        "index_select" => x.index_select(axis(), &case.ints[0]),
        "scatter" => x.scatter(axis(), &case.ints[0], &case.x[1]),
        "scatter_add" => x.scatter_add(axis(), &case.ints[0], &case.x[1]),
        "index_add" => x.index_add(axis(), &case.ints[0], &case.x[1]),
        "index_copy" => x.index_copy(axis(), &case.ints[0], &case.x[1]),
        "index_fill" => x.index_fill(axis(), &case.ints[0], value()),
        "index_put" => {
            let index: Vec<AxisIndex<Cpu>> = case.ints.iter().cloned().map(AxisIndex::Entries).collect();
            x.index_put(index, &case.x[1], keep)
        }
        "i" => x.i(indices(case)),
        "masked_select" => x.masked_select(&case.ints[0]),
        "einsum" => Tensor::einsum(case.text("equation"), &case.x.iter().collect::<Vec<_>>()),
        "pad" => {
            let pairs = case.args["pairs"].as_array().map_or(&[][..], Vec::as_slice);
            let end = |v: &serde_json::Value| v.as_i64().unwrap_or(0) as isize;
            let pairs: Vec<(isize, isize)> = pairs.iter().map(|p| (end(&p[0]), end(&p[1]))).collect();
            x.pad(
                &pairs,
                match case.text("mode") {
                    "reflect" => Pad::Reflect,
                    "replicate" => Pad::Replicate,
                    "circular" => Pad::Circular,
                    _ => Pad::Constant(value()),
                },
            )
        }
        _ => return others(name, case),
    };
    one(y?)
}

/// Ops of integers or of several results.
fn others(name: &str, case: &Case) -> Result<Option<Vec<Out>>> {
    let x = &case.x[0];
    let (axis, keep) = (|| case.int("axis"), case.flag("keep"));
    let mask = |x: &Tensor<Cpu>| x.ne_scalar(0.0);
    let y: Indices<Cpu> = match name {
        "eq" => x.eq(&case.x[1])?,
        "ne" => x.ne(&case.x[1])?,
        "lt" => x.lt(&case.x[1])?,
        "le" => x.le(&case.x[1])?,
        "gt" => x.gt(&case.x[1])?,
        "ge" => x.ge(&case.x[1])?,
        "argmax" => x.argmax(axis(), keep)?,
        "argmin" => x.argmin(axis(), keep)?,
        "argsort" => x.argsort(axis(), keep)?,
        "all" => mask(x)?.all(&case.list("axes"), keep)?,
        "any" => mask(x)?.any(&case.list("axes"), keep)?,
        "count_nonzero" => x.count_nonzero(&case.list("axes"))?,
        "nonzero" => mask(x)?.nonzero()?,
        "sort" | "top_k" => {
            let (values, index) = match name {
                "sort" => x.sort(axis(), keep)?,
                _ => x.top_k(case.int("k") as usize, axis(), keep)?,
            };
            return Ok(Some(vec![values.into(), index.into()]));
        }
        "split" | "chunk" | "unbind" | "split_sizes" => {
            let parts = match name {
                "split" => x.split(case.int("k") as usize, axis())?,
                "chunk" => x.chunk(case.int("k") as usize, axis())?,
                "unbind" => x.unbind(axis())?,
                _ => x.split_sizes(&case.sizes("shape"), axis())?,
            };
            return Ok(Some(parts.into_iter().map(Out::from).collect()));
        }
        _ => return Ok(None),
    };
    one(y)
}

fn clamp(x: &Tensor<Cpu>, low: f64, high: f64) -> Result<Tensor<Cpu>> {
    match (low.is_finite(), high.is_finite()) {
        (true, true) => x.clamp(low, high),
        (true, false) => x.clamp_min(low),
        _ => x.clamp_max(high),
    }
}

/// The index of one axis.
fn at(x: &Tensor<Cpu>, axis: isize, index: AxisIndex<Cpu>) -> Vec<AxisIndex<Cpu>> {
    let axis = axis.rem_euclid(x.rank().max(1) as isize) as usize;
    let mut all = vec![AxisIndex::Slice(None, None, 1); axis];
    all.push(index);
    all
}

fn indices(case: &Case) -> Vec<AxisIndex<Cpu>> {
    let mut tensors = case.ints.iter().cloned();
    let told = case.args["index"].as_array().map_or(&[][..], Vec::as_slice);
    let one = |v: &serde_json::Value| match v.as_str() {
        Some("tensor") => AxisIndex::Entries(tensors.next().expect("an index tensor")),
        Some("none") => AxisIndex::NewAxis,
        Some(_) => AxisIndex::Ellipsis,
        None if v[0] == "at" => AxisIndex::At(v[1].as_i64().expect("a position") as isize),
        None => {
            let bound = |v: &serde_json::Value| v.as_i64().map(|v| v as isize);
            AxisIndex::Slice(bound(&v[1]), bound(&v[2]), bound(&v[3]).unwrap_or(1))
        }
    };
    told.iter().map(one).collect()
}
