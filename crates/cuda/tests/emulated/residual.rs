//! Sums of a residual stream and their norm: every kernel against the CPU.

use crate::cuda;
use crate::twin::{EDGES, buffer, empty, read, wide};
use half::{bf16, f16};
use kiln_core::ops::{ResidualNormGrads, ResidualNormInputs, ResidualOps, ResidualParams};
use kiln_core::{Backend, Float, Result, Runtime};
use kiln_cpu::Cpu;
use kiln_cuda::Cuda;
use kiln_cuda::residual::Algorithm;
use kiln_testkit::assert_close;

/// The parts of a call that are there: the branch, the gradient that the sum has otherwise, which comes with a second one of the norm.
type Given = (bool, bool);

/// A backend whose ops are run by an algorithm, if one is given.
trait By: Backend {
    fn norm(&self, by: Option<Algorithm>, p: &ResidualParams, o: &mut Operands<Self>, given: Given) -> Result<()>;
    fn grad(&self, by: Option<Algorithm>, p: &ResidualParams, o: &mut Operands<Self>, given: Given) -> Result<()>;
}

/// The buffers of a call and of its gradient.
struct Operands<B: Runtime> {
    x: B::Buffer,
    y: B::Buffer,
    step: B::Buffer,
    affine: [B::Buffer; 2],
    g: B::Buffer,
    more: B::Buffer,
    sum: B::Buffer,
    s: B::Buffer,
    n: B::Buffer,
    stats: [B::Buffer; 2],
    ds: B::Buffer,
    dy: B::Buffer,
    vectors: [B::Buffer; 2],
}

impl<B: Runtime> Operands<B> {
    /// The operands of the gradient, and its results.
    fn of_grad(
        &mut self,
        (branch, others): Given,
    ) -> (ResidualNormInputs<'_, B::Buffer>, ResidualNormGrads<'_, B::Buffer>) {
        let ([mean, rstd], [dscale, dshift]) = (&self.stats, &mut self.vectors);
        let inputs = ResidualNormInputs {
            s: if branch { &self.s } else { &self.x },
            scale: &self.affine[0],
            mean,
            rstd,
            g: &self.g,
            more: others.then_some(&self.more),
            sum: others.then_some(&self.sum),
            step: Some(&self.step),
        };
        let grads = ResidualNormGrads {
            ds: &mut self.ds,
            dy: branch.then_some(&mut self.dy),
            dscale,
            dshift,
        };
        (inputs, grads)
    }
}

impl By for Cpu {
    fn norm(&self, _: Option<Algorithm>, p: &ResidualParams, o: &mut Operands<Self>, (branch, _): Given) -> Result<()> {
        let ([scale, shift], [mean, rstd]) = (&o.affine, &mut o.stats);
        let branch = branch.then_some((&o.y, &mut o.s));
        self.residual_norm(p, &o.x, branch, Some(&o.step), scale, shift, &mut o.n, mean, rstd)
    }

    fn grad(&self, _: Option<Algorithm>, p: &ResidualParams, o: &mut Operands<Self>, given: Given) -> Result<()> {
        let (of, to) = o.of_grad(given);
        self.residual_norm_grad(p, &of, to)
    }
}

impl By for Cuda {
    fn norm(
        &self,
        by: Option<Algorithm>,
        p: &ResidualParams,
        o: &mut Operands<Self>,
        (branch, _): Given,
    ) -> Result<()> {
        let ([scale, shift], [mean, rstd]) = (&o.affine, &mut o.stats);
        let (branch, step) = (branch.then_some((&o.y, &mut o.s)), Some(&o.step));
        match by {
            Some(by) => self.residual_norm_with(by, p, &o.x, branch, step, (scale, shift), &mut o.n, (mean, rstd)),
            None => self.residual_norm(p, &o.x, branch, step, scale, shift, &mut o.n, mean, rstd),
        }
    }

    fn grad(&self, by: Option<Algorithm>, p: &ResidualParams, o: &mut Operands<Self>, given: Given) -> Result<()> {
        let (of, to) = o.of_grad(given);
        match by {
            Some(by) => self.residual_norm_grad_with(by, p, &of, to),
            None => self.residual_norm_grad(p, &of, to),
        }
    }
}

/// Every result for a stream of `W`, branches and norms of `H`, and vectors of `A`.
fn results<B: By, W: Float, H: Float, A: Float>(
    b: &B,
    by: Option<Algorithm>,
    p: &ResidualParams,
    given: Given,
) -> Vec<(&'static str, Vec<f64>)> {
    let (rows, width) = (p.rows as usize, p.width as usize);
    let n = rows * width;
    let mut o = Operands::<B> {
        x: buffer::<B, W>(b, n, 1),
        y: buffer::<B, H>(b, n, 2),
        step: b.upload(&[9i32]).unwrap_or_else(|e| panic!("{e}")),
        affine: [3, 4].map(|salt| buffer::<B, A>(b, width, salt)),
        g: buffer::<B, H>(b, n, 5),
        more: buffer::<B, H>(b, n, 7),
        sum: buffer::<B, W>(b, n, 6),
        s: empty::<B, W>(b, n),
        n: empty::<B, H>(b, n),
        stats: [(); 2].map(|()| empty::<B, f32>(b, rows)),
        ds: empty::<B, W>(b, n),
        dy: empty::<B, H>(b, n),
        vectors: [(); 2].map(|()| empty::<B, A>(b, width)),
    };
    b.norm(by, p, &mut o, given)
        .and_then(|()| b.grad(by, p, &mut o, given))
        .unwrap_or_else(|e| panic!("{by:?} {p:?}: {e}"));
    let mut all = vec![
        ("n", wide(read::<B, H>(b, &o.n))),
        ("mean", wide(read::<B, f32>(b, &o.stats[0]))),
        ("rstd", wide(read::<B, f32>(b, &o.stats[1]))),
        ("ds", wide(read::<B, W>(b, &o.ds))),
        ("dscale", wide(read::<B, A>(b, &o.vectors[0]))),
        ("dshift", wide(read::<B, A>(b, &o.vectors[1]))),
    ];
    if given.0 {
        all.push(("s", wide(read::<B, W>(b, &o.s))));
        all.push(("dy", wide(read::<B, H>(b, &o.dy))));
    }
    // The two ops without a norm, into the buffers of the others.
    let step = (p.drop > 0.0).then_some(&o.step);
    b.residual_add(p, &o.x, &o.y, step, &mut o.s)
        .and_then(|()| b.residual_add_grad(p, &o.sum, step, &mut o.dy))
        .unwrap_or_else(|e| panic!("{p:?}: {e}"));
    all.push(("the sum alone", wide(read::<B, W>(b, &o.s))));
    all.push(("its gradient", wide(read::<B, H>(b, &o.dy))));
    all
}

/// Compares an algorithm with the CPU: sums were made in another order, and results rounded once, with a sum that was rounded before.
fn same<W: Float, H: Float, A: Float>(cuda: &Cuda, by: Option<Algorithm>, p: &ResidualParams, given: Given) {
    let want = results::<Cpu, W, H, A>(&Cpu::poisoned(), None, p, given);
    let got = results::<Cuda, W, H, A>(cuda, by, p, given);
    let unit = match [W::DTYPE.size(), H::DTYPE.size(), A::DTYPE.size()].into_iter().min() {
        Some(4) => 0.0,
        _ => (H::of(1.0 + 1.5 * 2f64.powi(-11)).f64()).max(H::of(1.0 + 1.5 * 2f64.powi(-8)).f64()) - 1.0,
    };
    for ((name, got), (_, want)) in got.iter().zip(&want) {
        let bounds: Vec<f64> = want.iter().map(|w| 4e-5 + (1e-4 + unit) * w.abs()).collect();
        let what = format!("{by:?} {}/{}/{} {given:?} {p:?}: {name}", W::DTYPE, H::DTYPE, A::DTYPE);
        assert_close(&what, got, want, &bounds);
    }
}

fn params(rows: u64, width: u64, drop: f64) -> ResidualParams {
    ResidualParams {
        rows,
        width,
        eps: 0.01,
        drop,
        seed: 77,
        stream: 5,
        pad: 0,
    }
}

/// Every variant, on rows that it takes: around a pack of eight and what a block holds, with more rows than a block has to itself.
#[test]
fn variants_agree_with_the_cpu() {
    let cuda = cuda();
    let widths = [8u64, 24, 129, 1024, 1032, 2048, 2056];
    let edges = EDGES.map(|n| n as u64);
    let given = [(true, true), (false, true), (true, false)];
    for (i, width) in widths.into_iter().chain(edges).enumerate() {
        let rows = if width > 1000 { 3 } else { 19 };
        let p = params(rows, width, [0.0, 0.3][i % 2]);
        let given = given[i % 3];
        for by in Algorithm::ALL.into_iter().filter(|by| by.widest() >= width) {
            same::<f32, f32, f32>(&cuda, Some(by), &p, given);
            same::<f32, bf16, f32>(&cuda, Some(by), &p, given);
            same::<f32, f16, f32>(&cuda, Some(by), &p, given);
            same::<bf16, bf16, f32>(&cuda, Some(by), &p, given);
            same::<f16, f16, f16>(&cuda, Some(by), &p, given);
        }
    }
    let (held, wider, plain) = (Algorithm::Held128, Algorithm::Held256, Algorithm::Plain);
    assert_eq!(
        [1, 1024, 1025, 2048, 2049].map(Algorithm::choose),
        [held, held, wider, wider, plain]
    );
}

/// No rows, and so many that a block has more than the fewest.
#[test]
fn any_number_of_rows() {
    let cuda = cuda();
    for (rows, width) in [(0, 8), (0, 3), (1, 40), (8 * 1024 + 5, 2)] {
        for given in [(true, true), (false, false)] {
            let p = params(rows, width, 0.0);
            same::<f32, f32, f32>(&cuda, None, &p, given);
            same::<bf16, bf16, bf16>(&cuda, None, &p, given);
        }
    }
    let refused = params(2, 1032, 0.0);
    let mut o = Operands::<Cuda> {
        x: empty::<_, f32>(&cuda, 2064),
        y: empty::<_, f32>(&cuda, 2064),
        step: cuda.upload(&[9i32]).unwrap(),
        affine: [(); 2].map(|()| empty::<_, f32>(&cuda, 1032)),
        g: empty::<_, f32>(&cuda, 2064),
        more: empty::<_, f32>(&cuda, 2064),
        sum: empty::<_, f32>(&cuda, 2064),
        s: empty::<_, f32>(&cuda, 2064),
        n: empty::<_, f32>(&cuda, 2064),
        stats: [(); 2].map(|()| empty::<_, f32>(&cuda, 2)),
        ds: empty::<_, f32>(&cuda, 2064),
        dy: empty::<_, f32>(&cuda, 2064),
        vectors: [(); 2].map(|()| empty::<_, f32>(&cuda, 1032)),
    };
    let error = cuda
        .norm(Some(Algorithm::Held128), &refused, &mut o, (true, true))
        .unwrap_err();
    assert!(error.to_string().contains("at most 1024"), "{error}");
}
