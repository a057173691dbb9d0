//! Calls of a backend's ops with buffers and parameters that do not fit each other: each must be an error, never a panic,
//! an access outside of a buffer or a wrong result.
//!
//! [`calls`] returns a valid call of every op; [`refuses_misfits`] makes each of its buffers one element too short, one
//! too long, empty, and of every other dtype, and changes each word of its parameters.

mod call;
mod calls;

pub use call::{Call, Operand};
pub use calls::calls;

use call::Word;
use kiln_core::ops::Op;
use kiln_core::{Backend, DType, Error};
use std::cell::RefCell;

/// True if the error comes from a check, not from a device after a check has passed.
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

/// True for a fused op that the backend does not have.
fn is_absent<B: Backend>(backend: &B, op: &str) -> bool {
    let named = Op::FUSED.iter().find(|f| f.name() == op);
    named.is_some_and(|&f| !backend.supports(f, DType::F32))
}

/// Makes every call of [`calls`] with buffers and parameters that do not fit.
///
/// # Panics
/// When a call is not refused, or is refused by something else than a check.
pub fn refuses_misfits<B: Backend>(backend: &B) {
    let taken = RefCell::new(Vec::<String>::new());
    for call in calls::<B>() {
        let op = call.op;
        match call.made(backend, &call.params, &call.operands) {
            Err(Error::UnsupportedOp { op, .. }) if is_absent(backend, op) => continue,
            made => made.unwrap_or_else(|e| panic!("{op}: a right call failed: {e}")),
        }
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
                let wrong = operand.typed || !backend.supports_dtype(dtype);
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
