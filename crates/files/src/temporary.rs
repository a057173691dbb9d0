//! The names under which files are written before they take their own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// How the names of temporary files end. They begin with a dot.
const TEMPORARY: &str = ".kiln-tmp";

/// The most bytes that a name may have on the file systems in use.
const LONGEST: usize = 255;

/// Where the bytes of the file `name` are written before they take its name. It depends on the name alone, so what a
/// killed process left is overwritten by the next that writes the file.
pub(crate) fn temporary(name: &OsStr) -> OsString {
    let mut bytes = [b".", name.as_bytes(), TEMPORARY.as_bytes()].concat();
    if bytes.len() > LONGEST {
        // Two long names that begin alike wait for each other, no more.
        bytes = [
            b".",
            &name.as_bytes()[..LONGEST - 1 - TEMPORARY.len()],
            TEMPORARY.as_bytes(),
        ]
        .concat();
    }
    OsString::from_vec(bytes)
}

/// True if `name` is one that [`temporary`] gives.
pub(crate) fn is_temporary(name: &OsStr) -> bool {
    let inner = name.as_bytes().strip_prefix(b".");
    inner
        .and_then(|n| n.strip_suffix(TEMPORARY.as_bytes()))
        .is_some_and(|n| !n.is_empty())
}
