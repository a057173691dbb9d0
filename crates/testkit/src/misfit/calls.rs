//! A right call of every op of a backend.

use super::{Call, Operand};
use bytemuck::{Pod, Zeroable, bytes_of, pod_read_unaligned};
use kiln_core::DType::{self, F32, I32, U8};
use kiln_core::ops::*;
use kiln_core::{Backend, Result, Shape};
use std::mem::{offset_of, size_of};
use std::ops::Range;

/// A call with parameters `p` and buffers of these dtypes and lengths.
fn call<B: Backend, P: Pod, const N: usize>(
    op: &'static str,
    p: P,
    operands: [(DType, usize); N],
    run: impl Fn(&B, &P, &mut [B::Buffer; N]) -> Result<()> + 'static,
) -> Call<B> {
    let operands = operands.map(|(dtype, len)| Operand::of(dtype, len)).to_vec();
    Call::new(op, bytes_of(&p), operands, move |backend, p, buffers| {
        let buffers = buffers.try_into().expect("as many as were named");
        run(backend, &pod_read_unaligned(p), buffers)
    })
}

/// The bytes of a field.
macro_rules! field {
    ($P:ty, $field:ident) => {
        field(|p: &$P| &p.$field, offset_of!($P, $field))
    };
}

fn field<P: Zeroable, F>(_: impl Fn(&P) -> &F, at: usize) -> Range<usize> {
    at..at + size_of::<F>()
}

/// The bytes of the entries of an array of 64-bit fields from `rank` on.
fn unused(all: Range<usize>, rank: usize) -> Range<usize> {
    all.start + 8 * rank..all.end
}

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a small shape")
}

/// A right call of every op. None of its buffers is empty, and none of its sizes could be another.
///
/// # Panics
/// Never: the shapes are right.
pub fn calls<B: Backend>() -> Vec<Call<B>> {
    let mut all = elementwise();
    all.extend(reductions());
    all.extend(products());
    all.extend(windows());
    all.extend(norms());
    all.extend(indexing());
    all.extend(others());
    all.extend(updates());
    all
}

fn elementwise<B: Backend>() -> Vec<Call<B>> {
    let p = UnaryParams::new(Unary::Relu, 5, 0.0, 0.0);
    let value = |call: Call<B>| {
        let values = field!(UnaryParams, a).start..field!(UnaryParams, b).end;
        let code = field!(UnaryParams, op);
        call.free(values).small(code).free(field!(UnaryParams, pad))
    };
    let (a, b, mask) = (shape(&[2, 1, 3]), shape(&[2, 4, 1]), shape(&[4, 3]));
    let three =
        |op, code, mask: Option<&Shape>| BroadcastParams::new(op, code, &a, &b, mask).expect("they broadcast").0;
    let broadcast = |call: Call<B>, masked: bool| {
        let used = if masked { 3 } else { 0 };
        call.free(unused(field!(BroadcastParams, shape), 3))
            .free(unused(field!(BroadcastParams, a), 3))
            .free(unused(field!(BroadcastParams, b), 3))
            .free(unused(field!(BroadcastParams, mask), used))
            .small(field!(BroadcastParams, rank))
            .small(field!(BroadcastParams, op))
    };
    let (add, eq) = (Binary::Add as u32, Compare::Eq as u32);
    let select = three("select", 0, Some(&mask));
    vec![
        value(call("unary", p, [(F32, 5); 2], |on: &B, p, [x, y]| on.unary(p, x, y))),
        value(call("unary_grad", p, [(F32, 5); 4], |on: &B, p, [x, y, g, dx]| {
            on.unary_grad(p, x, y, g, dx)
        })),
        broadcast(
            call(
                "binary",
                three("binary", add, None),
                [(F32, 6), (F32, 8), (F32, 24)],
                |on: &B, p, [a, b, y]| on.binary(p, a, b, y),
            ),
            false,
        ),
        broadcast(
            call(
                "compare",
                three("compare", eq, None),
                [(F32, 6), (F32, 8), (U8, 24)],
                |on: &B, p, [a, b, m]| on.compare(p, a, b, m),
            ),
            false,
        ),
        broadcast(
            call(
                "select",
                select,
                [(U8, 12), (F32, 6), (F32, 8), (F32, 24)],
                |on: &B, p, [m, a, b, y]| on.select(p, m, a, b, y),
            ),
            true,
        )
        .free(field!(BroadcastParams, op)),
        call("cast", [0u8; 0], [(F32, 5), (I32, 5)], |on: &B, _, [x, y]| {
            on.cast(x, y)
        })
        .untyped(0)
        .untyped(1),
        call("fill", [0u8; 0], [(F32, 5)], |on: &B, _, [y]| on.fill(1.0, y))
            .untyped(0)
            .unsized_(0),
        call("accumulate", [0u8; 0], [(F32, 5); 2], |on: &B, _, [x, y]| {
            on.accumulate(x, y)
        }),
    ]
}

fn reductions<B: Backend>() -> Vec<Call<B>> {
    let (p, _) = ReduceParams::new("reduce", Reduce::Sum, &shape(&[2, 3, 4]), &[1], false).expect("an axis");
    let axis = |k| AxisParams::new("axis", &shape(&[2, 3, 4]), 1, k, false).expect("an axis");
    let of_axis = |call: Call<B>| call.small(field!(AxisParams, reverse)).free(field!(AxisParams, pad));
    let k = field!(AxisParams, k);
    vec![
        call("reduce", p, [(F32, 24), (F32, 8)], |on: &B, p, [x, y]| {
            on.reduce(p, x, y)
        })
        .free(unused(field!(ReduceParams, shape), 3))
        .small(field!(ReduceParams, rank))
        .small(field!(ReduceParams, op))
        .free(field!(ReduceParams, pad)),
        of_axis(call(
            "arg_reduce",
            axis(0),
            [(F32, 24), (I32, 8)],
            |on: &B, p, [x, i]| on.arg_reduce(p, x, i),
        ))
        .free(k.clone())
        .untyped(0),
        of_axis(call("cumsum", axis(0), [(F32, 24); 2], |on: &B, p, [x, y]| {
            on.cumsum(p, x, y)
        }))
        .free(k),
        of_axis(call(
            "top_k",
            axis(2),
            [(F32, 24), (F32, 16), (I32, 16)],
            |on: &B, p, [x, v, i]| on.top_k(p, x, v, i),
        )),
    ]
}

fn products<B: Backend>() -> Vec<Call<B>> {
    let marked = |call: Call<B>, rank| {
        call.free(unused(field!(MatmulParams, batch), rank))
            .free(unused(field!(MatmulParams, a_batch), rank))
            .free(unused(field!(MatmulParams, b_batch), rank))
            .small(field!(MatmulParams, batch_rank))
            .small(field!(MatmulParams, trans_a))
            .small(field!(MatmulParams, trans_b))
            .small(field!(MatmulParams, activation))
    };
    let product = |a: &[usize], b: &[usize], [ta, tb]: [bool; 2]| {
        MatmulParams::new("matmul", &shape(a), &shape(b), ta, tb)
            .expect("they fit")
            .0
    };
    let (batched, one) = (
        product(&[2, 5, 3], &[2, 5, 4], [true, false]),
        product(&[3, 5], &[4, 5], [false, true]),
    );
    let mut all = vec![
        marked(
            call(
                "matmul",
                batched,
                [(F32, 30), (F32, 40), (F32, 24)],
                |on: &B, p, [a, b, c]| on.matmul(p, a, b, c),
            ),
            1,
        ),
        marked(
            call(
                "linear",
                one,
                [(F32, 15), (F32, 20), (F32, 4), (F32, 12)],
                |on: &B, p, [x, w, b, y]| on.linear(p, x, w, Some(b), y),
            ),
            0,
        ),
    ];
    // The forms that leave A in rows or turn it, for few columns and for many.
    for (trans_a, columns) in [(false, 1), (false, 70), (true, 1), (true, 70)] {
        let a: [usize; 2] = if trans_a { [7, 40] } else { [40, 7] };
        let p = product(&a, &[7, columns], [trans_a, false]);
        all.push(marked(
            call(
                "matmul",
                p,
                [(F32, 280), (F32, 7 * columns), (F32, 40 * columns)],
                |on: &B, p, [a, b, c]| on.matmul(p, a, b, c),
            ),
            0,
        ));
    }
    let (p, _) = AttentionParams::new("attention", &shape(&[2, 3, 24]), 2, true).expect("heads fit");
    let attention = |call: Call<B>| {
        call.free(field!(AttentionParams, scale))
            .small(field!(AttentionParams, causal))
            .free(field!(AttentionParams, pad))
    };
    all.push(attention(call(
        "attention",
        p,
        [(F32, 144), (F32, 48), (F32, 12)],
        |on: &B, p, [x, y, l]| on.attention(p, x, y, l),
    )));
    all.push(attention(call(
        "attention_grad",
        p,
        [(F32, 144), (F32, 12), (F32, 48), (F32, 144)],
        |on: &B, p, [x, l, g, dx]| on.attention_grad(p, x, l, g, dx),
    )));
    all
}

/// [`ConvPoolParams`] as one value.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ConvPool {
    conv: ConvParams,
    pool: PoolParams,
}

impl ConvPool {
    fn params(&self) -> ConvPoolParams {
        ConvPoolParams {
            conv: self.conv,
            pool: self.pool,
        }
    }
}

fn windows<B: Backend>() -> Vec<Call<B>> {
    // Every other stride, padding or dilation would need another number of windows.
    let window = Window::new([3, 3, 3]);
    let (conv, _) =
        ConvParams::new("conv3d", &shape(&[2, 5, 5, 5, 2]), &shape(&[4, 3, 3, 3, 2]), &window, 1).expect("they fit");
    let (pool, _) = PoolParams::new("pool3d", &shape(&[2, 5, 5, 5, 2]), &window, false, true).expect("it fits");
    let (adaptive, _) = AdaptivePoolParams::new("pool3d", 3, &shape(&[2, 5, 5, 5, 2]), [3, 2, 4]).expect("it fits");
    let (x, w, y) = ((F32, 500), (F32, 216), (F32, 216));
    let (pooled, index, cells) = ((F32, 108), (I32, 108), (F32, 96));
    let of_conv = |call: Call<B>| call.small(field!(ConvParams, activation)).free(field!(ConvParams, pad));
    let of_pool_at = |call: Call<B>, at: usize| {
        let moved = |r: Range<usize>| at + r.start..at + r.end;
        call.small(moved(field!(PoolParams, kernel)))
            .small(moved(field!(PoolParams, stride)))
            .small(moved(field!(PoolParams, dilation)))
            .small(moved(field!(PoolParams, count_include_pad)))
            .free(moved(field!(PoolParams, pad)))
    };
    let of_pool = |call: Call<B>| of_pool_at(call, 0);
    let two = Window::new([2, 2]).stride([2, 2]);
    let (joined, _) = ConvPoolParams::new(
        "conv_pool",
        &shape(&[2, 6, 6, 3]),
        &shape(&[4, 3, 3, 3]),
        (&Window::new([3, 3]), 1),
        (&two, false),
    )
    .expect("they fit");
    let joined = ConvPool {
        conv: joined.conv,
        pool: joined.pool,
    };
    let of_both = |call: Call<B>| {
        let first = |r: Range<usize>| r.start..r.start + 4;
        // Of images in two dimensions the first one is no window.
        let call = of_pool_at(of_conv(call), size_of::<ConvParams>());
        call.small(first(field!(ConvParams, stride)))
            .small(first(field!(ConvParams, dilation)))
    };
    let (image, weight, result, places) = ((F32, 216), (F32, 108), (F32, 32), (I32, 32));
    vec![
        of_conv(call("conv", conv, [x, w, (F32, 4), y], |on: &B, p, [x, w, b, y]| {
            on.conv(p, x, w, Some(b), y)
        })),
        of_conv(call("conv_data_grad", conv, [y, w, x], |on: &B, p, [g, w, dx]| {
            on.conv_data_grad(p, g, w, dx)
        })),
        of_conv(call("conv_weight_grad", conv, [y, x, w], |on: &B, p, [g, x, dw]| {
            on.conv_weight_grad(p, g, x, dw)
        })),
        of_both(call(
            "conv_max_pool",
            joined,
            [image, weight, (F32, 4), result, places],
            |on: &B, p, [x, w, b, y, i]| on.conv_max_pool(&p.params(), x, w, Some(b), y, i),
        )),
        of_both(call(
            "conv_max_pool_grad",
            joined,
            [result, result, places, image, weight, image, weight, (F32, 4)],
            |on: &B, p, [g, y, index, x, w, dx, dw, db]| {
                let to = ConvPoolGrads {
                    dx: Some(dx),
                    dw: Some(dw),
                    db: Some(db),
                };
                on.conv_max_pool_grad(&p.params(), &PooledGrad { g, y, index }, x, w, to)
            },
        )),
        of_pool(call("max_pool", pool, [x, pooled, index], |on: &B, p, [x, y, i]| {
            on.max_pool(p, x, y, i)
        })),
        of_pool(call(
            "max_pool_grad",
            pool,
            [pooled, index, x],
            |on: &B, p, [g, i, dx]| on.max_pool_grad(p, g, i, dx),
        )),
        of_pool(call(
            "max_pool_gather",
            pool,
            [x, index, pooled],
            |on: &B, p, [x, i, y]| on.max_pool_gather(p, x, i, y),
        )),
        of_pool(call("avg_pool", pool, [x, pooled], |on: &B, p, [x, y]| {
            on.avg_pool(p, x, y)
        })),
        of_pool(call("avg_pool_grad", pool, [pooled, x], |on: &B, p, [g, dx]| {
            on.avg_pool_grad(p, g, dx)
        })),
        call("adaptive_avg_pool", adaptive, [x, cells], |on: &B, p, [x, y]| {
            on.adaptive_avg_pool(p, x, y)
        }),
        call("adaptive_avg_pool_grad", adaptive, [cells, x], |on: &B, p, [g, dx]| {
            on.adaptive_avg_pool_grad(p, g, dx)
        }),
    ]
}

fn norms<B: Backend>() -> Vec<Call<B>> {
    let x = shape(&[2, 3, 4]);
    let batch = BatchNormParams::new("batch_norm", &x, 1e-5).expect("channels");
    let group = GroupNormParams::group("group_norm", &x, 2, 1e-5).expect("groups");
    let (t, c, s) = ((F32, 24), (F32, 4), (F32, 4));
    let of_batch = |call: Call<B>| call.free(field!(BatchNormParams, eps));
    let of_group = |call: Call<B>| {
        let call = call
            .free(field!(GroupNormParams, eps))
            .small(field!(GroupNormParams, rms));
        call.free(field!(GroupNormParams, pad))
    };
    vec![
        of_batch(call(
            "batch_norm",
            batch,
            [t, c, c, t, s, s],
            |on: &B, p, [x, w, b, y, m, r]| on.batch_norm(p, x, Some(w), Some(b), y, m, r),
        )),
        of_batch(call(
            "batch_norm_eval",
            batch,
            [t, c, c, s, s, t],
            |on: &B, p, [x, w, b, m, v, y]| on.batch_norm_eval(p, x, Some(w), Some(b), m, v, y),
        )),
        of_batch(call(
            "batch_norm_grad",
            batch,
            [t, c, s, s, t, t, c, c],
            |on: &B, p, [x, w, m, r, g, dx, dw, db]| on.batch_norm_grad(p, x, Some(w), m, r, g, dx, dw, db),
        )),
        of_group(call(
            "group_norm",
            group,
            [t, c, c, t, s, s],
            |on: &B, p, [x, w, b, y, m, r]| on.group_norm(p, x, Some(w), Some(b), y, m, r),
        )),
        of_group(call(
            "group_norm_grad",
            group,
            [t, c, s, s, t, t, c, c],
            |on: &B, p, [x, w, m, r, g, dx, dw, db]| on.group_norm_grad(p, x, Some(w), m, r, g, dx, dw, db),
        )),
    ]
}

fn indexing<B: Backend>() -> Vec<Call<B>> {
    // Turned and backwards, so that every other step leads out of the tensor or to one element twice.
    let view = ViewParams::new(&shape(&[3, 5]), &[-1, -3], 14);
    let of_view = |call: Call<B>| {
        call.free(unused(field!(ViewParams, shape), 2))
            .free(unused(field!(ViewParams, strides), 2))
            .small(field!(ViewParams, rank))
            .free(field!(ViewParams, pad))
    };
    let p = IndexParams::new("index", &shape(&[2, 4, 3]), 1, 5).expect("an axis");
    let one_hot = IndexParams {
        outer: 5,
        size: 4,
        inner: 1,
        count: 1,
    };
    let (source, result) = ((F32, 24), (F32, 30));
    vec![
        of_view(call("view_read", view, [(F32, 15); 2], |on: &B, p, [x, y]| {
            on.view_read(p, x, y)
        }))
        // It may read what lies closer, and more than once.
        .free(field!(ViewParams, strides))
        .roomy(0),
        of_view(call("view_write", view, [(F32, 15); 2], |on: &B, p, [x, y]| {
            on.view_write(p, x, y)
        }))
        .roomy(1),
        call("gather", p, [source, (I32, 30), result], |on: &B, p, [x, i, y]| {
            on.gather(p, x, i, y)
        }),
        call("scatter_add", p, [result, (I32, 30), source], |on: &B, p, [x, i, y]| {
            on.scatter_add(p, x, i, y)
        }),
        call("index_select", p, [source, (I32, 5), result], |on: &B, p, [x, i, y]| {
            on.index_select(p, x, i, y)
        }),
        call("index_add", p, [result, (I32, 5), source], |on: &B, p, [x, i, y]| {
            on.index_add(p, x, i, y)
        }),
        call("one_hot", one_hot, [(I32, 5), (F32, 20)], |on: &B, p, [i, y]| {
            on.one_hot(p, i, y)
        })
        .free(field!(IndexParams, inner).start..field!(IndexParams, count).end)
        .untyped(1),
    ]
}

fn others<B: Backend>() -> Vec<Call<B>> {
    let softmax = SoftmaxParams::new("softmax", &shape(&[2, 3, 4]), 1, false).expect("an axis");
    let of_softmax = |call: Call<B>| call.small(field!(SoftmaxParams, log)).free(field!(SoftmaxParams, pad));
    let loss = CrossEntropyParams::new("loss", &shape(&[3, 4]), &shape(&[3]), 0.1, -100).expect("labels");
    let of_loss = |call: Call<B>| {
        call.free(field!(CrossEntropyParams, smoothing).start..field!(CrossEntropyParams, ignore_index).end)
    };
    let random = RandomParams::new("random", Distribution::Bernoulli, 5, (0.5, 0.0), 1, 2).expect("a probability");
    let of_random = |call: Call<B>| {
        call.free(field!(RandomParams, seed).start..field!(RandomParams, stream).end)
            .small(field!(RandomParams, distribution))
    };
    vec![
        of_softmax(call("softmax", softmax, [(F32, 24); 2], |on: &B, p, [x, y]| {
            on.softmax(p, x, y)
        })),
        of_softmax(call(
            "softmax_grad",
            softmax,
            [(F32, 24); 3],
            |on: &B, p, [y, g, dx]| on.softmax_grad(p, y, g, dx),
        )),
        of_loss(call(
            "cross_entropy",
            loss,
            [(F32, 12), (I32, 3), (F32, 4), (F32, 3), (F32, 3)],
            |on: &B, p, [x, labels, w, loss, weight]| on.cross_entropy(p, x, labels, Some(w), loss, weight),
        )),
        of_loss(call(
            "cross_entropy_grad",
            loss,
            [(F32, 12), (I32, 3), (F32, 4), (F32, 3), (F32, 12)],
            |on: &B, p, [x, labels, w, g, dx]| on.cross_entropy_grad(p, x, labels, Some(w), g, dx),
        )),
        of_random(call("random", random, [(I32, 1), (F32, 5)], |on: &B, p, [s, y]| {
            on.random(p, s, y)
        }))
        .untyped(1),
        of_random(call(
            "dropout",
            random,
            [(I32, 1), (F32, 5), (F32, 5)],
            |on: &B, p, [s, x, y]| on.dropout(p, s, x, y),
        ))
        .free(field!(RandomParams, distribution)),
        call("tick", [0u8; 0], [(I32, 1); 2], |on: &B, _, [counter, ticket]| {
            on.tick(counter, ticket)
        }),
    ]
}

/// An update with as many state buffers as `N` leaves behind scalars, parameter and gradient.
fn update<B: Backend, P: Pod, const N: usize>(
    op: &'static str,
    p: P,
    run: impl Fn(&B, &P, &B::Buffer, &mut [OptimSlot<'_, B::Buffer>]) -> Result<()> + 'static,
) -> Call<B> {
    let mut operands = [(F32, 5); N];
    operands[0].1 = 4;
    let all = 0..size_of::<P>();
    let call = call(op, p, operands, move |on, p, buffers: &mut [B::Buffer; N]| {
        let [scalars, param, grad, state @ ..] = &mut buffers[..] else {
            return Ok(());
        };
        let slot = OptimSlot {
            param,
            grad,
            state: state.iter_mut().collect(),
        };
        run(on, p, scalars, &mut [slot])
    });
    call.free(all)
}

fn updates<B: Backend>() -> Vec<Call<B>> {
    let sgd = SgdParams {
        momentum: 0.9,
        ..SgdParams::zeroed()
    };
    let rmsprop = RmspropParams {
        momentum: 0.9,
        centered: 1,
        ..RmspropParams::zeroed()
    };
    let amsgrad = AdamParams {
        amsgrad: 1,
        ..AdamParams::zeroed()
    };
    vec![
        update::<B, _, 4>("sgd", sgd, |on, p, s, slots| on.sgd(p, s, slots))
            .small(field!(SgdParams, nesterov))
            .small(field!(SgdParams, maximize)),
        update::<B, _, 6>("adam", amsgrad, |on, p, s, slots| on.adam(p, s, slots))
            .small(field!(AdamParams, decoupled))
            .small(field!(AdamParams, amsgrad)),
        update::<B, _, 5>("adam", AdamParams::zeroed(), |on, p, s, slots| on.adam(p, s, slots)),
        update::<B, _, 6>("rmsprop", rmsprop, |on, p, s, slots| on.rmsprop(p, s, slots))
            .small(field!(RmspropParams, centered)),
        update::<B, _, 4>("adagrad", AdagradParams::zeroed(), |on, p, s, slots| {
            on.adagrad(p, s, slots)
        }),
    ]
}
