//! Bytes as printable characters, as GPT-2's tokens have them: printable bytes are themselves, and the others the characters from
//! U+0100 on.

use std::sync::LazyLock;

struct Table {
    chars: [char; 256],
    /// The byte of a character below U+0144.
    bytes: [Option<u8>; 0x144],
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let (mut chars, mut bytes, mut next) = (['\0'; 256], [None; 0x144], 0x100u32);
    for byte in 0..=255u8 {
        let c = match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            _ => {
                next += 1;
                char::from_u32(next - 1).unwrap_or_default()
            }
        };
        chars[byte as usize] = c;
        bytes[c as usize] = Some(byte);
    }
    Table { chars, bytes }
});

/// The character of a byte.
pub(crate) fn char_of(byte: u8) -> char {
    TABLE.chars[byte as usize]
}

/// The byte of a character; none for one that stands for none.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    TABLE.bytes.get(c as usize).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_character() {
        for byte in 0..=255 {
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
        assert_eq!([char_of(b' '), char_of(b'\n'), char_of(b'a')], ['Ġ', 'Ċ', 'a']);
        assert_eq!(
            (byte_of('\u{143}'), byte_of(' '), byte_of('中')),
            (Some(0xad), None, None)
        );
    }
}
