//! A convolution with its pooling: one kernel where both are small, else the two. So are all of their gradients. As several kernels they
//! take one fewer for the ReLU between them, whose zeros the pooling's gradient writes, and one or two fewer for the bias, whose sums end
//! with those of the weight.

use super::conv::BiasGrad;
use super::instance;
use crate::buffer::maybe;
use crate::launch::{THREADS, linear};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{
    Activation, ConvOps, ConvPoolGrads, ConvPoolOps, ConvPoolParams, ElementwiseOps, GradReads, PoolOps, PooledGrad,
    Reduce, ReduceOps, ReduceParams, UnaryParams,
};
use kiln_core::{Buffer, Error, Result, Shape, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{conv_pool as kernels, conv_pool_grad};

/// The most weights that `conv_pool.cu` holds in shared memory.
const WEIGHTS: u64 = 4096;
/// The most multiply-adds of its kernel, beyond which tiles of a product are faster.
const LARGEST: u64 = 1 << 26;
/// The most positions whose sum one block of 256 threads takes for each channel.
const POSITIONS: usize = 1 << 15;
/// Blocks per multiprocessor of a kernel that strides over its elements.
const WAVES: u32 = 32;

/// Threads of a block of `conv_pool_grad.cu`, elements of an image's gradient that one has, and what of the weight and of the gradient of
/// the convolution's result fit shared memory.
const GRAD_THREADS: u32 = 512;
const GRAD_ELEMENTS: u64 = 128;
const GRADS: u64 = 6144;
/// The most windows that a block of it reads for a channel: with more, tiles of a product are faster.
const WINDOWS: u64 = 2048;

/// The blocks of one kernel for all gradients but that of the image, and for that one, which each image needs several of. `None` if it does
/// not compute them.
fn grad_blocks(p: &ConvPoolParams, dx: bool, multiprocessors: u32) -> Option<[u64; 2]> {
    let (conv, pool) = (&p.conv, &p.pool.window);
    let volume = |size: [u32; 3]| size.iter().fold(1u64, |n, &d| n.saturating_mul(u64::from(d)));
    let flat = conv.window.input[0] == 1 && conv.window.kernel[0] == 1 && conv.window.output[0] == 1;
    let plain = conv.groups == 1 && conv.window.padding[0] == 0 && pool.output[0] == 1;
    let apart = (1..3).all(|i| pool.stride[i] >= pool.kernel[i] && pool.dilation[i] == 1);
    let (batch, channels, outputs) = (
        u64::from(conv.batch),
        u64::from(conv.in_channels),
        u64::from(conv.out_channels),
    );
    let depth = conv.window.taps() as u64 * channels;
    let image = volume(conv.window.input).saturating_mul(channels);
    let small = batch.saturating_mul(volume(pool.output)) <= WINDOWS && batch.saturating_mul(image) < 1 << 31;
    let filled = outputs.next_multiple_of(4);
    let held =
        depth.saturating_mul(filled + 4) <= WEIGHTS && volume(conv.window.output).saturating_mul(filled) <= GRADS;
    let of_weight = outputs * depth.div_ceil(32);
    let of_image = if dx { batch * image.div_ceil(GRAD_ELEMENTS) } else { 0 };
    // All run at a time: two on a multiprocessor.
    let at_once = of_weight.saturating_add(of_image) <= 2 * u64::from(multiprocessors);
    (flat && plain && apart && small && at_once && (held || !dx)).then_some([of_weight, of_image])
}

/// True if one kernel computes both.
fn fits(p: &ConvPoolParams) -> bool {
    let (conv, pool) = (&p.conv, &p.pool.window);
    let inside = (1..3).all(|i| {
        let last = u64::from(pool.output[i]).saturating_sub(1) * u64::from(pool.stride[i]) + 2;
        last <= u64::from(pool.input[i])
    });
    let flat = conv.window.input[0] == 1 && conv.window.kernel[0] == 1 && conv.window.output[0] == 1;
    let squares = pool.kernel == [1, 2, 2] && pool.padding == [0; 3] && pool.dilation == [1; 3];
    let weights = (conv.window.taps() * conv.in_channels as usize) as u64 * u64::from(conv.out_channels);
    let positions = (conv.window.output.iter()).fold(u64::from(conv.batch), |n, &d| n.saturating_mul(u64::from(d)));
    let plain = conv.groups == 1 && conv.window.padding[0] == 0 && pool.output[0] == 1;
    let small = weights <= WEIGHTS && positions.saturating_mul(weights) <= LARGEST;
    inside && flat && squares && plain && small
}

impl ConvPoolOps for Cuda {
    fn conv_max_pool(
        &self,
        p: &ConvPoolParams,
        x: &CudaBuffer,
        w: &CudaBuffer,
        bias: Option<&CudaBuffer>,
        y: &mut CudaBuffer,
        index: &mut CudaBuffer,
    ) -> Result<()> {
        checks::conv_max_pool(self, p, x, w, bias, y, index)?;
        if !fits(p) {
            let mut between = self.scratch(y.dtype(), p.between())?;
            self.conv(&p.conv, x, w, bias, &mut between)?;
            return self.max_pool(&p.pool, &between, y, index);
        }
        let grid = linear(y.len() as u64, THREADS, self.multiprocessors() * WAVES);
        let args = [
            Arg::value(&p.conv),
            Arg::value(&p.pool),
            x.arg(),
            w.arg(),
            maybe(bias),
            y.out(),
            index.out(),
        ];
        self.launch(instance(&kernels::CONV_POOL, x.dtype()), grid, &args)
    }

    fn conv_max_pool_grad(
        &self,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, CudaBuffer>,
        x: &CudaBuffer,
        w: &CudaBuffer,
        to: ConvPoolGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        checks::conv_max_pool_grad(self, p, of, x, w, &to)?;
        let f = p.conv.activation();
        let before = self.before_activation(f, of)?;
        let g = before.as_ref().unwrap_or(of.g);
        let y = (f == Activation::Relu).then_some(of.y);
        let channels = p.pool.channels as usize;
        let few = g.len() / channels.max(1) <= POSITIONS;
        let mut db = to.db;
        if to.dx.is_none() && to.dw.is_none() && few {
            return db.map_or(Ok(()), |db| self.bias_grad(BiasGrad { g, y, db }));
        }
        let blocks = grad_blocks(p, to.dx.is_some(), self.multiprocessors());
        let dw = match (to.dw, blocks) {
            (Some(dw), Some([of_weight, of_image])) if !g.is_empty() => {
                let (linear, data_blocks) = (p.linear(), of_image as u32);
                let args = [
                    Arg::value(&linear),
                    Arg::value(&p.pool),
                    g.arg(),
                    maybe(y),
                    of.index.arg(),
                    x.arg(),
                    w.arg(),
                    to.dx.map_or(maybe(None), |dx| dx.out()),
                    dw.out(),
                    db.map_or(maybe(None), |db| db.out()),
                    Arg::value(&data_blocks),
                ];
                let geometry = Geometry {
                    grid: [(of_weight + of_image) as u32, 1, 1],
                    block: [GRAD_THREADS, 1, 1],
                    shared: 0,
                };
                return self.launch(instance(&conv_pool_grad::CONV_POOL_GRAD, g.dtype()), geometry, &args);
            }
            (dw, _) => dw,
        };
        let mut between = self.scratch(g.dtype(), p.between())?;
        self.max_pool_grad(&p.pool, g, y, of.index, &mut between)?;
        if let Some(dx) = to.dx {
            self.conv_data_grad(&p.linear(), &between, w, dx)?;
        }
        if let Some(dw) = dw {
            match db.take_if(|_| few) {
                Some(db) => {
                    let bias = BiasGrad { g, y, db };
                    self.conv_weight_and_bias_grad(&p.linear(), &between, x, dw, bias)?;
                }
                None => self.conv_weight_grad(&p.linear(), &between, x, dw)?,
            }
        }
        let Some(db) = db else { return Ok(()) };
        if few {
            return self.bias_grad(BiasGrad { g, y, db });
        }
        let rows = Shape::new(&[between.len() / channels.max(1), channels])?;
        let (sum, _) = ReduceParams::new("conv_max_pool", Reduce::Sum, &rows, &[0], false)?;
        self.reduce(&sum, &between, db)
    }
}

impl Cuda {
    /// The gradient before an activation other than a ReLU, whose zeros other kernels write.
    fn before_activation(&self, f: Activation, of: &PooledGrad<'_, CudaBuffer>) -> Result<Option<CudaBuffer>> {
        let Some(function) = f.function().filter(|_| f != Activation::Relu) else {
            return Ok(None);
        };
        if function.function().reads != GradReads::Output {
            let expected = "none, ReLU, sigmoid or tanh, whose derivative follows from the result";
            return Err(Error::invalid(
                "conv_max_pool",
                "activation",
                format!("{f:?}"),
                expected,
            ));
        }
        let mut g = self.scratch(of.g.dtype(), of.g.len())?;
        let p = UnaryParams::new(function, of.g.len(), 0.0, 0.0);
        self.unary_grad(&p, of.y, of.y, of.g, &mut g)?;
        Ok(Some(g))
    }
}
