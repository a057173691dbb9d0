//! The program's standard output, as C has it.

use libc::FILE;

unsafe extern "C" {
    static stdout: *mut FILE;
}

/// Writes to the stream of the program's own `printf`, so that the output of both is in order.
pub(crate) fn write(bytes: &[u8]) {
    // SAFETY: C's stdout is open from the program's start to its end, and takes calls from any thread.
    unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stdout) };
}
