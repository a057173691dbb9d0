//! The instruction sets that kernels are written for, and detection of those of this machine.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Isa {
    /// The instruction sets of this machine, the widest first.
    pub(crate) fn available() -> Vec<Isa> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                found.push(Isa::Avx512);
            }
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if avx2 && is_x86_feature_detected!("f16c") {
                found.push(Isa::Avx2);
            }
        }
        found.push(Isa::Portable);
        found
    }

    /// The name: `avx512`, `avx2` or `portable`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
        }
    }
}

/// True if this machine multiplies pairs of bfloat16 in registers of AVX-512.
pub(crate) fn has_bf16_pairs() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Declares `fn $all`, which returns the tables of kernels for the instruction sets of this machine, the widest first.
macro_rules! by_isa {
    (fn $all:ident() -> $table:ty, $portable:ident, $avx2:ident, $avx512:ident) => {
        fn $all() -> &'static [&'static $table] {
            use crate::simd::isa::Isa;
            static FOUND: std::sync::OnceLock<Vec<&'static $table>> = std::sync::OnceLock::new();
            FOUND.get_or_init(|| {
                let table = |isa: Isa| match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => &$avx512,
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => &$avx2,
                    Isa::Portable => &$portable,
                };
                Isa::available().into_iter().map(table).collect()
            })
        }
    };
}
pub(crate) use by_isa;

/// Runs `f`, compiled for the widest vector units of this machine. `f` and all that it calls must be
/// `#[inline(always)]`.
#[inline(always)]
pub(crate) fn vectorized<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
        fn avx512<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
        fn avx2<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        match units() {
            // SAFETY: `units` found every feature that the function enables.
            Units::Avx512 => return unsafe { avx512(f) },
            // SAFETY: as above.
            Units::Avx2 => return unsafe { avx2(f) },
            Units::Baseline => {}
        }
    }
    f()
}

/// The vector units that [`vectorized`] compiles for.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
enum Units {
    Avx512,
    Avx2,
    Baseline,
}

#[cfg(target_arch = "x86_64")]
fn units() -> Units {
    static FOUND: OnceLock<Units> = OnceLock::new();
    *FOUND.get_or_init(|| {
        macro_rules! all {
            ($($feature:tt)+) => { $(is_x86_feature_detected!($feature))&&+ };
        }
        if !all!("avx2" "fma" "bmi1" "bmi2" "lzcnt" "popcnt") {
            Units::Baseline
        } else if all!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl") {
            Units::Avx512
        } else {
            Units::Avx2
        }
    })
}
