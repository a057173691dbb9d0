//! A valid call of an op, and the changes after which it is still valid.

use kiln_core::{Backend, DType, Result, Runtime};
use std::ops::Range;

/// A buffer argument of an op.
#[derive(Clone, Copy)]
pub struct Operand {
    pub(super) dtype: DType,
    pub(super) len: usize,
    /// True if the rest of the call determines its dtype.
    pub(super) typed: bool,
    /// True if the rest of the call determines its length.
    pub(super) sized: bool,
    /// True if it may be longer than the call needs.
    pub(super) roomy: bool,
}

impl Operand {
    pub(super) fn of(dtype: DType, len: usize) -> Self {
        Operand {
            dtype,
            len,
            typed: true,
            sized: true,
            roomy: false,
        }
    }

    pub(super) fn buffer<B: Backend>(&self, backend: &B) -> Result<B::Buffer> {
        let mut buffer = backend.alloc(self.dtype, self.len)?;
        // Zeros are valid numbers of every dtype and indices in range.
        backend.upload_bytes(&vec![0; self.len * self.dtype.size()], &mut buffer)?;
        Ok(buffer)
    }
}

/// The kind of a word of the parameters, which decides after which changes the call is still valid.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Word {
    /// A size or a step: every other number is wrong.
    Tied,
    /// A code, a flag, a number of dimensions: other small numbers are valid.
    Small,
    /// A value: any number can be valid.
    Free,
}

/// A function that calls the op with parameters as bytes.
type Run<B> = dyn Fn(&B, &[u8], &mut [<B as Runtime>::Buffer]) -> Result<()>;

/// A valid call of an op.
pub struct Call<B: Backend> {
    /// The op's name in its trait.
    pub op: &'static str,
    pub(super) params: Vec<u8>,
    pub(super) words: Vec<Word>,
    pub(super) operands: Vec<Operand>,
    run: Box<Run<B>>,
}

impl<B: Backend> Call<B> {
    /// A call with parameters as bytes.
    pub(super) fn new(
        op: &'static str,
        params: &[u8],
        operands: Vec<Operand>,
        run: impl Fn(&B, &[u8], &mut [B::Buffer]) -> Result<()> + 'static,
    ) -> Self {
        Call {
            op,
            params: params.to_vec(),
            words: vec![Word::Tied; params.len() / 4],
            operands,
            run: Box::new(run),
        }
    }

    pub(super) fn mark(mut self, bytes: Range<usize>, word: Word) -> Self {
        self.words[bytes.start / 4..bytes.end / 4].fill(word);
        self
    }

    /// Marks the bytes as codes, flags or numbers of dimensions.
    pub(super) fn small(self, bytes: Range<usize>) -> Self {
        self.mark(bytes, Word::Small)
    }

    /// Marks the bytes as values, or as unused.
    pub(super) fn free(self, bytes: Range<usize>) -> Self {
        self.mark(bytes, Word::Free)
    }

    /// Marks an operand that may have any dtype that the op supports.
    pub(super) fn untyped(mut self, operand: usize) -> Self {
        self.operands[operand].typed = false;
        self
    }

    /// Marks an operand that may have any length.
    pub(super) fn unsized_(mut self, operand: usize) -> Self {
        self.operands[operand].sized = false;
        self
    }

    /// Marks an operand that may be longer.
    pub(super) fn roomy(mut self, operand: usize) -> Self {
        self.operands[operand].roomy = true;
        self
    }

    pub(super) fn made(&self, backend: &B, params: &[u8], operands: &[Operand]) -> Result<()> {
        let buffers: Result<Vec<_>> = operands.iter().map(|operand| operand.buffer(backend)).collect();
        (self.run)(backend, params, &mut buffers?)?;
        backend.sync()
    }
}
