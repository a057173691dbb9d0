//! Groups of parameters with options of their own.

use std::fmt;

/// Options of the parameters that a predicate selects by dotted name.
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// use kiln_nn::optim::{AdamW, Group, Optimizer};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// # let grads = model.forward(&Tensor::ones(&cpu, &[2, 3], DType::F32)?)?.sum(&[], false)?.backward()?;
/// let frozen = Group::new(|name| name.ends_with("weight")).lr_factor(0.0).weight_decay(0.0);
/// let mut adamw = AdamW::new(1e-2).group(frozen);
/// let before = model.weight.to_vec::<f32>()?;
/// adamw.step(&mut model, &grads)?;
/// assert_eq!(model.weight.to_vec::<f32>()?, before);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct Group {
    pub(super) select: Box<dyn Fn(&str) -> bool + Send>,
    pub(super) lr_factor: f64,
    pub(super) weight_decay: Option<f64>,
}

impl Group {
    /// The parameters whose dotted names `select` accepts, with the optimizer's own options.
    ///
    /// See the example of [`Group`].
    pub fn new(select: impl Fn(&str) -> bool + Send + 'static) -> Self {
        Group {
            select: Box::new(select),
            lr_factor: 1.0,
            weight_decay: None,
        }
    }

    /// Multiplies the learning rate: the group follows the optimizer's rate and its schedule at this ratio.
    ///
    /// See the example of [`Group`].
    pub fn lr_factor(mut self, factor: f64) -> Self {
        self.lr_factor = factor;
        self
    }

    /// Sets the weight decay.
    ///
    /// See the example of [`Group`].
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = Some(weight_decay);
        self
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("lr_factor", &self.lr_factor)
            .field("weight_decay", &self.weight_decay)
            .finish_non_exhaustive()
    }
}
