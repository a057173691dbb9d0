//! The header of a `.npy` file: NumPy's NEP 1, versions 1 to 3.
//!
//! ```text
//! \x93NUMPY, major, minor, length of the text (u16 in version 1, then u32), the text
//! {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//! ```
//!
//! The text is a dictionary of Python's with these three keys, padded with spaces so that the data is aligned.

use crate::error::{NpyError, Result};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The data starts at a multiple of this.
const ALIGNMENT: usize = 64;

/// The type and shape of an array in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// NumPy's name of the dtype without its order of bytes: `f4`.
    pub(crate) dtype: String,
    pub(crate) big_endian: bool,
    /// The first dimension varies fastest.
    pub(crate) fortran: bool,
    pub(crate) shape: Vec<usize>,
}

impl Header {
    /// The header at the start of `bytes`, and what follows it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Header, &[u8])> {
        let broken = NpyError::format;
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or_else(|| broken("it does not begin with \\x93NUMPY"))?;
        let cut = || broken("it ends within its header");
        let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
        let (length, rest) = match version[0] {
            1 => {
                let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
                (u32::from(u16::from_le_bytes(*length)), rest)
            }
            2 | 3 => {
                let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
                (u32::from_le_bytes(*length), rest)
            }
            other => {
                return Err(broken(
                    format!("its version is {other}, of which 1 to 3 are known").as_str(),
                ));
            }
        };
        let (text, data) = rest.split_at_checked(length as usize).ok_or_else(cut)?;
        let text = std::str::from_utf8(text).map_err(|_| broken("its header is not text"))?;
        Ok((Header::of_text(text)?, data))
    }

    fn of_text(text: &str) -> Result<Header> {
        let mut reader = Reader(text);
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        reader.expect("{")?;
        while !reader.take("}") {
            let key = reader.string()?;
            reader.expect(":")?;
            match key {
                "descr" => descr = Some(reader.string()?),
                "fortran_order" => fortran = Some(reader.boolean()?),
                "shape" => shape = Some(reader.tuple()?),
                _ => return Err(reader.wrong("descr, fortran_order or shape")),
            }
            if !reader.take(",") {
                reader.expect("}")?;
                break;
            }
        }
        let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
            return Err(NpyError::format("its header lacks descr, fortran_order or shape"));
        };
        let (order, dtype) = match descr.as_bytes().first() {
            Some(b'<' | b'>' | b'|' | b'=') => descr.split_at(1),
            _ => ("=", descr),
        };
        Ok(Header {
            dtype: dtype.to_string(),
            big_endian: order == ">" || order == "=" && cfg!(target_endian = "big"),
            fortran,
            shape,
        })
    }

    /// The bytes of a header of version 1 for little-endian data in C's order.
    ///
    /// A shape has at most eight dimensions here, so that its text fits.
    pub(crate) fn to_bytes(dtype: &str, shape: &[usize]) -> Vec<u8> {
        let order = if dtype.ends_with('1') { '|' } else { '<' };
        let list: String = shape.iter().map(|d| format!("{d}, ")).collect();
        let list = match shape.len() {
            1 => list.trim_end(),
            _ => list.trim_end_matches(", "),
        };
        let mut text =
            format!("{{'descr': '{order}{dtype}', 'fortran_order': False, 'shape': ({list}), }}").into_bytes();
        let before = MAGIC.len() + 4;
        text.resize((before + text.len() + 1).next_multiple_of(ALIGNMENT) - before - 1, b' ');
        text.push(b'\n');
        let length = u16::try_from(text.len()).expect("eight numbers are short");
        [MAGIC, &[1, 0], &length.to_le_bytes(), &text].concat()
    }
}

/// The rest of a text of Python's literals.
struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn wrong(&self, expected: &str) -> NpyError {
        let found: String = self.0.chars().take(20).collect();
        NpyError::format(format!(
            "its header has `{}` in the place of {expected}",
            kiln_files::shown(&found)
        ))
    }

    /// True if `token` comes next, after spaces; then it is read.
    fn take(&mut self, token: &str) -> bool {
        self.0 = self.0.trim_start();
        match self.0.strip_prefix(token) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        match self.take(token) {
            true => Ok(()),
            false => Err(self.wrong(token)),
        }
    }

    fn string(&mut self) -> Result<&'a str> {
        for quote in ["'", "\""] {
            if self.take(quote) {
                let (string, rest) = self.0.split_once(quote).ok_or_else(|| self.wrong("a closing quote"))?;
                self.0 = rest;
                return Ok(string);
            }
        }
        // A list describes records of fields.
        Err(self.wrong("a string"))
    }

    fn boolean(&mut self) -> Result<bool> {
        match (self.take("True"), self.take("False")) {
            (false, false) => Err(self.wrong("True or False")),
            (yes, _) => Ok(yes),
        }
    }

    fn tuple(&mut self) -> Result<Vec<usize>> {
        self.expect("(")?;
        let mut dims = Vec::new();
        while !self.take(")") {
            self.0 = self.0.trim_start();
            let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = self.0.split_at(digits);
            dims.push(number.parse().map_err(|_| self.wrong("a dimension"))?);
            self.0 = rest;
            // Python 2 wrote long integers so.
            self.take("L");
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(dims)
    }
}
