//! Unpacking one LZ4 block, as nvcc's fat binaries hold them.
//!
//! The format: <https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>.

/// Unpacks a block of LZ4; `None` unless it gives `whole` bytes.
pub(crate) fn unpack(mut packed: &[u8], whole: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(token) = take(&mut packed, 1) {
        let literals = length(token[0] >> 4, &mut packed)?;
        out.extend_from_slice(take(&mut packed, literals)?);
        // The last sequence has literals alone.
        if packed.is_empty() {
            break;
        }
        let back = usize::from(u16::from_le_bytes(*take(&mut packed, 2)?.first_chunk()?));
        let matched = length(token[0] & 15, &mut packed)? + 4;
        if back == 0 || back > out.len() || out.len() + matched > whole {
            return None;
        }
        // A match may overlap the bytes that it writes.
        for _ in 0..matched {
            out.push(out[out.len() - back]);
        }
    }
    (out.len() == whole).then_some(out)
}

fn take<'a>(packed: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = packed.split_at_checked(count)?;
    *packed = rest;
    Some(taken)
}

/// A length that is continued in further bytes when it is 15, up to the first byte that is not 255.
fn length(first: u8, packed: &mut &[u8]) -> Option<usize> {
    let mut length = usize::from(first);
    let mut more = first == 15;
    while more {
        let byte = take(packed, 1)?[0];
        length += usize::from(byte);
        more = byte == 255;
    }
    Some(length)
}
