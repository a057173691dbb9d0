//! Dispatch from the dtype tag to the Rust type, once per op.

/// Runs `$body` with `$T` bound to the float type of `$dtype`; the checks of the op have excluded integers.
macro_rules! float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            kiln_core::DType::F32 => {
                type $T = f32;
                $body
            }
            kiln_core::DType::F64 => {
                type $T = f64;
                $body
            }
            kiln_core::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            kiln_core::DType::F16 => {
                type $T = half::f16;
                $body
            }
            other => unreachable!("float op on {other}: refused where the tensor was made"),
        }
    };
}

/// Runs `$body` with `$T` bound to the type of `$dtype`, any dtype.
macro_rules! any {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            kiln_core::DType::I32 => {
                type $T = i32;
                $body
            }
            kiln_core::DType::U8 => {
                type $T = u8;
                $body
            }
            other => crate::dispatch::float!(other, $T => $body),
        }
    };
}

#[allow(unused_imports)]
pub(crate) use {any, float};
