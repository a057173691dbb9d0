//! The switch, one per thread, that turns the recording of gradients on and off.

use std::cell::Cell;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Puts the mode back when dropped, also when a panic passes through.
struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        ENABLED.set(self.0);
    }
}

/// True if ops on this thread record gradients (`torch.is_grad_enabled`); the default.
///
/// ```
/// # use kiln_nn::{is_grad_enabled, no_grad};
/// assert!(is_grad_enabled());
/// assert!(!no_grad(is_grad_enabled));
/// ```
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// Runs `f` with recording on or off on this thread (`torch.set_grad_enabled`).
///
/// ```
/// # use kiln_nn::{DType, Tensor};
/// # use kiln_nn::autograd::with_grad;
/// # let cpu = kiln_cpu::Cpu::new();
/// let w = Tensor::ones(&cpu, &[2], DType::F32)?.requires_grad();
/// for training in [true, false] {
///     assert_eq!(with_grad(training, || w.exp())?.is_tracked(), training);
/// }
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub fn with_grad<R>(enabled: bool, f: impl FnOnce() -> R) -> R {
    let _restore = Restore(ENABLED.replace(enabled));
    f()
}

/// Runs `f` without recording on this thread: for evaluation and in-place updates (`torch.no_grad`).
///
/// ```
/// # use kiln_nn::{DType, Tensor, no_grad};
/// # let cpu = kiln_cpu::Cpu::new();
/// let w = Tensor::ones(&cpu, &[2], DType::F32)?.requires_grad();
/// assert!(w.exp()?.is_tracked() && !no_grad(|| w.exp())?.is_tracked());
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    with_grad(false, f)
}
