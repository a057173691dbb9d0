//! The temporary names under which files are written before they are renamed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The end of the names of temporary files, which begin with a dot.
const TEMPORARY: &str = ".kiln-tmp";

/// The largest length of a file name in bytes on common file systems.
const LONGEST: usize = 255;

/// The temporary name of the file `name`. It depends on `name` alone, so the next writer of the file overwrites what a
/// killed process left.
pub(crate) fn temporary(name: &OsStr) -> OsString {
    let mut bytes = [b".", name.as_bytes(), TEMPORARY.as_bytes()].concat();
    if bytes.len() > LONGEST {
        // Two long names with the same start share a temporary name; their writers only wait for each other.
        bytes = [
            b".",
            &name.as_bytes()[..LONGEST - 1 - TEMPORARY.len()],
            TEMPORARY.as_bytes(),
        ]
        .concat();
    }
    OsString::from_vec(bytes)
}

/// True if `name` has the form that [`temporary`] gives.
pub(crate) fn is_temporary(name: &OsStr) -> bool {
    let inner = name.as_bytes().strip_prefix(b".");
    inner
        .and_then(|n| n.strip_suffix(TEMPORARY.as_bytes()))
        .is_some_and(|n| !n.is_empty())
}
