//! The shapes of instructions that work on each lane separately: a closure of one lane becomes a handler of a warp.
//!
//! Each handler exists twice: for any x86-64 (or other) processor, and for one with AVX2 and FMA, where the compiler
//! makes vector code of the same closure. Which one runs is decided once, when a kernel is decoded.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::machine::{Handler, Inst, Kind, Slot, Warp, lanes};

/// The width of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
}

impl Ty {
    /// Bytes of one lane; a predicate has none.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Ty::Pred => 0,
            Ty::B8 => 1,
            Ty::B16 => 2,
            Ty::B32 => 4,
            Ty::B64 => 8,
        }
    }
}

/// A value of one lane.
pub(crate) trait Lane: Copy + 'static {
    const TY: Ty;
}

macro_rules! lane {
    ($($t:ty => $ty:ident),*) => { $(impl Lane for $t { const TY: Ty = Ty::$ty; })* };
}
lane!(u8 => B8, i8 => B8, u16 => B16, i16 => B16, u32 => B32, i32 => B32, f32 => B32, u64 => B64, i64 => B64, f64 => B64);

/// A half-precision float's bits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub(crate) struct F16(pub(crate) u16);

/// A bfloat16's bits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub(crate) struct Bf16(pub(crate) u16);

lane!(F16 => B16, Bf16 => B16);

/// The plan of an instruction: its handler and the widths of its operands.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) run: Handler,
    pub(crate) kind: Kind,
    /// The destination; `None` when the first operand is a source.
    pub(crate) dst: Option<Ty>,
    pub(crate) srcs: Vec<Ty>,
    pub(crate) flags: u32,
}

impl Plan {
    pub(crate) fn new(run: Handler, dst: Option<Ty>, srcs: &[Ty]) -> Plan {
        Plan {
            run,
            kind: Kind::Plain,
            dst,
            srcs: srcs.to_vec(),
            flags: 0,
        }
    }

    pub(crate) fn flags(mut self, flags: u32) -> Plan {
        self.flags = flags;
        self
    }
}

/// True if the machine has AVX2 and FMA.
pub(crate) fn vectors() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt")
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    })
}

/// The closure of a type: closures of opcodes capture nothing, so any address is a valid one.
#[inline(always)]
fn conjure<F>() -> &'static F {
    const { assert!(size_of::<F>() == 0) };
    // SAFETY: F has no bytes (asserted above), and the callers of the shapes hold a value of it, so the type has one.
    unsafe { std::ptr::NonNull::<F>::dangling().as_ref() }
}

/// Declares a shape: `$name` makes a plan of a closure; `$plain` and `$vector` are the handler without and with AVX2.
macro_rules! shape {
    ($(#[$doc:meta])* $name:ident, $plain:ident, $vector:ident, <$($g:ident: $bound:path),*>, $f:path, $dst:expr, [$($src:expr),*], |$w:ident, $i:ident, $fun:ident| $body:block) => {
        // SAFETY (for callers): as for every `Handler`.
        unsafe fn $plain<$($g: $bound,)* F: $f + 'static>($w: &mut Warp, $i: &Inst) {
            let $fun = conjure::<F>();
            // SAFETY: the slots of the instruction lie within the warp's rows (`Handler`).
            unsafe { $body }
        }
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt"))]
        unsafe fn $vector<$($g: $bound,)* F: $f + 'static>($w: &mut Warp, $i: &Inst) {
            let $fun = conjure::<F>();
            // SAFETY: as above; `vectors` found the features before this handler was chosen.
            unsafe { $body }
        }
        $(#[$doc])*
        pub(crate) fn $name<$($g: $bound,)* F: $f + 'static>(_: F) -> Plan {
            let run: Handler = if vectors() { $vector::<$($g,)* F> } else { $plain::<$($g,)* F> };
            Plan::new(run, $dst, &[$($src),*])
        }
    };
}

/// Lanes that are worked on at a time.
const STEP: usize = 8;

/// Computes one part of a row lane by lane, in a loop that the compiler unrolls and makes vector code of.
macro_rules! part_of {
    ($d:expr, $s:expr, |$l:ident| $value:expr) => {{
        let mut out = MaybeUninit::<[R; STEP]>::uninit();
        let first = out.as_mut_ptr().cast::<R>();
        for $l in 0..STEP {
            first.add($l).write($value);
        }
        put($d, $s, out.assume_init());
    }};
}

/// Reads eight lanes of a row.
///
/// # Safety
/// The row holds 32 values and `step` is below 4.
#[inline(always)]
unsafe fn part<T: Copy>(row: *const T, step: usize) -> [T; STEP] {
    // SAFETY: the caller's contract.
    unsafe { row.add(step * STEP).cast::<[T; STEP]>().read() }
}

/// Writes eight lanes of a row.
///
/// # Safety
/// The row holds 32 values and `step` is below 4.
#[inline(always)]
unsafe fn put<T: Copy>(row: *mut T, step: usize, value: [T; STEP]) {
    // SAFETY: the caller's contract.
    unsafe { row.add(step * STEP).cast::<[T; STEP]>().write(value) }
}

shape!(
    /// `d = f(a)`.
    unary, unary_plain, unary_vector, <A: Lane, R: Lane>, Fn(A) -> R, Some(R::TY), [A::TY], |w, i, f| {
        let (a, d) = (w.row::<A>(i.a), w.row::<R>(i.d));
        if w.mask == u32::MAX {
            for s in 0..4 {
                let a = part(a, s);
                part_of!(d, s, |l| f(a[l]));
            }
        } else {
            for l in lanes(w.mask) {
                *d.add(l) = f(*a.add(l));
            }
        }
    }
);

shape!(
    /// `d = f(a, b)`.
    binary, binary_plain, binary_vector, <A: Lane, B: Lane, R: Lane>, Fn(A, B) -> R, Some(R::TY), [A::TY, B::TY], |w, i, f| {
        let (a, b, d) = (w.row::<A>(i.a), w.row::<B>(i.b), w.row::<R>(i.d));
        if w.mask == u32::MAX {
            for s in 0..4 {
                let (a, b) = (part(a, s), part(b, s));
                part_of!(d, s, |l| f(a[l], b[l]));
            }
        } else {
            for l in lanes(w.mask) {
                *d.add(l) = f(*a.add(l), *b.add(l));
            }
        }
    }
);

shape!(
    /// `d = f(a, b, c)`.
    ternary, ternary_plain, ternary_vector, <A: Lane, B: Lane, C: Lane, R: Lane>, Fn(A, B, C) -> R, Some(R::TY), [A::TY, B::TY, C::TY], |w, i, f| {
        let (a, b, c, d) = (w.row::<A>(i.a), w.row::<B>(i.b), w.row::<C>(i.c), w.row::<R>(i.d));
        if w.mask == u32::MAX {
            for s in 0..4 {
                let (a, b, c) = (part(a, s), part(b, s), part(c, s));
                part_of!(d, s, |l| f(a[l], b[l], c[l]));
            }
        } else {
            for l in lanes(w.mask) {
                *d.add(l) = f(*a.add(l), *b.add(l), *c.add(l));
            }
        }
    }
);

shape!(
    /// `d = f(flags, a)`: for the forms of an opcode that are rare.
    unary_flags, unary_flags_plain, unary_flags_vector, <A: Lane, R: Lane>, Fn(u32, A) -> R, Some(R::TY), [A::TY], |w, i, f| {
        let (a, d) = (w.row::<A>(i.a), w.row::<R>(i.d));
        for l in lanes(w.mask) {
            *d.add(l) = f(i.flags, *a.add(l));
        }
    }
);

shape!(
    /// `d = f(flags, a, b)`: for the forms of an opcode that are rare.
    binary_flags, binary_flags_plain, binary_flags_vector, <A: Lane, B: Lane, R: Lane>, Fn(u32, A, B) -> R, Some(R::TY), [A::TY, B::TY], |w, i, f| {
        let (a, b, d) = (w.row::<A>(i.a), w.row::<B>(i.b), w.row::<R>(i.d));
        for l in lanes(w.mask) {
            *d.add(l) = f(i.flags, *a.add(l), *b.add(l));
        }
    }
);

shape!(
    /// `d = f(flags, a, b, c)`: for the forms of an opcode that are rare.
    ternary_flags, ternary_flags_plain, ternary_flags_vector, <A: Lane, B: Lane, C: Lane, R: Lane>, Fn(u32, A, B, C) -> R, Some(R::TY), [A::TY, B::TY, C::TY], |w, i, f| {
        let (a, b, c, d) = (w.row::<A>(i.a), w.row::<B>(i.b), w.row::<C>(i.c), w.row::<R>(i.d));
        for l in lanes(w.mask) {
            *d.add(l) = f(i.flags, *a.add(l), *b.add(l), *c.add(l));
        }
    }
);

shape!(
    /// `d = f(a, b)` as a predicate; a second destination takes the opposite, and a third source combines with both
    /// (`flags`: 1 and, 2 or, 3 xor; 4 when it is negated).
    compare, compare_plain, compare_vector, <A: Lane>, Fn(A, A) -> bool, Some(Ty::Pred), [A::TY, A::TY], |w, i, f| {
        let (a, b) = (w.row::<A>(i.a), w.row::<A>(i.b));
        // The results go through memory, so that the compiler compares eight lanes at a time.
        let bits = w.pointers.as_mut_ptr().cast::<u32>();
        for s in 0..4 {
            let (a, b) = (part(a, s), part(b, s));
            let bits = bits.add(s * STEP);
            for l in 0..STEP {
                bits.add(l).write(if f(a[l], b[l]) { 1 << (s * STEP + l) } else { 0 });
            }
        }
        let bits = &*bits.cast::<[u32; 32]>();
        let found = bits.iter().fold(0, |x, y| x | y);
        store_compare(w, i, found);
    }
);

shape!(
    /// `d = f(a)` as a predicate.
    test, test_plain, test_vector, <A: Lane>, Fn(A) -> bool, Some(Ty::Pred), [A::TY], |w, i, f| {
        let a = w.row::<A>(i.a);
        let mut found = 0u32;
        for l in 0..32 {
            found |= u32::from(f(*a.add(l))) << l;
        }
        store_compare(w, i, found);
    }
);

shape!(
    /// `d = p ? a : b`, with the predicate in `c`.
    choose, choose_plain, choose_vector, <R: Lane>, Fn(bool, R, R) -> R, Some(R::TY), [R::TY, R::TY, Ty::Pred], |w, i, f| {
        let (a, b, d) = (w.row::<R>(i.a), w.row::<R>(i.b), w.row::<R>(i.d));
        let p = w.predicate(i.c);
        if w.mask == u32::MAX {
            for s in 0..4 {
                let (a, b, p) = (part(a, s), part(b, s), p >> (s * STEP));
                part_of!(d, s, |l| f(p & 1 << l != 0, a[l], b[l]));
            }
        } else {
            for l in lanes(w.mask) {
                *d.add(l) = f(p >> l & 1 != 0, *a.add(l), *b.add(l));
            }
        }
    }
);

#[inline(always)]
unsafe fn store_compare(w: &mut Warp, i: &Inst, found: u32) {
    // SAFETY: predicates of the instruction are slots of the warp's registers (`Handler`).
    unsafe {
        let (mut p, mut q) = (found, !found);
        if i.c.is_some() {
            let c = w.predicate(i.c) ^ if i.flags & 4 != 0 { u32::MAX } else { 0 };
            match i.flags & 3 {
                1 => (p, q) = (p & c, q & c),
                2 => (p, q) = (p | c, q | c),
                _ => (p, q) = (p ^ c, q ^ c),
            }
        }
        w.set_predicate(i.d, p);
        if i.d2 != Slot::NONE {
            w.set_predicate(i.d2, q);
        }
    }
}
