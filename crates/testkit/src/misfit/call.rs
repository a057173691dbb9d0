//! A call that is right, and the ways in which it may be changed and stay so.

use kiln_core::{Backend, DType, Result, Runtime};
use std::ops::Range;

/// A buffer that an op is given.
#[derive(Clone, Copy)]
pub struct Operand {
    pub(super) dtype: DType,
    pub(super) len: usize,
    /// True when the rest of the call says which dtype it has.
    pub(super) typed: bool,
    /// True when the rest of the call says how long it is.
    pub(super) sized: bool,
    /// True when it may be longer than the call needs.
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
        // Zeros are numbers of every dtype and indices that are in range.
        backend.upload_bytes(&vec![0; self.len * self.dtype.size()], &mut buffer)?;
        Ok(buffer)
    }
}

/// The changes that a word of the parameters may see and still be right.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Word {
    /// A size or a step: any other number is a lie.
    Tied,
    /// A code, a flag, a number of dimensions: there are other right ones, all of them small.
    Small,
    /// A value: any number may be right.
    Free,
}

/// Makes a call with parameters as bytes.
type Run<B> = dyn Fn(&B, &[u8], &mut [<B as Runtime>::Buffer]) -> Result<()>;

/// A call that is right.
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

    /// The bytes hold codes, flags or numbers of dimensions.
    pub(super) fn small(self, bytes: Range<usize>) -> Self {
        self.mark(bytes, Word::Small)
    }

    /// The bytes hold values, or nothing that the op looks at.
    pub(super) fn free(self, bytes: Range<usize>) -> Self {
        self.mark(bytes, Word::Free)
    }

    /// The operand may have any dtype that the op takes.
    pub(super) fn untyped(mut self, operand: usize) -> Self {
        self.operands[operand].typed = false;
        self
    }

    /// The operand may have any length.
    pub(super) fn unsized_(mut self, operand: usize) -> Self {
        self.operands[operand].sized = false;
        self
    }

    /// The operand may be longer.
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
