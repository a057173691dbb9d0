//! Automatic mixed precision: the switch, one per thread, under which ops choose the precision they compute in.
//!
//! The lists of ops are those of `torch.autocast` on CUDA. An op that has a precision of its own begins with a [`Cast`], through
//! which it takes its operands; while the cast lives, the ops that the op is made of leave precisions as they are. Gradients are
//! computed with the precisions of the forward pass, so the backward pass runs with the switch off.

use super::mode::is_grad_enabled;
use crate::tensor::NodeId;
use crate::{Backend, DType, Error, Result, Tensor};
use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

thread_local! {
    static COMPUTE: Cell<Option<DType>> = const { Cell::new(None) };
    /// The parameters that were cast inside of the outermost `autocast`, by the id of their leaf: a weight that is used
    /// several times is cast once.
    static CASTS: RefCell<HashMap<NodeId, Box<dyn Any>>> = RefCell::new(HashMap::new());
}

/// Puts the switch back when a closure or an op ends, also if it panics.
struct Restore(Option<DType>);

impl Restore {
    fn to(dtype: Option<DType>) -> Self {
        Restore(COMPUTE.replace(dtype))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        COMPUTE.set(self.0);
    }
}

/// Empties the cache of casts when the outermost `autocast` ends.
struct Outermost;

impl Drop for Outermost {
    fn drop(&mut self) {
        CASTS.with(|casts| casts.borrow_mut().clear());
    }
}

/// Runs `f` in mixed precision (`torch.autocast`): matrix products, convolutions, attention and PReLU cast operands of f32 to `dtype`
/// and return it; norms over features, softmax, losses, sums, powers, exponentials and logarithms cast operands of bf16 and f16 to f32;
/// ops of several operands cast them to the widest dtype among them; all others compute in the dtype of their operand. Batch norm computes
/// in the dtype of its input, with statistics, scale and shift in f32. Tensors of f64 stay as they are.
///
/// Parameters stay in f32, and so do their gradients. Call [`Tensor::backward`] and the optimizer outside of `f`. `dtype` is bf16,
/// f16, or f32, which turns mixed precision off inside of `f`.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Tensor, autocast};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// let linear = Linear::new(&mut Init::new(&cpu, 0), 3, 2)?;
/// let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
/// let (y, loss) = autocast(DType::BF16, || {
///     let y = linear.forward(&x)?;
///     Ok((y.clone(), y.square()?.sum(&[], false)?))
/// })?;
/// assert_eq!([y.dtype(), loss.dtype()], [DType::BF16, DType::F32]);
/// let grads = loss.backward()?;
/// assert_eq!(grads.get(&linear.weight).unwrap().dtype(), DType::F32);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Another dtype; the errors of `f`.
pub fn autocast<R>(dtype: DType, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let compute = match dtype {
        DType::BF16 | DType::F16 => Some(dtype),
        DType::F32 => None,
        _ => return Err(Error::invalid("autocast", "dtype", dtype, "bf16, f16 or f32")),
    };
    let outermost = COMPUTE.get().is_none().then_some(Outermost);
    let result = with_compute(compute, f);
    drop(outermost);
    result
}

/// The dtype that matrix products compute in inside of [`autocast`]; `None` outside.
pub fn autocast_dtype() -> Option<DType> {
    COMPUTE.get()
}

/// Runs `f` with the switch as it was at another time.
pub(crate) fn with_compute<R>(dtype: Option<DType>, f: impl FnOnce() -> R) -> R {
    let _restore = Restore::to(dtype);
    f()
}

/// Drops the cached cast of a tensor that is about to change.
pub(crate) fn forget_cast(id: NodeId) {
    CASTS.with(|casts| casts.borrow_mut().remove(&id));
}

/// The precision of one op inside of [`autocast`], which is off while this lives. An op begins with
///
/// ```text
/// if let Some(cast) = Cast::low() {
///     return cast.of(self)?.op(&*cast.of(other)?);
/// }
/// ```
pub(crate) struct Cast {
    to: DType,
    _restore: Restore,
}

impl Cast {
    /// For an op that computes in `to`, unless that is a dtype that mixed precision leaves alone; `None` outside of [`autocast`].
    fn new(to: DType) -> Option<Self> {
        (COMPUTE.get().is_some() && casts(to)).then(|| Cast {
            to,
            _restore: Restore::to(None),
        })
    }

    /// For an op that computes in the half of [`autocast`].
    pub(crate) fn low() -> Option<Self> {
        Cast::new(COMPUTE.get()?)
    }

    /// For an op that computes in f32.
    pub(crate) fn high() -> Option<Self> {
        Cast::new(DType::F32)
    }

    /// For an op that computes in the precision of one of its operands.
    pub(crate) fn like<B: Backend>(x: &Tensor<B>) -> Option<Self> {
        Cast::new(x.dtype())
    }

    /// For an op that computes in the precision of its operands where they agree, else in f32; `None` also where they agree.
    pub(crate) fn widest<B: Backend>(operands: &[&Tensor<B>]) -> Option<Self> {
        let agree = operands.windows(2).all(|pair| pair[0].dtype() == pair[1].dtype());
        if agree { None } else { Cast::high() }
    }

    /// The operand in the precision of the op.
    pub(crate) fn of<'a, B: Backend>(&self, x: &'a Tensor<B>) -> Result<Cow<'a, Tensor<B>>> {
        match casts(x.dtype()) && x.dtype() != self.to {
            true => cast(x, self.to).map(Cow::Owned),
            false => Ok(Cow::Borrowed(x)),
        }
    }

    /// The operand, if there is one, in the precision of the op.
    pub(crate) fn option<'a, B: Backend>(&self, x: Option<&'a Tensor<B>>) -> Result<Option<Cow<'a, Tensor<B>>>> {
        x.map(|x| self.of(x)).transpose()
    }
}

/// True for the dtypes that mixed precision casts.
fn casts(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::BF16 | DType::F16)
}

/// The tensor in `dtype`; of a parameter that was cast before, the same tensor, and where its values in `dtype` lie beside it, those.
fn cast<B: Backend>(x: &Tensor<B>, dtype: DType) -> Result<Tensor<B>> {
    let made = || match dtype {
        DType::F32 => x.to_dtype(dtype),
        half => x.to_half(half),
    };
    let Some(id) = x.node().filter(|node| node.is_leaf()).map(|node| node.id()) else {
        return made();
    };
    let known = CASTS.with(|casts| casts.borrow().get(&id)?.downcast_ref::<Tensor<B>>().cloned());
    // One that was made without gradients does not lead back to the parameter.
    if let Some(known) = known.filter(|known| known.dtype() == dtype && (known.is_tracked() || !is_grad_enabled())) {
        return Ok(known);
    }
    let cast = made()?;
    CASTS.with(|casts| casts.borrow_mut().insert(id, Box::new(cast.clone())));
    Ok(cast)
}
