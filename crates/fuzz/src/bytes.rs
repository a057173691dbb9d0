//! Choices made from the bytes of an input.

/// The bytes of an input, read one after the other; zeros follow the last.
#[derive(Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// A reader of all bytes of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Bytes(input)
    }

    /// True when every byte has been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// A number below `n`, which must not be 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    /// One of `values`, which must not be empty.
    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// A small number, rarely a very large one.
    pub fn size(&mut self) -> usize {
        match self.byte() {
            255 => usize::MAX,
            254 => 1 << 31,
            253 => i32::MAX as usize,
            252 => isize::MAX as usize / 8,
            b => usize::from(b) % 6,
        }
    }

    /// A small number of either sign, rarely a very large one.
    pub fn signed(&mut self) -> isize {
        match self.byte() {
            255 => isize::MIN,
            254 => isize::MAX,
            b => isize::from(b) % 9 - 4,
        }
    }

    /// A number that often causes errors in ops, such as NaN or a zero.
    pub fn number(&mut self) -> f64 {
        const NUMBERS: [f64; 14] = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.0,
            -3.25,
            1e-30,
            1e30,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        self.one_of(&NUMBERS)
    }
}
