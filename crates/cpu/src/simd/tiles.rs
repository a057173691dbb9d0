//! The matrix unit of Intel's processors (AMX): eight tiles of 16 rows of 64 bytes, and an instruction that multiplies two
//! tiles of bfloat16 and adds the product to a tile of f32.
//!
//! The state of the tiles is large, so a process has to ask its operating system before it uses them. Only Linux is asked here.

use std::sync::OnceLock;

/// The number of rows of a tile, and of words (an f32 or two bfloat16) in a row.
pub(crate) const SIDE: usize = 16;

/// True if this machine has the unit for bfloat16, and the operating system lets this process use it.
pub(crate) fn available() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(found)
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
fn found() -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
fn found() -> bool {
    use crate::simd::cpuid;
    // XCR0's bits for the configuration and the data of tiles.
    const TILES: u64 = 3 << 17;
    /// The request for a permission to use a feature, and the number of the feature: the data of tiles.
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // The loops around the unit are compiled for AVX-512.
    if !is_x86_feature_detected!("avx512f") || !cpuid::has_bf16_tiles() || cpuid::enabled_features() & TILES != TILES {
        return false;
    }
    // SAFETY: the call takes two numbers and changes what this process may use, nothing in its memory.
    let refused = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
    refused == 0
}

/// The tiles of this thread, configured as eight of [`SIDE`] rows of 64 bytes until this is dropped.
pub(crate) struct Tiles(std::marker::PhantomData<*const ()>);

/// Two or one tiles of rows of A, by two or one of columns of B: the operands of [`Tiles::multiply`], all in words.
pub(crate) struct TileProduct {
    /// `[16 · rows, words]`, rows `a_step` apart.
    pub(crate) a: *const f32,
    pub(crate) a_step: usize,
    /// `[words, 16 · columns]`, rows adjacent.
    pub(crate) b: *const f32,
    /// The number of words of k, a multiple of 16 above 0.
    pub(crate) words: usize,
    /// `[16 · rows, 16 · columns]`, rows `c_step` apart.
    pub(crate) c: *mut f32,
    pub(crate) c_step: usize,
    /// The number of tiles, 1 or 2.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// True to add the product to C instead of overwriting C.
    pub(crate) add: bool,
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
impl Tiles {
    pub(crate) fn configure() -> Self {
        unreachable!("tiles are chosen where `available` is true")
    }

    pub(crate) unsafe fn multiply(&self, _: &TileProduct) {}
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod amx {
    use super::{SIDE, TileProduct, Tiles, available};
    use std::arch::asm;
    use std::marker::PhantomData;

    /// The operand of `ldtilecfg`.
    #[repr(C, align(64))]
    struct Config {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    static CONFIG: Config = {
        let (mut row_bytes, mut rows, mut i) = ([0; 16], [0; 16], 0);
        while i < 8 {
            row_bytes[i] = 64;
            rows[i] = SIDE as u8;
            i += 1;
        }
        Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes,
            rows,
        }
    };

    /// A loop over k with the tiles of C in registers. `$load` and `$store` move them, `$zero` clears them, `$step` adds the
    /// product of 16 words of k.
    macro_rules! product {
        ($t:ident, $columns:literal, $zero:literal, $load:literal, $step:literal, $store:literal) => {
            asm!(
                // A comment, since every operand has to be mentioned, and a single row of tiles has no second one.
                "# {a1} {c1}",
                "test {add:e}, {add:e}",
                "jz 2f",
                $load,
                "jmp 3f",
                "2:",
                $zero,
                "3:",
                $step,
                "add {a}, 64",
                "add {a1}, 64",
                concat!("add {b}, 1024*", $columns),
                "dec {n}",
                "jnz 3b",
                $store,
                a = inout(reg) $t.a => _,
                a1 = inout(reg) $t.a.wrapping_add(SIDE * $t.a_step) => _,
                a_step = in(reg) 4 * $t.a_step,
                b = inout(reg) $t.b => _,
                b_step = in(reg) 64usize * $columns,
                c = in(reg) $t.c,
                c1 = in(reg) $t.c.wrapping_add(SIDE * $t.c_step),
                c_step = in(reg) 4 * $t.c_step,
                n = inout(reg) $t.words / SIDE => _,
                add = in(reg) u32::from($t.add),
                options(nostack),
            )
        };
    }

    impl Tiles {
        /// Configures the tiles of this thread.
        ///
        /// # Panics
        /// If they are not [`available`]: a bug in the plan.
        pub(crate) fn configure() -> Self {
            assert!(available(), "tiles are chosen where they are available");
            // SAFETY: the machine and the operating system were asked; the operand is a valid configuration. Compiled code does
            // not use tiles.
            unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
            Tiles(PhantomData)
        }

        /// `C (+)= A·B`, where a word of A or B is a pair of bfloat16, and of C an f32. Sums are of f32 and rounded to the
        /// nearest; subnormal operands and results are zeros.
        ///
        /// # Safety
        /// Every element that [`TileProduct`] names is readable, those of C also writable, and nobody else accesses C.
        #[inline]
        pub(crate) unsafe fn multiply(&self, t: &TileProduct) {
            debug_assert!(t.words > 0 && t.words.is_multiple_of(SIDE));
            // SAFETY: the caller's contract; the tiles are configured as long as `self` lives, on this thread alone.
            unsafe {
                match (t.rows, t.columns) {
                    (2, 2) => product!(
                        t,
                        2,
                        "tilezero tmm0\n tilezero tmm1\n tilezero tmm2\n tilezero tmm3",
                        "tileloadd tmm0, [{c} + {c_step}*1]\n tileloadd tmm1, [{c} + {c_step}*1 + 64]
                         tileloadd tmm2, [{c1} + {c_step}*1]\n tileloadd tmm3, [{c1} + {c_step}*1 + 64]",
                        "tileloadd tmm4, [{a} + {a_step}*1]\n tileloadd tmm6, [{b} + {b_step}*1]
                         tdpbf16ps tmm0, tmm4, tmm6\n tileloadd tmm7, [{b} + {b_step}*1 + 64]
                         tdpbf16ps tmm1, tmm4, tmm7\n tileloadd tmm5, [{a1} + {a_step}*1]
                         tdpbf16ps tmm2, tmm5, tmm6\n tdpbf16ps tmm3, tmm5, tmm7",
                        "tilestored [{c} + {c_step}*1], tmm0\n tilestored [{c} + {c_step}*1 + 64], tmm1
                         tilestored [{c1} + {c_step}*1], tmm2\n tilestored [{c1} + {c_step}*1 + 64], tmm3"
                    ),
                    (2, _) => product!(
                        t,
                        1,
                        "tilezero tmm0\n tilezero tmm2",
                        "tileloadd tmm0, [{c} + {c_step}*1]\n tileloadd tmm2, [{c1} + {c_step}*1]",
                        "tileloadd tmm4, [{a} + {a_step}*1]\n tileloadd tmm6, [{b} + {b_step}*1]
                         tileloadd tmm5, [{a1} + {a_step}*1]
                         tdpbf16ps tmm0, tmm4, tmm6\n tdpbf16ps tmm2, tmm5, tmm6",
                        "tilestored [{c} + {c_step}*1], tmm0\n tilestored [{c1} + {c_step}*1], tmm2"
                    ),
                    (_, 2) => product!(
                        t,
                        2,
                        "tilezero tmm0\n tilezero tmm1",
                        "tileloadd tmm0, [{c} + {c_step}*1]\n tileloadd tmm1, [{c} + {c_step}*1 + 64]",
                        "tileloadd tmm4, [{a} + {a_step}*1]\n tileloadd tmm6, [{b} + {b_step}*1]
                         tileloadd tmm7, [{b} + {b_step}*1 + 64]
                         tdpbf16ps tmm0, tmm4, tmm6\n tdpbf16ps tmm1, tmm4, tmm7",
                        "tilestored [{c} + {c_step}*1], tmm0\n tilestored [{c} + {c_step}*1 + 64], tmm1"
                    ),
                    _ => product!(
                        t,
                        1,
                        "tilezero tmm0",
                        "tileloadd tmm0, [{c} + {c_step}*1]",
                        "tileloadd tmm4, [{a} + {a_step}*1]\n tileloadd tmm6, [{b} + {b_step}*1]
                         tdpbf16ps tmm0, tmm4, tmm6",
                        "tilestored [{c} + {c_step}*1], tmm0"
                    ),
                }
            }
        }
    }

    impl Drop for Tiles {
        fn drop(&mut self) {
            // SAFETY: as in `configure`.
            unsafe { asm!("tilerelease", options(nostack, nomem)) };
        }
    }
}
