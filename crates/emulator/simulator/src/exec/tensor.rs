//! Tensor cores: `mma.sync`, `ldmatrix` and `stmatrix`.
//!
//! Products are exact; sums are made in f32 in the order of k (f64 sums rounded once for the f16 accumulator would be
//! no closer to the hardware, whose order is not documented).

use super::lanes::{Bf16, F16};
use super::rounding::Half;
use crate::FaultKind;
use crate::machine::{Inst, Pattern, Warp, lanes};

/// The type of the multiplicands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Multiplicand {
    F16,
    Bf16,
    Tf32,
}

impl Multiplicand {
    /// The type with this name.
    pub(crate) fn named(name: &str) -> Option<Multiplicand> {
        match name {
            "f16" => Some(Multiplicand::F16),
            "bf16" => Some(Multiplicand::Bf16),
            "tf32" => Some(Multiplicand::Tf32),
            _ => None,
        }
    }

    /// The elements of a register of 32 bits.
    pub(crate) fn packed(self) -> usize {
        if self == Multiplicand::Tf32 { 1 } else { 2 }
    }
}

/// Bits of the flags of `mma`: depth in 0…7, the multiplicands in 8…9; bit 10 if C is f16, bit 11 if D is.
pub(crate) fn mma_flags(k: u32, input: Multiplicand, c_half: bool, d_half: bool) -> u32 {
    k | (input as u32) << 8 | u32::from(c_half) << 10 | u32::from(d_half) << 11
}

/// `mma.sync.aligned.m16n8kK.row.col`: lists of D, A, B and C registers, one after the other.
pub(crate) unsafe fn mma(w: &mut Warp, i: &Inst) {
    if !whole(w) {
        return;
    }
    let k = (i.flags & 0xff) as usize;
    let (c_half, d_half) = (i.flags >> 10 & 1 != 0, i.flags >> 11 & 1 != 0);
    let tf32 = i.flags >> 8 & 3 == Multiplicand::Tf32 as u32;
    // Elements of a register, and how many registers A, B, C and D have.
    let packed = if tf32 { 1 } else { 2 };
    let (na, nb) = (16 * k / 32 / packed, 8 * k / 32 / packed);
    let (nc, nd) = (if c_half { 2 } else { 4 }, if d_half { 2 } else { 4 });
    let list = w.list(i);
    let mut a = [[0f32; 16]; 16];
    let mut b = [[0f32; 8]; 16];
    let mut c = [[0f32; 8]; 16];
    // SAFETY: the list holds rows of u32, as many as counted here (`decode`).
    unsafe {
        for l in 0..32 {
            let (group, t) = (l / 4, l % 4);
            let word = |at: usize| *w.row::<u32>(list[at]).add(l);
            for r in 0..na {
                let row = group + 8 * (r & 1);
                for e in 0..packed {
                    let col = t * packed + e + (r >> 1) * 4 * packed;
                    a[row][col] = element(word(nd + r), e, i.flags);
                }
            }
            for r in 0..nb {
                for e in 0..packed {
                    let row = t * packed + e + r * 4 * packed;
                    b[row][group] = element(word(nd + na + r), e, i.flags);
                }
            }
            for r in 0..4 {
                let (row, col) = (group + 8 * (r >> 1), t * 2 + (r & 1));
                c[row][col] = if c_half {
                    let pair = word(nd + na + nb + (r >> 1));
                    F16((pair >> (16 * (r & 1))) as u16).wide()
                } else {
                    f32::from_bits(word(nd + na + nb + r))
                };
            }
        }
        debug_assert_eq!(list.len(), nd + na + nb + nc);
        for row in 0..16 {
            for kk in 0..k {
                let x = a[row][kk];
                for col in 0..8 {
                    c[row][col] += x * b[kk][col];
                }
            }
        }
        for l in 0..32 {
            let (group, t) = (l / 4, l % 4);
            for r in 0..2 {
                let pair = [c[group + 8 * r][t * 2], c[group + 8 * r][t * 2 + 1]];
                if d_half {
                    let bits = u32::from(F16::narrow(pair[0]).0) | u32::from(F16::narrow(pair[1]).0) << 16;
                    *w.row::<u32>(list[r]).add(l) = bits;
                } else {
                    *w.row::<f32>(list[2 * r]).add(l) = pair[0];
                    *w.row::<f32>(list[2 * r + 1]).add(l) = pair[1];
                }
            }
        }
    }
}

/// One multiplicand of a register.
fn element(word: u32, at: usize, flags: u32) -> f32 {
    match flags >> 8 & 3 {
        0 => F16((word >> (16 * at)) as u16).wide(),
        1 => Bf16((word >> (16 * at)) as u16).wide(),
        // The lower 13 bits of an f32 are not read.
        _ => f32::from_bits(word & 0xffff_e000),
    }
}

/// True if all lanes are here; a fault when they are not.
pub(super) fn whole(w: &mut Warp) -> bool {
    if w.mask != u32::MAX {
        let lane = w.mask.trailing_zeros() as usize;
        let message = format!("a tensor instruction that only lanes {:#010x} reach", w.mask);
        w.fail(FaultKind::Warp, lane, message);
        return false;
    }
    true
}

/// `ldmatrix`: lanes 8m … 8m+7 hold the addresses of the rows of matrix m; the list holds a register for each matrix.
/// Flag bit 16 transposes.
pub(crate) unsafe fn ldmatrix(w: &mut Warp, i: &Inst) {
    if !whole(w) {
        return;
    }
    let list = w.list(i);
    let rows = list.len() * 8;
    // SAFETY: `locate` checks the 16 bytes of each row whose lane is in the mask; the list holds rows of u32.
    unsafe {
        w.mask = if rows >= 32 { u32::MAX } else { (1 << rows) - 1 };
        let found = (i.locate)(w, i);
        let from = w.pointers;
        w.mask = u32::MAX;
        if !found {
            return;
        }
        debug_assert!(matches!(
            w.pattern,
            Pattern::Scattered | Pattern::Contiguous | Pattern::Uniform
        ));
        for (m, slot) in list.iter().enumerate() {
            let at = |row: usize, col: usize| (from[8 * m + row] as *const u16).add(col).read();
            let d = w.row::<u32>(*slot);
            for l in lanes(u32::MAX) {
                let (row, col) = (l / 4, 2 * (l % 4));
                let (low, high) = if i.flags >> 16 & 1 != 0 {
                    (at(col, row), at(col + 1, row))
                } else {
                    (at(row, col), at(row, col + 1))
                };
                *d.add(l) = u32::from(low) | u32::from(high) << 16;
            }
        }
    }
}

/// `stmatrix`: the reverse of [`ldmatrix`], with the same operands.
pub(crate) unsafe fn stmatrix(w: &mut Warp, i: &Inst) {
    if !whole(w) {
        return;
    }
    let list = w.list(i);
    let rows = list.len() * 8;
    // SAFETY: `locate` checks the 16 bytes of each row whose lane is in the mask; the list holds rows of u32.
    unsafe {
        w.mask = if rows >= 32 { u32::MAX } else { (1 << rows) - 1 };
        let found = (i.locate)(w, i);
        let to = w.pointers;
        w.mask = u32::MAX;
        if !found {
            return;
        }
        for (m, slot) in list.iter().enumerate() {
            let s = w.row::<u32>(*slot);
            for l in lanes(u32::MAX) {
                let word = *s.add(l);
                for (e, half) in [word as u16, (word >> 16) as u16].into_iter().enumerate() {
                    let (row, col) = (l / 4, 2 * (l % 4) + e);
                    let (row, col) = if i.flags >> 16 & 1 != 0 { (col, row) } else { (row, col) };
                    (to[8 * m + row] as *mut u16).add(col).write(half);
                }
            }
        }
    }
}
