//! Calls of a backend's ops with buffers and parameters that do not fit each other: each has to be an error, never a panic,
//! an access beside a buffer or a wrong result.
//!
//! [`calls`] has a right call of every op; [`refuses_misfits`] makes each of its buffers one element short, one long, empty and of
//! every other dtype, and tells a lie in each word of its parameters.

mod calls;

pub use calls::calls;

use kiln_core::{Backend, DType, Error, Result, Runtime};
use std::cell::RefCell;
use std::ops::Range;

/// What an op is given in the place of one buffer.
#[derive(Clone, Copy)]
pub struct Operand {
    dtype: DType,
    len: usize,
    /// Whether the rest of the call says which dtype it has.
    typed: bool,
    /// Whether the rest of the call says how long it is.
    sized: bool,
    /// Whether it may be longer than the call needs.
    roomy: bool,
}

impl Operand {
    fn of(dtype: DType, len: usize) -> Self {
        Operand {
            dtype,
            len,
            typed: true,
            sized: true,
            roomy: false,
        }
    }

    fn buffer<B: Backend>(&self, backend: &B) -> Result<B::Buffer> {
        let mut buffer = backend.alloc(self.dtype, self.len)?;
        // Zeros are numbers of every dtype and indices that are in range.
        backend.upload_bytes(&vec![0; self.len * self.dtype.size()], &mut buffer)?;
        Ok(buffer)
    }
}

/// How much a word of the parameters may change and still be right.
#[derive(Clone, Copy, PartialEq)]
enum Word {
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
    params: Vec<u8>,
    words: Vec<Word>,
    operands: Vec<Operand>,
    run: Box<Run<B>>,
}

impl<B: Backend> Call<B> {
    /// A call with parameters as bytes.
    fn new(
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

    fn mark(mut self, bytes: Range<usize>, word: Word) -> Self {
        self.words[bytes.start / 4..bytes.end / 4].fill(word);
        self
    }

    /// The bytes hold codes, flags or numbers of dimensions.
    fn small(self, bytes: Range<usize>) -> Self {
        self.mark(bytes, Word::Small)
    }

    /// The bytes hold values, or nothing that the op looks at.
    fn free(self, bytes: Range<usize>) -> Self {
        self.mark(bytes, Word::Free)
    }

    /// The operand may have any dtype that the op takes.
    fn untyped(mut self, operand: usize) -> Self {
        self.operands[operand].typed = false;
        self
    }

    /// The operand may have any length.
    fn unsized_(mut self, operand: usize) -> Self {
        self.operands[operand].sized = false;
        self
    }

    /// The operand may be longer.
    fn roomy(mut self, operand: usize) -> Self {
        self.operands[operand].roomy = true;
        self
    }

    fn made(&self, backend: &B, params: &[u8], operands: &[Operand]) -> Result<()> {
        let buffers: Result<Vec<_>> = operands.iter().map(|operand| operand.buffer(backend)).collect();
        (self.run)(backend, params, &mut buffers?)?;
        backend.sync()
    }
}

/// Whether the error is one of a check, not of a device that met what a check let through.
fn checked(error: &Error) -> bool {
    matches!(
        error,
        Error::Operand { .. }
            | Error::UnsupportedDType { .. }
            | Error::InvalidArgument { .. }
            | Error::TooLarge { .. }
            | Error::Rank { .. }
    )
}

/// Makes every call of [`calls`] with misfit buffers and parameters.
///
/// # Panics
/// When one is not refused, or refused too late.
pub fn refuses_misfits<B: Backend>(backend: &B) {
    let taken = RefCell::new(Vec::<String>::new());
    for call in calls::<B>() {
        let op = call.op;
        call.made(backend, &call.params, &call.operands)
            .unwrap_or_else(|e| panic!("{op}: a right call failed: {e}"));
        let refused =
            |what: &str, params: &[u8], operands: &[Operand], wrong: bool| match call.made(backend, params, operands) {
                Err(e) => assert!(checked(&e), "{op}: {what}: {e}"),
                Ok(()) => assert!(!wrong, "{op} took {what}"),
            };
        for (i, operand) in call.operands.iter().enumerate() {
            let with = |what: &str, changed: Operand, wrong: bool| {
                let mut operands = call.operands.clone();
                operands[i] = changed;
                refused(&format!("operand {i} {what}"), &call.params, &operands, wrong);
            };
            for (what, len) in [
                ("one short", operand.len - 1),
                ("one long", operand.len + 1),
                ("empty", 0),
            ] {
                let longer = operand.roomy && len > operand.len;
                with(what, Operand { len, ..*operand }, operand.sized && !longer);
            }
            for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != operand.dtype) {
                let wrong = operand.typed || !backend.supports(dtype);
                with(dtype.name(), Operand { dtype, ..*operand }, wrong);
            }
        }
        for (i, &word) in call.words.iter().enumerate() {
            let at = 4 * i..4 * i + 4;
            let truth = u32::from_ne_bytes(call.params[at.clone()].try_into().expect("four bytes"));
            for lie in [0, truth.wrapping_add(1), truth ^ (1 << 31), u32::MAX] {
                if lie == truth {
                    continue;
                }
                let mut params = call.params.clone();
                params[at.clone()].copy_from_slice(&lie.to_ne_bytes());
                let wrong = word == Word::Tied || word == Word::Small && lie >= 1 << 31;
                let what = format!("{lie:#x} for {truth:#x} at byte {} of its parameters", at.start);
                refused(&what, &params, &call.operands, wrong);
            }
        }
    }
    copies(backend);
    let taken = taken.into_inner();
    assert!(taken.is_empty(), "{taken:#?}");
}

/// Copies between buffers and host memory of other lengths and dtypes.
fn copies<B: Backend>(backend: &B) {
    let operand = Operand::of(DType::F32, 3);
    let mut buffer = operand.buffer(backend).expect("a small buffer");
    for bytes in [0, 11, 13, 16] {
        let host = vec![0; bytes];
        assert!(
            backend.upload_bytes(&host, &mut buffer).is_err(),
            "{bytes} bytes uploaded"
        );
        assert!(
            backend.download_bytes(&buffer, &mut host.clone()).is_err(),
            "{bytes} bytes downloaded"
        );
    }
    for (len, offset) in [(13, 0), (4, 9), (1, usize::MAX), (0, 13)] {
        let part = backend.upload_part(&vec![0; len], &mut buffer, offset);
        assert!(part.is_err(), "{len} bytes from byte {offset} on");
    }
    assert!(backend.write(&[0f32; 4], &mut buffer).is_err() && backend.write(&[0i32; 3], &mut buffer).is_err());
    assert!(backend.download::<i32>(&buffer).is_err());
    for other in [
        Operand::of(DType::F32, 2),
        Operand::of(DType::F32, 4),
        Operand::of(DType::I32, 3),
    ] {
        let mut other = other.buffer(backend).expect("a small buffer");
        assert!(backend.copy(&buffer, &mut other).is_err());
    }
}
