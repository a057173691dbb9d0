//! Restrictions on threads while a stream is captured.

/// The calls that are forbidden to threads while a stream is captured. A forbidden call invalidates the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum CaptureMode {
    /// No thread may make a call that could invalidate a capture, such as a driver allocation.
    Global = 0,
    /// The thread that captures may not make such calls; others may. The capture ends on the thread that began it.
    #[default]
    ThreadLocal = 1,
    /// All calls are allowed that do not touch the captured streams, and any thread may end the capture.
    Relaxed = 2,
}
