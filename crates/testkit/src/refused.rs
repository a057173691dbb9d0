//! The assertion that bad input is refused with a typed error.

/// Asserts that a call fails with an error of the given pattern.
///
/// # Panics
/// When the call succeeds, or fails with another error.
#[macro_export]
macro_rules! refused {
    ($call:expr, $error:pat) => {
        match $call {
            Err($error) => {}
            other => panic!(
                "{} gave {:?}, expected {}",
                stringify!($call),
                other,
                stringify!($error)
            ),
        }
    };
}
