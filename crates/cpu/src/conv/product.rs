//! Convolutions that are products of matrices as they lie: windows of one position each, or one window that is the whole image.

use crate::Cpu;
use crate::conv::Geometry;
use crate::epilogue::Epilogue;
use crate::gemm::blocking::Blocking;
use crate::gemm::{Gemm, GemmShape, Product, plan};
use kiln_core::Result;
use kiln_core::ops::ConvPass as Pass;

/// The shape of the product that `pass` is; none if windows overlap, leave something out or read padding.
pub(crate) fn shape(pass: Pass, g: &Geometry) -> Option<GemmShape> {
    let point = |&i: &usize| g.kernel[i] == 1 && g.output[i] == g.input[i] && (g.stride[i] == 1 || g.output[i] == 1);
    let whole = |i: usize| g.kernel[i] == g.input[i] && g.dilation[i] == 1 && g.output[i] == 1;
    // A row of the product has all positions of the last dimensions.
    let rows = (0..3).take_while(point).count();
    if g.groups > 1 || g.padding != [0; 3] || !(rows..3).all(whole) {
        return None;
    }
    let shape = |m, n, k, trans_a, trans_b| GemmShape {
        m,
        n,
        k,
        trans_a,
        trans_b,
    };
    let (rows, outputs, depth) = (g.rows(), g.outputs, g.depth());
    Some(match pass {
        Pass::Forward => shape(rows, outputs, depth, false, true),
        Pass::DataGrad => shape(rows, depth, outputs, false, false),
        Pass::WeightGrad => shape(outputs, depth, rows, true, false),
    })
}

/// Computes `pass` as the product of its operands, which has such a [`shape`].
pub(crate) fn run<A: Gemm>(
    cpu: &Cpu,
    pass: Pass,
    g: &Geometry,
    [a, b]: [&[A]; 2],
    e: Epilogue<'_, A>,
    to: &mut [A],
) -> Result<()> {
    let s = shape(pass, g).expect("the windows are those of a product");
    let algorithm = plan::choose::<A>(&s, A::DTYPE, cpu.preferred_algorithm());
    Product::new(s, a, b).run(cpu, algorithm, Blocking::this::<A>(), to, e)
}
