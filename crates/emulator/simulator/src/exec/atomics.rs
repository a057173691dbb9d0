//! `atom` and `red`. Blocks run on several threads, so these are the processor's own atomic operations.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use kiln_ptx::Opcode;

use super::lanes::{Bf16, F16, Ty};
use super::rounding::Half;
use crate::machine::{Handler, Inst, Warp, lanes};

/// The handler of an atomic instruction and the width of its operands.
pub(crate) fn select(op: &Opcode<'_>) -> Option<(Handler, Ty)> {
    let known = [
        "relaxed",
        "acquire",
        "release",
        "acq_rel",
        "gpu",
        "sys",
        "cta",
        "cluster",
        "global",
        "shared",
        "shared::cta",
        "noftz",
        "add",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "exch",
        "cas",
        "inc",
        "dec",
        "u32",
        "s32",
        "u64",
        "s64",
        "f32",
        "f64",
        "f16",
        "bf16",
        "f16x2",
        "bf16x2",
        "b32",
        "b64",
        "b16",
    ];
    let level = |m: &&str| m.starts_with("L2::");
    if !op.modifiers.iter().all(|m| known.contains(m) || level(m)) {
        return None;
    }
    let names = ["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"];
    let name = op.modifiers.iter().find(|m| names.contains(m))?;
    Some(match (*name, op.ty()) {
        ("add", "u32" | "s32") => (update::<u32, _>(|x, b, _| x.wrapping_add(b)), Ty::B32),
        ("add", "u64" | "s64") => (update::<u64, _>(|x, b, _| x.wrapping_add(b)), Ty::B64),
        ("add", "f32") => (
            update::<u32, _>(|x, b, _| (f32::from_bits(x) + f32::from_bits(b)).to_bits()),
            Ty::B32,
        ),
        ("add", "f64") => (
            update::<u64, _>(|x, b, _| (f64::from_bits(x) + f64::from_bits(b)).to_bits()),
            Ty::B64,
        ),
        ("add", "f16") => (update::<u16, _>(|x, b, _| add::<F16>(x, b)), Ty::B16),
        ("add", "bf16") => (update::<u16, _>(|x, b, _| add::<Bf16>(x, b)), Ty::B16),
        ("add", "f16x2") => (update::<u32, _>(|x, b, _| add_pair::<F16>(x, b)), Ty::B32),
        ("add", "bf16x2") => (update::<u32, _>(|x, b, _| add_pair::<Bf16>(x, b)), Ty::B32),
        ("min", "u32") => (update::<u32, _>(|x, b, _| x.min(b)), Ty::B32),
        ("max", "u32") => (update::<u32, _>(|x, b, _| x.max(b)), Ty::B32),
        ("min", "s32") => (update::<u32, _>(|x, b, _| (x as i32).min(b as i32) as u32), Ty::B32),
        ("max", "s32") => (update::<u32, _>(|x, b, _| (x as i32).max(b as i32) as u32), Ty::B32),
        ("min", "u64") => (update::<u64, _>(|x, b, _| x.min(b)), Ty::B64),
        ("max", "u64") => (update::<u64, _>(|x, b, _| x.max(b)), Ty::B64),
        ("min", "s64") => (update::<u64, _>(|x, b, _| (x as i64).min(b as i64) as u64), Ty::B64),
        ("max", "s64") => (update::<u64, _>(|x, b, _| (x as i64).max(b as i64) as u64), Ty::B64),
        ("and", "b32") => (update::<u32, _>(|x, b, _| x & b), Ty::B32),
        ("or", "b32") => (update::<u32, _>(|x, b, _| x | b), Ty::B32),
        ("xor", "b32") => (update::<u32, _>(|x, b, _| x ^ b), Ty::B32),
        ("and", "b64") => (update::<u64, _>(|x, b, _| x & b), Ty::B64),
        ("or", "b64") => (update::<u64, _>(|x, b, _| x | b), Ty::B64),
        ("xor", "b64") => (update::<u64, _>(|x, b, _| x ^ b), Ty::B64),
        ("exch", "b32") => (update::<u32, _>(|_, b, _| b), Ty::B32),
        ("exch", "b64") => (update::<u64, _>(|_, b, _| b), Ty::B64),
        ("cas", "b16") => (update::<u16, _>(|x, b, c| if x == b { c } else { x }), Ty::B16),
        ("cas", "b32") => (update::<u32, _>(|x, b, c| if x == b { c } else { x }), Ty::B32),
        ("cas", "b64") => (update::<u64, _>(|x, b, c| if x == b { c } else { x }), Ty::B64),
        ("inc", "u32") => (update::<u32, _>(|x, b, _| if x >= b { 0 } else { x + 1 }), Ty::B32),
        ("dec", "u32") => (
            update::<u32, _>(|x, b, _| if x == 0 || x > b { b } else { x - 1 }),
            Ty::B32,
        ),
        _ => return None,
    })
}

fn add<H: Half>(x: u16, b: u16) -> u16 {
    // Exact in f32's doubled precision, so one rounding.
    H::round(f64::from(H::of_bits(x).wide()) + f64::from(H::of_bits(b).wide()), 0).bits()
}

fn add_pair<H: Half>(x: u32, b: u32) -> u32 {
    u32::from(add::<H>(x as u16, b as u16)) | u32::from(add::<H>((x >> 16) as u16, (b >> 16) as u16)) << 16
}

/// A word that memory updates in one step.
trait Word: Copy + PartialEq + Default {
    /// Replaces the word at `p` by `f` of it; gives the old one.
    ///
    /// # Safety
    /// `p` is aligned and its bytes are live.
    unsafe fn update(p: u64, f: impl Fn(Self) -> Self) -> Self;
}

macro_rules! word {
    ($($t:ty => $atomic:ty),*) => { $(impl Word for $t {
        #[inline(always)]
        unsafe fn update(p: u64, f: impl Fn(Self) -> Self) -> Self {
            // SAFETY: the caller's contract.
            let word = unsafe { <$atomic>::from_ptr(p as *mut $t) };
            let mut old = word.load(Ordering::Relaxed);
            loop {
                match word.compare_exchange_weak(old, f(old), Ordering::SeqCst, Ordering::Relaxed) {
                    Ok(old) => return old,
                    Err(found) => old = found,
                }
            }
        }
    })* };
}
word!(u16 => AtomicU16, u32 => AtomicU32, u64 => AtomicU64);

/// The handler that replaces the word `x` at each lane's address by `f(x, b, c)`; lanes go in order.
fn update<T: Word, F: Fn(T, T, T) -> T + 'static>(_: F) -> Handler {
    unsafe fn run<T: Word, F: Fn(T, T, T) -> T + 'static>(w: &mut Warp, i: &Inst) {
        const { assert!(size_of::<F>() == 0) };
        // SAFETY: F has no bytes, and `update` was given a value of it. `locate` found aligned live bytes for every
        // active lane; operands are rows of T (`select`).
        unsafe {
            let f = std::ptr::NonNull::<F>::dangling().as_ref();
            if !(i.locate)(w, i) {
                return;
            }
            for l in lanes(w.mask) {
                let b = *w.row::<T>(i.b).add(l);
                let c = if i.c.is_some() {
                    *w.row::<T>(i.c).add(l)
                } else {
                    T::default()
                };
                let old = T::update(w.pointers[l], |x| f(x, b, c));
                if i.d.is_some() {
                    *w.row::<T>(i.d).add(l) = old;
                }
            }
        }
    }
    run::<T, F>
}
