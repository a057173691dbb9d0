//! Rotary positions.

use super::reduce::acc_dtype;
use crate::{Backend, DType, Error, Result, Tensor};

const OP: &str = "rotary_embedding";

/// The options of [`Tensor::rotary_embedding`]. By default all elements turn, in pairs half a vector apart, with a base of 10000.
///
/// ```
/// # use kiln_nn::{DType, Rotary, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::ones(&cpu, &[1, 3, 8], DType::F32)?;
/// // Of GPT-NeoX: a quarter of the elements turns. The position is 5, as behind a cache of five others.
/// let options = Rotary { dims: Some(2), offset: 5, ..Rotary::default() };
/// assert_eq!(x.rotary_embedding(&options)?.narrow(2, 2, 6)?.to_f64()?, [1.0; 18]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// The number of elements at the start of a vector that turn, even; all of them if it is `None` (`partial_rotary_factor` and
    /// `rotary_dim` of Hugging Face's transformers).
    pub dims: Option<usize>,
    /// The base of the wavelengths (`rope_theta`).
    pub base: f64,
    /// True for pairs of neighbours, as the paper and GPT-J have them; false for pairs half of `dims` apart, as LLaMA and GPT-NeoX
    /// in Hugging Face's transformers have them (`rotate_half`).
    pub interleaved: bool,
    /// The position of the first vector: the number of those in a cache.
    pub offset: usize,
    /// The axis of the positions, not the last one.
    pub axis: isize,
}

impl Default for Rotary {
    fn default() -> Self {
        Rotary {
            dims: None,
            base: 10_000.0,
            interleaved: false,
            offset: 0,
            axis: -2,
        }
    }
}

/// The numbers from `first`, computed on the device, so that a captured step uploads nothing.
fn counted<B: Backend>(backend: &B, count: usize, first: f64, dtype: DType) -> Result<Tensor<B>> {
    Tensor::ones(backend, &[count], dtype)?
        .cumsum(0)?
        .add_scalar(first - 1.0)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Turns pairs of elements of the vectors `[…, T, D]` by angles that grow with the position, so that the product of two turned
    /// vectors depends on the distance of their positions (Su et al., "RoFormer", 2021; `apply_rotary_pos_emb` of Hugging Face's
    /// transformers). Pair `i` of `dims / 2` turns by `position · base^(−2i/dims)`. The angles are computed in f64 where the backend has
    /// it, the turn in f32 or wider.
    ///
    /// ```
    /// use kiln_nn::{DType, Rng, Rotary, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let [q, k] = [1, 2].map(|seed| Tensor::randn(&cpu, &[1, 8], DType::F64, &mut Rng::new(seed)));
    /// let (q, k) = (q?, k?);
    /// let at = |x: &Tensor<_>, offset| x.rotary_embedding(&Rotary { offset, ..Rotary::default() });
    /// let product = |i, j| at(&q, i)?.mul(&at(&k, j)?)?.sum(&[], false)?.item();
    /// assert!((product(7, 4)? - product(103, 100)?).abs() < 1e-12); // three positions apart
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis that is the last one or none, a number of dimensions that is odd, 0 or larger than the vectors, a base that is no finite
    /// number above 0, memory.
    pub fn rotary_embedding(&self, options: &Rotary) -> Result<Tensor<B>> {
        let axis = self.shape().axis(OP, options.axis)?;
        let last = self.rank() - 1;
        if axis == last {
            return Err(Error::invalid(OP, "axis", options.axis, "an axis before the last one"));
        }
        let (positions, width) = (self.shape()[axis], self.shape()[last]);
        let dims = options.dims.unwrap_or(width);
        if dims == 0 || dims % 2 == 1 || dims > width {
            return Err(Error::invalid(
                OP,
                "dims",
                dims,
                format!("an even number from 2 to {width}"),
            ));
        }
        if !(options.base > 0.0 && options.base.is_finite()) {
            return Err(Error::invalid(OP, "base", options.base, "a finite number above 0"));
        }
        let (half, wide) = (dims / 2, acc_dtype(self.dtype()));
        let [cos, sin] = angles(self.backend(), positions, half, options)?;
        let mut table = vec![1; self.rank()];
        (table[axis], table[last]) = (positions, half);
        let of = |t: Tensor<B>| t.to_dtype(wide)?.reshape(&table);
        let (cos, sin) = (of(cos)?, of(sin)?);

        let x = self.to_dtype(wide)?;
        let turned = x.narrow(-1, 0, dims)?;
        let pairs = turned.unflatten(-1, if options.interleaved { (half, 2) } else { (2, half) })?;
        let pair = if options.interleaved { -1 } else { -2 };
        let part = |i| pairs.narrow(pair, i, 1)?.squeeze(pair);
        let (a, b) = (part(0)?, part(1)?);
        let first = a.mul(&cos)?.sub(&b.mul(&sin)?)?;
        let second = b.mul(&cos)?.add(&a.mul(&sin)?)?;
        let mut y = Tensor::stack(&[&first, &second], pair)?.flatten(-2, -1)?;
        if dims < width {
            y = Tensor::concat(&[&y, &x.narrow(-1, dims, width - dims)?], -1)?;
        }
        y.to_dtype(self.dtype())
    }
}

/// The cosines and sines of the angles, `[positions, half]`.
fn angles<B: Backend>(backend: &B, positions: usize, half: usize, options: &Rotary) -> Result<[Tensor<B>; 2]> {
    let dtype = match backend.supports_dtype(DType::F64) {
        true => DType::F64,
        false => DType::F32,
    };
    let exponent = -options.base.ln() / half as f64;
    let rates = counted(backend, half, 0.0, dtype)?.mul_scalar(exponent)?.exp()?;
    let at = counted(backend, positions, options.offset as f64, dtype)?.unsqueeze(1)?;
    let angles = at.mul(&rates)?;
    Ok([angles.cos()?, angles.sin()?])
}
