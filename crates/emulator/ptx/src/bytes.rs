//! Little-endian integers at a byte offset; `None` where the data ends before them.

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_little_endian_and_never_beyond_the_end() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(u16_at(&bytes, 7), Some(0x0908));
        assert_eq!(u32_at(&bytes, 5), Some(0x0908_0706));
        assert_eq!(u64_at(&bytes, 1), Some(0x0908_0706_0504_0302));
        assert_eq!(
            (u16_at(&bytes, 8), u32_at(&bytes, 6), u64_at(&bytes, 2)),
            (None, None, None)
        );
        assert_eq!(u16_at(&bytes, usize::MAX), None);
    }
}
