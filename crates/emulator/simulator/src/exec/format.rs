//! `printf`'s formats: the arguments of each conversion, and the resulting text.

use std::ffi::{CString, c_int};

/// The bytes of the arguments that a conversion such as `%d` consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Four bytes.
    Int,
    /// Eight bytes.
    Long,
    /// Eight bytes, a floating-point number.
    Double,
    /// Eight bytes, the address of a string.
    Text,
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Bits(u64),
    Text(Vec<u8>),
}

/// The text of a format and the number of its arguments; `next` gives the arguments in turn, and `None` ends everything.
pub(super) fn format(format: &[u8], mut next: impl FnMut(Take) -> Option<Value>) -> Option<(Vec<u8>, u32)> {
    let (mut out, mut rest, mut count) = (Vec::new(), format, 0);
    while let Some(at) = rest.iter().position(|c| *c == b'%') {
        out.extend_from_slice(&rest[..at]);
        let spec = &rest[at..];
        let length = 1 + spec[1..]
            .iter()
            .take_while(|c| b"-+ #0123456789.*hljztLq".contains(c))
            .count();
        let Some(conversion) = spec.get(length) else {
            out.extend_from_slice(spec);
            return Some((out, count));
        };
        rest = &spec[length + 1..];
        let take = match conversion {
            b'%' if length == 1 => {
                out.push(b'%');
                continue;
            }
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
                let wide = spec[..length].iter().any(|c| b"ljztLq".contains(c));
                if wide { Take::Long } else { Take::Int }
            }
            b'c' => Take::Int,
            b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'a' | b'A' => Take::Double,
            b'p' => Take::Long,
            b's' => Take::Text,
            // An unknown conversion is copied.
            _ => {
                out.extend_from_slice(&spec[..=length]);
                continue;
            }
        };
        // The flags and sizes, with the numbers that stars stand for, then the length modifier that is given to C.
        let mut text = Vec::new();
        for c in &spec[..length] {
            match c {
                b'*' => {
                    let Value::Bits(bits) = next(Take::Int)? else {
                        return None;
                    };
                    count += 1;
                    text.extend_from_slice((bits as i32).to_string().as_bytes());
                }
                b'l' | b'j' | b'z' | b't' | b'L' | b'q' => {}
                c => text.push(*c),
            }
        }
        if take == Take::Long && *conversion != b'p' {
            text.extend_from_slice(b"ll");
        }
        text.push(*conversion);
        let spec = CString::new(text).ok()?;
        count += 1;
        match next(take)? {
            Value::Bits(bits) => out.extend(convert(&spec, take, bits)),
            Value::Text(text) => out.extend(print(|buffer, size| {
                let text = CString::new(text.as_slice()).unwrap_or_default();
                // SAFETY: the conversion is of a string, and the buffer has `size` bytes.
                unsafe { libc::snprintf(buffer, size, spec.as_ptr(), text.as_ptr()) }
            })),
        }
    }
    out.extend_from_slice(rest);
    Some((out, count))
}

fn convert(spec: &CString, take: Take, bits: u64) -> Vec<u8> {
    print(|buffer, size| {
        // SAFETY: the conversion takes one argument of the type that is passed, and the buffer has `size` bytes.
        unsafe {
            match take {
                Take::Int => libc::snprintf(buffer, size, spec.as_ptr(), bits as c_int),
                Take::Double => libc::snprintf(buffer, size, spec.as_ptr(), f64::from_bits(bits)),
                Take::Long | Take::Text => libc::snprintf(buffer, size, spec.as_ptr(), bits as i64),
            }
        }
    })
}

/// The text of a call of `snprintf`, which is asked for the length first.
fn print(call: impl Fn(*mut libc::c_char, usize) -> c_int) -> Vec<u8> {
    let length = usize::try_from(call(std::ptr::null_mut(), 0)).unwrap_or(0).min(1 << 20);
    let mut text = vec![0u8; length + 1];
    call(text.as_mut_ptr().cast(), text.len());
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::{Take, Value, format};

    #[test]
    fn conversions_are_those_of_c() {
        let text = |s: &str| Value::Text(s.into());
        for (spec, values, wanted) in [
            ("plain", vec![], "plain"),
            (
                "%d|%i|%u",
                vec![
                    Value::Bits(-5i32 as u32 as u64),
                    Value::Bits(7),
                    Value::Bits(0xffff_ffff),
                ],
                "-5|7|4294967295",
            ),
            (
                "%lld %lu %zx",
                vec![Value::Bits(-9i64 as u64), Value::Bits(1 << 40), Value::Bits(255)],
                "-9 1099511627776 ff",
            ),
            (
                "%5.2f|%-8g|%e",
                vec![
                    Value::Bits(2.5f64.to_bits()),
                    Value::Bits(0.1f64.to_bits()),
                    Value::Bits(1e10f64.to_bits()),
                ],
                " 2.50|0.1     |1.000000e+10",
            ),
            ("%*d%%", vec![Value::Bits(4), Value::Bits(42)], "  42%"),
            ("[%6s][%c]", vec![text("ab"), Value::Bits(65)], "[    ab][A]"),
            ("%p", vec![Value::Bits(0x1234)], "0x1234"),
            ("%hhd %k 100%", vec![Value::Bits(257)], "1 %k 100%"),
        ] {
            let count = values.len() as u32;
            let mut values = values.into_iter();
            let found = format(spec.as_bytes(), |_| values.next());
            assert_eq!(found, Some((wanted.as_bytes().to_vec(), count)), "{spec}");
        }
        let mut takes = Vec::new();
        format(b"%d %ld %f %s %p %c", |take| {
            takes.push(take);
            Some(if take == Take::Text {
                Value::Text(Vec::new())
            } else {
                Value::Bits(0)
            })
        });
        assert_eq!(
            takes,
            [Take::Int, Take::Long, Take::Double, Take::Text, Take::Long, Take::Int]
        );
        assert_eq!(format(b"%d", |_| None), None);
    }
}
