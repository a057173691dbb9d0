//! Lists on the host whose length is an argument of somebody's: what does not fit is an error, not the end of the program.

use crate::{Error, Result};

/// An empty list with room for `len` elements.
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

/// `len` times the same value.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn repeat<T: Clone>(value: T, len: usize) -> Result<Vec<T>> {
    let mut list = room(len)?;
    list.resize(len, value);
    Ok(list)
}

/// Everything that an iterator of known length gives.
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
