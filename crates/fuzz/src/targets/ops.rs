//! Programs of tensor ops.
//!
//! Bytes choose ops, operands and arguments. An op may return an error but must not panic, nor may the gradient of its result.
//! Arguments whose size decides the memory of a valid call are small; the others are sometimes as large as possible.

use crate::Bytes;
use kiln_core::ops::{Activation, Padding, Window};
use kiln_core::{DType, Error, Shape};
use kiln_cpu::Cpu;
use kiln_nn::{CrossEntropyOptions, Indices, Pad, Reduction, Tensor};

type T = Tensor<Cpu>;
type Results = Result<Vec<T>, Error>;

/// The largest number of ops of a program.
const LONGEST: usize = 24;
/// The size of the largest tensor that is used as an operand.
const LARGEST: usize = 1 << 12;

struct Program<'a> {
    bytes: Bytes<'a>,
    cpu: Cpu,
    tensors: Vec<T>,
    indices: Vec<Indices<Cpu>>,
}

pub(super) fn run(input: &[u8]) {
    let mut program = Program {
        bytes: Bytes::new(input),
        cpu: Cpu::poisoned(),
        tensors: Vec::new(),
        indices: Vec::new(),
    };
    for _ in 0..LONGEST {
        if program.bytes.is_empty() {
            break;
        }
        let made = program.step();
        let fits = |t: &T| t.size() <= LARGEST;
        program
            .tensors
            .extend(made.unwrap_or_default().into_iter().filter(fits));
    }
    for tensor in program.tensors.iter().rev().take(3) {
        let _ = tensor.sum(&[], false).and_then(|sum| sum.backward());
        let _ = tensor.to_f64();
    }
}

/// The number of step kinds, beside those of ops, that make a new tensor; several, so that programs have several tensors.
const MAKE: usize = 3;

impl Program<'_> {
    fn dims(&mut self) -> Vec<usize> {
        let rank = self.bytes.below(6);
        (0..rank).map(|_| self.bytes.below(5)).collect()
    }

    /// One of the program's tensors, or a new one.
    fn tensor(&mut self) -> Result<T, Error> {
        let n = self.tensors.len();
        match self.bytes.below(n + 1) {
            i if i < n => Ok(self.tensors[n - 1 - i].clone()),
            _ => self.made(),
        }
    }

    fn made(&mut self) -> Result<T, Error> {
        let dims = self.dims();
        let dtype = self
            .bytes
            .one_of(&[DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32]);
        let (value, tracked) = (self.bytes.number(), self.bytes.below(2) == 0);
        let size = Shape::new(&dims)?.size();
        let values: Vec<f64> = (0..size).map(|i| value + i as f64 * 0.25).collect();
        let tensor = T::from_f64(&self.cpu, &values, &dims, dtype)?;
        Ok(if tracked { tensor.requires_grad() } else { tensor })
    }

    fn index(&mut self) -> Result<Indices<Cpu>, Error> {
        let n = self.indices.len();
        if let i @ 1.. = self.bytes.below(n + 2).min(n) {
            return Ok(self.indices[i - 1].clone());
        }
        let dims = self.dims();
        let size = Shape::new(&dims)?.size();
        let values: Vec<i32> = (0..size).map(|_| i32::from(self.bytes.byte()) % 7 - 1).collect();
        let index = Indices::from_slice(&self.cpu, &values, &dims)?;
        self.indices.push(index.clone());
        Ok(index)
    }

    fn axes(&mut self) -> Vec<isize> {
        let n = self.bytes.below(4);
        (0..n).map(|_| self.bytes.signed()).collect()
    }

    fn window(&mut self) -> Window {
        let mut three = || [(); 3].map(|()| self.bytes.size());
        let (kernel, stride, padding, dilation) = (three(), three(), three(), three());
        let window = match self.bytes.below(4) {
            0 => Window::new([kernel[0]]).stride([stride[0]]).padding([padding[0] % 8]),
            1 => Window::new([kernel[0], kernel[1]]).dilation([dilation[0], 1]),
            2 => Window::new(kernel)
                .stride(stride)
                .padding(padding.map(|p| p % 8))
                .dilation(dilation),
            _ => Window {
                rank: self.bytes.below(5),
                kernel,
                stride,
                padding: Padding::Explicit(padding.map(|p| p % 8)),
                dilation,
            },
        };
        if self.bytes.below(4) == 0 {
            window.same()
        } else {
            window
        }
    }

    fn reduction(&mut self) -> Reduction {
        self.bytes.one_of(&[Reduction::None, Reduction::Mean, Reduction::Sum])
    }

    fn activation(&mut self) -> Activation {
        self.bytes.one_of(Activation::ALL)
    }

    fn step(&mut self) -> Results {
        match self.bytes.below(MAKE + 7) {
            0..MAKE => Ok(vec![self.made()?]),
            3 => self.elementwise(),
            4 => self.reduced(),
            5 => self.moved(),
            6 => self.indexed(),
            7 => self.windowed(),
            8 => self.product(),
            _ => self.loss(),
        }
    }

    fn elementwise(&mut self) -> Results {
        let (x, a, b) = (self.tensor()?, self.bytes.number(), self.bytes.number());
        let one = |t: Result<T, Error>| t.map(|t| vec![t]);
        match self.bytes.below(18) {
            0 => one(x.exp()),
            1 => one(x.log()),
            2 => one(x.sqrt()),
            3 => one(x.powf(a)),
            4 => one(x.gelu()),
            5 => one(x.clamp(a, b)),
            6 => one(x.affine(a, b)),
            7 => one(x.softplus(a, b)),
            8 => one(x.add(&self.tensor()?)),
            9 => one(x.sub(&self.tensor()?)),
            10 => one(x.mul(&self.tensor()?)),
            11 => one(x.div(&self.tensor()?)),
            12 => one(x.pow(&self.tensor()?)),
            13 => one(x.maximum(&self.tensor()?)),
            14 => one(T::where_(&self.index()?, &x, &self.tensor()?)),
            15 => one(x.masked_fill(&self.index()?, a)),
            16 => one(x.to_dtype(self.bytes.one_of(&DType::ALL))),
            _ => one(x.relu()),
        }
    }

    fn reduced(&mut self) -> Results {
        let (x, axes, keep) = (self.tensor()?, self.axes(), self.bytes.below(2) == 0);
        let axis = self.bytes.signed();
        Ok(vec![match self.bytes.below(12) {
            0 => x.sum(&axes, keep)?,
            1 => x.mean(&axes, keep)?,
            2 => x.max(&axes, keep)?,
            3 => x.min(&axes, keep)?,
            4 => x.var(&axes, self.bytes.size(), keep)?,
            5 => x.std(&axes, self.bytes.size(), keep)?,
            6 => x.norm(self.bytes.number(), &axes, keep)?,
            7 => x.logsumexp(&axes, keep)?,
            8 => x.cumsum(axis)?,
            9 => x.softmax(axis)?,
            10 => {
                self.indices.push(x.argmax(axis, keep)?);
                x.log_softmax(axis)?
            }
            _ => {
                let (values, places) = x.top_k(self.bytes.size(), axis, keep)?;
                self.indices.push(places);
                values
            }
        }])
    }

    fn moved(&mut self) -> Results {
        let (x, axis) = (self.tensor()?, self.bytes.signed());
        let one = |t: Result<T, Error>| t.map(|t| vec![t]);
        match self.bytes.below(15) {
            0 => one(x.transpose(axis, self.bytes.signed())),
            1 => one(x.permute(&self.axes())),
            2 => one(x.flip(&self.axes())),
            3 => one(x.reshape(&self.axes())),
            4 => one(x.squeeze(axis)),
            5 => one(x.unsqueeze(axis)),
            6 => one(x.flatten(axis, self.bytes.signed())),
            7 => one(x.narrow(axis, self.bytes.size(), self.bytes.size())),
            8 => {
                let (start, end, step) = (self.bytes.signed(), self.bytes.signed(), self.bytes.signed());
                one(x.slice(axis, Some(start), Some(end), step))
            }
            9 => x.split(self.bytes.size(), axis),
            10 => x.chunk(self.bytes.size() % 4096, axis),
            11 => one(T::concat(&[&x, &self.tensor()?], axis)),
            12 => {
                let dims = self.dims();
                one(x.broadcast_to(&dims))
            }
            13 => {
                let pads: Vec<_> = (0..x.rank())
                    .map(|_| (self.bytes.below(5) as isize - 1, self.bytes.below(4) as isize))
                    .collect();
                let mode = [Pad::Constant(0.0), Pad::Reflect, Pad::Replicate][self.bytes.below(3)];
                one(x.pad(&pads, mode))
            }
            _ => x.unbind(axis),
        }
    }

    fn indexed(&mut self) -> Results {
        let (x, axis, index) = (self.tensor()?, self.bytes.signed(), self.index()?);
        Ok(vec![match self.bytes.below(6) {
            0 => x.gather(axis, &index)?,
            1 => x.scatter_add(axis, &index, &self.tensor()?)?,
            2 => x.index_select(axis, &index)?,
            3 => x.index_add(axis, &index, &self.tensor()?)?,
            4 => x.embedding(&index, (self.bytes.below(2) == 0).then(|| self.bytes.size()))?,
            _ => index.one_hot(self.bytes.below(9), DType::F32)?,
        }])
    }

    fn windowed(&mut self) -> Results {
        let (x, window, ceil) = (self.tensor()?, self.window(), self.bytes.below(2) == 0);
        Ok(vec![match self.bytes.below(6) {
            0 => x.max_pool(&window, ceil)?,
            1 => x.avg_pool(&window, ceil, self.bytes.below(2) == 0)?,
            2 => {
                let n = self.bytes.below(4);
                let sizes: Vec<_> = (0..n).map(|_| self.bytes.below(6)).collect();
                x.adaptive_avg_pool(&sizes)?
            }
            3 => x.global_avg_pool()?,
            4 => {
                let w = self.tensor()?;
                let (groups, f) = (self.bytes.size(), self.activation());
                x.conv(&w, None, &window, groups, f)?
            }
            _ => {
                let w = self.tensor()?;
                let pad = [(); 3].map(|()| self.bytes.below(3));
                // The output of a transposed convolution grows with both.
                let window = Window {
                    stride: window.stride.map(|s| s % 8),
                    dilation: window.dilation.map(|d| d % 8),
                    ..window
                };
                x.conv_transpose(&w, None, &window, pad, self.bytes.size(), Activation::None)?
            }
        }])
    }

    fn product(&mut self) -> Results {
        let (x, w) = (self.tensor()?, self.tensor()?);
        Ok(vec![match self.bytes.below(6) {
            0 => x.matmul(&w)?,
            1 => x.matmul_t(&w, self.bytes.below(2) == 0, self.bytes.below(2) == 0)?,
            2 => x.linear(&w, None, self.activation())?,
            3 => {
                let bias = self.tensor()?;
                x.linear(&w, Some(&bias), self.activation())?
            }
            4 => x.self_attention(self.bytes.size(), self.bytes.below(2) == 0)?,
            _ => x.rms_norm(&self.dims(), None, self.bytes.number())?,
        }])
    }

    fn loss(&mut self) -> Results {
        let (x, y, reduction) = (self.tensor()?, self.tensor()?, self.reduction());
        Ok(vec![match self.bytes.below(6) {
            0 => x.cross_entropy(&self.index()?)?,
            1 => {
                let options = CrossEntropyOptions {
                    label_smoothing: self.bytes.number(),
                    reduction,
                    ..Default::default()
                };
                x.cross_entropy_with(&self.index()?, &options)?
            }
            2 => x.mse_loss(&y, reduction)?,
            3 => x.huber_loss(&y, self.bytes.number(), reduction)?,
            4 => x.bce_loss(&y, reduction)?,
            _ => x.kl_div(&y, self.bytes.below(2) == 0, reduction)?,
        }])
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    // A seed for each kind of op with tensors of three ranks; other programs come from changes.
    (0..10u8)
        .flat_map(|kind| {
            [3u8, 4, 5].map(|rank| {
                let mut seed = vec![0, rank, 2, 3, 4, 2, 3, 0, 2, 0];
                seed.extend([0, rank, 2, 3, 4, 2, 3, 0, 3, 0]);
                seed.extend(
                    [kind; 3]
                        .iter()
                        .flat_map(|k| [*k, 0, 1, rank, 2, 1, 1, 3, 1, 2, 1, 1, 0, 1, 1, 2, 3]),
                );
                seed
            })
        })
        .collect()
}
