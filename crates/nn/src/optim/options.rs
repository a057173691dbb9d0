//! Declaration of an optimizer that has no fused op: its options and their setters.

/// Declares an optimizer and its rule, with a setter for each option. `@betas` are the decays of two moments.
macro_rules! optimizer {
    (
        $(#[$about:meta])*
        $optimizer:ident, $rule:ident {
            $(@betas($first:expr, $second:expr);)?
            $($(#[$option_about:meta])* $option:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[$about])*
        ///
        /// ```
        #[doc = concat!("use kiln_nn::optim::{", stringify!($optimizer), ", Optimizer};")]
        /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Linear};
        /// # let cpu = kiln_cpu::Cpu::new();
        /// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
        /// # let mut model = Linear::builder(3, 1).bias(false).build(&mut Init::new(&cpu, 0))?;
        #[doc = concat!("let mut optimizer = ", stringify!($optimizer), "::new(1e-2);")]
        /// let loss = model.forward(&x)?.square()?.mean(&[], false)?;
        /// optimizer.step(&mut model, &loss.backward()?)?;
        /// assert!(model.forward(&x)?.square()?.mean(&[], false)?.item()? < loss.item()?);
        /// # Ok::<(), kiln_nn::Error>(())
        /// ```
        pub type $optimizer<B> = crate::optim::Optim<B, $rule>;

        #[doc = concat!("The options of [`", stringify!($optimizer), "`].")]
        ///
        #[doc = concat!("See the example of [`", stringify!($optimizer), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $rule {
            $(betas: crate::optim::options::moments!(f64, $first),)?
            $($option: $type,)*
        }

        impl<B: crate::Backend> crate::optim::Optim<B, $rule> {
            /// The defaults of `torch.optim` with this learning rate.
            ///
            #[doc = concat!("See the example of [`", stringify!($optimizer), "`].")]
            pub fn new(lr: f64) -> Self {
                crate::optim::Optim::with(
                    $rule {
                        $(betas: ($first, $second),)?
                        $($option: $default,)*
                    },
                    lr,
                )
            }

            $(
                #[doc = concat!("Sets the decay of the first and of the second moment, by default ", stringify!($first), " and ", stringify!($second), ".")]
                ///
                #[doc = concat!("See the example of [`", stringify!($optimizer), "`].")]
                pub fn betas(mut self, first: f64, second: f64) -> Self {
                    self.algorithm.betas = (first, second);
                    self
                }
            )?
            $(
                $(#[$option_about])*
                ///
                #[doc = concat!("See the example of [`", stringify!($optimizer), "`].")]
                pub fn $option(mut self, $option: $type) -> Self {
                    self.algorithm.$option = $option;
                    self
                }
            )*
        }
    };
}
/// A pair of decays; the second argument says that there are any.
macro_rules! moments {
    ($type:ty, $first:expr) => {
        ($type, $type)
    };
}
pub(super) use {moments, optimizer};
