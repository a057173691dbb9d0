//! The entry of every exported function.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Code, Outcome};
use crate::state;

/// Exports functions of the driver API: C names and signatures, bodies that end with `?` or an [`Outcome`].
macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the CUDA driver API.")]
        ///
        /// # Safety
        /// Every pointer is null or valid for the reads and writes that the API documents for the call.
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::Code {
            $crate::boundary::enter(stringify!($name), || $body)
        }
    )*};
}

/// Runs the body of a call. A panic is a bug of the emulator, and must not unwind into C.
pub(crate) fn enter(name: &str, body: impl FnOnce() -> Outcome) -> Code {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            state::say(format_args!(
                "{name} panicked, which is a bug of the emulator's: {text}"
            ));
            Code::UNKNOWN
        }
    }
}
