//! `setp` and `set`.
#![expect(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::double_comparisons,
    reason = "an unordered comparison is the negation of the opposite"
)]

use kiln_ptx::Opcode;

use super::lanes::{Bf16, F16, Plan, compare};
use super::rounding::Half;

macro_rules! floats {
    ($name:expr, $t:ty, $wide:expr) => {{
        match $name {
            "eq" => compare(|a: $t, b: $t| $wide(a) == $wide(b)),
            "ne" => compare(|a: $t, b: $t| $wide(a) < $wide(b) || $wide(a) > $wide(b)),
            "lt" => compare(|a: $t, b: $t| $wide(a) < $wide(b)),
            "le" => compare(|a: $t, b: $t| $wide(a) <= $wide(b)),
            "gt" => compare(|a: $t, b: $t| $wide(a) > $wide(b)),
            "ge" => compare(|a: $t, b: $t| $wide(a) >= $wide(b)),
            "equ" => compare(|a: $t, b: $t| !($wide(a) < $wide(b) || $wide(a) > $wide(b))),
            "neu" => compare(|a: $t, b: $t| $wide(a) != $wide(b)),
            "ltu" => compare(|a: $t, b: $t| !($wide(a) >= $wide(b))),
            "leu" => compare(|a: $t, b: $t| !($wide(a) > $wide(b))),
            "gtu" => compare(|a: $t, b: $t| !($wide(a) <= $wide(b))),
            "geu" => compare(|a: $t, b: $t| !($wide(a) < $wide(b))),
            "num" => compare(|a: $t, b: $t| !$wide(a).is_nan() && !$wide(b).is_nan()),
            "nan" => compare(|a: $t, b: $t| $wide(a).is_nan() || $wide(b).is_nan()),
            _ => return None,
        }
    }};
}

macro_rules! integers {
    ($name:expr, $t:ty) => {
        match $name {
            "eq" => compare(|a: $t, b: $t| a == b),
            "ne" => compare(|a: $t, b: $t| a != b),
            "lt" | "lo" => compare(|a: $t, b: $t| a < b),
            "le" | "ls" => compare(|a: $t, b: $t| a <= b),
            "gt" | "hi" => compare(|a: $t, b: $t| a > b),
            "ge" | "hs" => compare(|a: $t, b: $t| a >= b),
            _ => return None,
        }
    };
}

fn same(a: f32) -> f32 {
    a
}

fn same64(a: f64) -> f64 {
    a
}

/// A denormal counts as zero.
fn flushed(a: f32) -> f32 {
    super::rounding::flush(a, super::rounding::FTZ)
}

/// The plan of a comparison, if it is one. A combining operand is the third source, a predicate (`Plan::flags`).
pub(crate) fn select(op: &Opcode<'_>) -> Option<Plan> {
    if op.name != "setp" {
        return None;
    }
    let name = op.modifiers.first().copied()?;
    let plan = match op.ty() {
        "f32" if op.has("ftz") => floats!(name, f32, flushed),
        "f32" => floats!(name, f32, same),
        "f64" => floats!(name, f64, same64),
        "f16" => floats!(name, F16, Half::wide),
        "bf16" => floats!(name, Bf16, Half::wide),
        "s16" => integers!(name, i16),
        "u16" | "b16" => integers!(name, u16),
        "s32" => integers!(name, i32),
        "u32" | "b32" => integers!(name, u32),
        "s64" => integers!(name, i64),
        "u64" | "b64" => integers!(name, u64),
        _ => return None,
    };
    Some(plan.flags(combine(op)))
}

/// `and`, `or` or `xor` with a predicate, as `lanes::compare` has it.
pub(crate) fn combine(op: &Opcode<'_>) -> u32 {
    match op.modifiers.get(1).copied() {
        Some("and") => 1,
        Some("or") => 2,
        Some("xor") => 3,
        _ => 0,
    }
}

/// The relation by which a lane of `set` compares two packed halves.
pub(crate) fn relation(name: &str) -> Option<fn(f32, f32) -> bool> {
    Some(match name {
        "eq" => |a, b| a == b,
        "ne" => |a, b| a < b || a > b,
        "lt" => |a, b| a < b,
        "le" => |a, b| a <= b,
        "gt" => |a, b| a > b,
        "ge" => |a, b| a >= b,
        "equ" => |a: f32, b: f32| a == b || a.is_nan() || b.is_nan(),
        "neu" => |a, b| a != b,
        "ltu" => |a: f32, b: f32| a < b || a.is_nan() || b.is_nan(),
        "leu" => |a: f32, b: f32| a <= b || a.is_nan() || b.is_nan(),
        "gtu" => |a: f32, b: f32| a > b || a.is_nan() || b.is_nan(),
        "geu" => |a: f32, b: f32| a >= b || a.is_nan() || b.is_nan(),
        "num" => |a: f32, b: f32| !a.is_nan() && !b.is_nan(),
        "nan" => |a: f32, b: f32| a.is_nan() || b.is_nan(),
        _ => return None,
    })
}
