//! Allocation of lists on the host whose length comes from an argument: running out of memory is an error, not an abort.

use crate::{Error, Result};

/// Creates an empty list with capacity for `len` elements.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn room<T>(len: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).map_err(|_| Error::OutOfMemory {
        device: "host".into(),
        requested: len.saturating_mul(size_of::<T>()),
        free: None,
    })?;
    Ok(list)
}

/// Creates a list of `len` clones of `value`.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn repeat<T: Clone>(value: T, len: usize) -> Result<Vec<T>> {
    let mut list = room(len)?;
    list.resize(len, value);
    Ok(list)
}

/// Collects an iterator of known length.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn collect<T>(values: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut list = room(values.len())?;
    list.extend(values);
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(repeat(7, 3).unwrap(), [7; 3]);
        assert_eq!(collect([1, 2].iter()).unwrap(), [&1, &2]);
        for len in [usize::MAX, usize::MAX / 8, isize::MAX as usize / 8 + 1] {
            let refused = [
                room::<u64>(len).err(),
                repeat(0u64, len).err(),
                collect((0..len).map(|i| i as u64)).err(),
            ];
            assert!(
                refused.iter().all(|e| matches!(e, Some(Error::OutOfMemory { .. }))),
                "{refused:?}"
            );
        }
    }
}
