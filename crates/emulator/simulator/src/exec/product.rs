//! `wgmma`: products of a warpgroup.
//!
//! A product is made when it is issued: a device may be that fast, and what a kernel reads too early is found by the checker
//! (`decode::warpgroup`). Products of elements are exact; sums are made in f32 in the order of k, as for `mma.sync`.

use super::lanes::{Bf16, F16, vectors};
use super::matrix::Layout;
use super::rounding::Half;
use super::tensor::Multiplicand;
use crate::FaultKind;
use crate::machine::{Inst, ProductRead, Slot, Warp, lanes};

/// The most steps of k.
const DEPTH: usize = 16;
/// The most columns, in eights.
const EIGHTS: usize = 32;

/// The options of a product, in the flags of its instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    /// Columns, in eights.
    pub(crate) eights: u32,
    pub(crate) input: Multiplicand,
    /// A and B are multiplied by -1.
    pub(crate) negate: [bool; 2],
    /// A and B run along the other side than k.
    pub(crate) transpose: [bool; 2],
}

impl Product {
    pub(crate) fn flags(self) -> u32 {
        let bits = [self.negate[0], self.negate[1], self.transpose[0], self.transpose[1]];
        let bits = bits
            .iter()
            .enumerate()
            .fold(0, |all, (n, bit)| all | u32::from(*bit) << n);
        self.eights | (self.input as u32) << 8 | bits << 12
    }

    fn of_flags(flags: u32) -> Product {
        let bit = |n: u32| flags >> (12 + n) & 1 != 0;
        Product {
            eights: flags & 0x3f,
            input: match flags >> 8 & 3 {
                0 => Multiplicand::F16,
                1 => Multiplicand::Bf16,
                _ => Multiplicand::Tf32,
            },
            negate: [bit(0), bit(1)],
            transpose: [bit(2), bit(3)],
        }
    }

    fn depth(self) -> usize {
        8 * self.input.packed()
    }
}

/// The rows of A that one warp multiplies, for the upper and the lower eight: a value of k for each lane, by the row of the
/// lane's results.
type Rows = [[[f32; 32]; DEPTH]; 2];
/// B, for eight columns and a step of k: the even columns, and the odd ones.
type Columns = [[f32; 4]; 2];

/// Makes the product for four warps. The list of the instruction has the accumulators' registers, and those of A where `a` is
/// nothing; otherwise `a` is the descriptor of A. `b` is that of B, and the predicate `c` keeps what the accumulators hold.
///
/// # Safety
/// As for a [`crate::machine::Handler`], for each of the warps.
pub(super) unsafe fn multiply(warps: &mut [Warp], i: &Inst) {
    let product = Product::of_flags(i.flags);
    let depth = product.depth();
    let (results, rest) = warps[0].list(i).split_at(4 * product.eights as usize);
    let mut reads = Vec::new();
    let mut columns = [[[0f32; 4]; 2]; EIGHTS * DEPTH];
    let mut rows: Rows = [[[0.0; 32]; DEPTH]; 2];
    let Some(b) = descriptor(warps, i.b, product.transpose[1]) else {
        return;
    };
    if !read_columns(&mut warps[0], product, b, &mut columns, &mut reads) {
        return;
    }
    let a = if i.a.is_some() {
        match descriptor(warps, i.a, product.transpose[0]) {
            Some(a) => Some(a),
            None => return,
        }
    } else {
        None
    };
    for (n, w) in warps.iter_mut().enumerate() {
        match a {
            Some(a) => {
                if !read_rows(w, product, (a, n), &mut rows, &mut reads) {
                    return;
                }
            }
            // SAFETY: the rest of the list are rows of u32 (`decode`).
            None => unsafe { take_rows(w, product, rest, &mut rows) },
        }
        // SAFETY: `c` is a predicate (`decode`).
        let keep = unsafe { w.predicate(i.c) };
        if keep != 0 && keep != u32::MAX {
            let lane = keep.trailing_ones() as usize;
            return w.fail(FaultKind::Warp, lane, "lanes of a wgmma differ in scale-d".to_string());
        }
        let keep = keep != 0;
        // SAFETY: the first part of the list are rows of f32 (`decode`); `vectors` finds the features.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if vectors() {
                accumulate_vector(w, results, depth, &rows, &columns, keep);
                continue;
            }
            accumulate(w, results, depth, &rows, &columns, keep);
        }
    }
    if warps[0].env().check && warps.iter().any(|w| !w.products.fenced) {
        let message = "a wgmma before the first wgmma.fence of its warps".to_string();
        return warps[0].fail(FaultKind::Asynchronous, 0, message);
    }
    tell(warps, results, &reads);
}

/// Tells the observer of the reads, and notes the registers that are not to be read yet.
fn tell(warps: &mut [Warp], results: &[Slot], reads: &[ProductRead]) {
    let Some(mut observer) = warps[0].observer else { return };
    for w in warps.iter_mut() {
        let frame = w.group_at_product();
        w.products.issue(frame, results);
        // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
        unsafe { observer.as_mut() }.together(w, u32::MAX, u32::MAX);
    }
    // SAFETY: as above.
    unsafe { observer.as_mut() }.product(&mut warps[0], reads);
}

/// The layout of a matrix, whose descriptor must be the same in all lanes of all warps; a fault otherwise.
fn descriptor(warps: &mut [Warp], slot: Slot, transposed: bool) -> Option<Layout> {
    // SAFETY: descriptors are rows of u64 (`decode`).
    let first = unsafe { *warps[0].row::<u64>(slot) };
    for w in warps.iter_mut() {
        // SAFETY: as above.
        let row = unsafe { *w.row::<[u64; 32]>(slot) };
        if let Some(lane) = row.iter().position(|d| *d != first) {
            let message = format!(
                "threads of a warpgroup differ in a descriptor: {first:#x} and {:#x}",
                row[lane]
            );
            w.fail(FaultKind::Warp, lane, message);
            return None;
        }
    }
    match Layout::of(first, transposed) {
        Ok(layout) => Some(layout),
        Err(message) => {
            warps[0].fail(FaultKind::Unsupported, 0, message.to_string());
            None
        }
    }
}

/// The elements of one chunk, with the sign of their matrix.
#[inline(always)]
fn elements(bytes: [u8; 16], input: Multiplicand, negate: bool) -> [f32; 8] {
    let sign = if negate { -1.0 } else { 1.0 };
    let half = |n: usize| u16::from_le_bytes([bytes[2 * n], bytes[2 * n + 1]]);
    let word = |n: usize| u32::from_le_bytes([bytes[4 * n], bytes[4 * n + 1], bytes[4 * n + 2], bytes[4 * n + 3]]);
    match input {
        Multiplicand::F16 => std::array::from_fn(|n| sign * F16(half(n)).wide()),
        Multiplicand::Bf16 => std::array::from_fn(|n| sign * Bf16(half(n)).wide()),
        // The lower 13 bits of an f32 are not read.
        Multiplicand::Tf32 => std::array::from_fn(|n| {
            if n < 4 {
                sign * f32::from_bits(word(n) & 0xffff_e000)
            } else {
                0.0
            }
        }),
    }
}

/// Reads chunks of shared memory: the elements of chunk `at.1` of line `at.0` go to `put`.
struct Reader<'a> {
    layout: Layout,
    product: Product,
    negate: bool,
    /// A bit for each warp that uses what is read.
    warps: u32,
    reads: &'a mut Vec<ProductRead>,
}

impl Reader<'_> {
    #[inline(always)]
    fn read(&mut self, w: &mut Warp, line: usize, chunk: usize) -> Option<[f32; 8]> {
        let offset = self.layout.chunk(line, chunk);
        if offset + 16 > w.shared_len {
            let message = format!(
                "out-of-bounds read of 16 bytes at {offset:#x} of {} bytes of shared memory, by a matrix descriptor",
                w.shared_len
            );
            w.fail(FaultKind::IllegalAddress, 0, message);
            return None;
        }
        if w.observer.is_some() {
            self.reads.push(ProductRead {
                offset: offset as u32,
                warps: self.warps,
            });
        }
        // SAFETY: the bytes lie inside of the block's shared memory, which its own thread alone uses.
        let bytes = unsafe { w.shared.add(offset as usize).cast::<[u8; 16]>().read() };
        Some(elements(bytes, self.product.input, self.negate))
    }
}

/// Reads B; `false` after a fault.
fn read_columns(
    w: &mut Warp,
    product: Product,
    layout: Layout,
    columns: &mut [Columns],
    reads: &mut Vec<ProductRead>,
) -> bool {
    let (depth, eights) = (product.depth(), product.eights as usize);
    let mut reader = Reader {
        layout,
        product,
        negate: product.negate[1],
        warps: 15,
        reads,
    };
    if product.transpose[1] {
        for k in 0..depth {
            for eight in 0..eights {
                let Some(v) = reader.read(w, k, eight) else {
                    return false;
                };
                columns[eight * depth + k] = [[v[0], v[2], v[4], v[6]], [v[1], v[3], v[5], v[7]]];
            }
        }
        return true;
    }
    let each = depth / 2;
    for column in 0..8 * eights {
        let (eight, pair, odd) = (column / 8, column % 8 / 2, column % 2);
        for chunk in 0..2 {
            let Some(v) = reader.read(w, column, chunk) else {
                return false;
            };
            for (k, value) in v[..each].iter().enumerate() {
                columns[eight * depth + chunk * each + k][odd][pair] = *value;
            }
        }
    }
    true
}

/// Reads the sixteen rows of A for the warp with this place in its warpgroup; `false` after a fault.
fn read_rows(
    w: &mut Warp,
    product: Product,
    (layout, place): (Layout, usize),
    rows: &mut Rows,
    reads: &mut Vec<ProductRead>,
) -> bool {
    let depth = product.depth();
    let mut reader = Reader {
        layout,
        product,
        negate: product.negate[0],
        warps: 1 << place,
        reads,
    };
    if product.transpose[0] {
        for k in 0..depth {
            for (half, rows) in rows.iter_mut().enumerate() {
                let Some(v) = reader.read(w, k, 2 * place + half) else {
                    return false;
                };
                for (lanes, value) in rows[k].chunks_exact_mut(4).zip(v) {
                    lanes.fill(value);
                }
            }
        }
        return true;
    }
    let each = depth / 2;
    for row in 0..16 {
        for chunk in 0..2 {
            let Some(v) = reader.read(w, 16 * place + row, chunk) else {
                return false;
            };
            for (k, value) in v[..each].iter().enumerate() {
                rows[row / 8][chunk * each + k][4 * (row % 8)..][..4].fill(*value);
            }
        }
    }
    true
}

/// Takes the rows of A out of the warp's registers.
///
/// # Safety
/// The slots are four rows of u32.
unsafe fn take_rows(w: &Warp, product: Product, slots: &[Slot], rows: &mut Rows) {
    let packed = product.input.packed();
    for (r, slot) in slots.iter().enumerate() {
        // SAFETY: the caller's contract.
        let words = unsafe { *w.row::<[u32; 32]>(*slot) };
        for (lane, word) in words.iter().enumerate() {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&word.to_le_bytes());
            let values = elements(bytes, product.input, product.negate[0]);
            for (e, value) in values[..packed].iter().enumerate() {
                let k = lane % 4 * packed + e + r / 2 * 4 * packed;
                rows[r % 2][k][4 * (lane / 4)..][..4].fill(*value);
            }
        }
    }
}

/// Adds the product to the results, or begins with it.
///
/// # Safety
/// The results are rows of f32, four for each eight columns.
unsafe fn accumulate(w: &Warp, results: &[Slot], depth: usize, rows: &Rows, columns: &[Columns], keep: bool) {
    for (four, columns) in results.chunks_exact(4).zip(columns.chunks_exact(depth)) {
        for (half, rows) in rows.iter().enumerate() {
            for odd in 0..2 {
                // SAFETY: the caller's contract.
                let d = unsafe { &mut *w.row::<[f32; 32]>(four[2 * half + odd]) };
                if !keep {
                    *d = [0.0; 32];
                }
                for (row, column) in rows[..depth].iter().zip(columns) {
                    for (l, (d, a)) in d.iter_mut().zip(row).enumerate() {
                        *d += a * column[odd][l % 4];
                    }
                }
            }
        }
    }
}

/// As [`accumulate`], for eight lanes at a time.
///
/// # Safety
/// As for [`accumulate`]; the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn accumulate_vector(w: &Warp, results: &[Slot], depth: usize, rows: &Rows, columns: &[Columns], keep: bool) {
    use std::arch::x86_64::{
        _mm_loadu_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set_m128, _mm256_setzero_ps, _mm256_storeu_ps,
    };
    for (four, columns) in results.chunks_exact(4).zip(columns.chunks_exact(depth)) {
        for (half, rows) in rows.iter().enumerate() {
            // SAFETY: the caller's contract; every row has 32 lanes, and every part of a column 4.
            unsafe {
                let d = [w.row::<f32>(four[2 * half]), w.row::<f32>(four[2 * half + 1])];
                let mut sums = [[_mm256_setzero_ps(); 4]; 2];
                if keep {
                    for (sums, d) in sums.iter_mut().zip(d) {
                        for (part, sum) in sums.iter_mut().enumerate() {
                            *sum = _mm256_loadu_ps(d.add(8 * part));
                        }
                    }
                }
                for (row, [even, odd]) in rows[..depth].iter().zip(columns) {
                    let (even, odd) = (_mm_loadu_ps(even.as_ptr()), _mm_loadu_ps(odd.as_ptr()));
                    let (even, odd) = (_mm256_set_m128(even, even), _mm256_set_m128(odd, odd));
                    let [evens, odds] = &mut sums;
                    for (part, (even_sum, odd_sum)) in evens.iter_mut().zip(odds).enumerate() {
                        let a = _mm256_loadu_ps(row.as_ptr().add(8 * part));
                        *even_sum = _mm256_fmadd_ps(a, even, *even_sum);
                        *odd_sum = _mm256_fmadd_ps(a, odd, *odd_sum);
                    }
                }
                for (sums, d) in sums.iter().zip(d) {
                    for (part, sum) in sums.iter().enumerate() {
                        _mm256_storeu_ps(d.add(8 * part), *sum);
                    }
                }
            }
        }
    }
}

/// `wgmma.mma_async`, which the block carries out by [`multiply`].
pub(crate) unsafe fn issued_by_the_block(_: &mut Warp, _: &Inst) {}

/// `wgmma.commit_group`.
pub(crate) unsafe fn commit(w: &mut Warp, _: &Inst) {
    if super::tensor::whole(w) {
        w.products.committed += 1;
    }
}

/// `wgmma.wait_group imm`: all groups but the last `imm` are complete.
pub(crate) unsafe fn wait(w: &mut Warp, i: &Inst) {
    if !super::tensor::whole(w) {
        return;
    }
    let complete = w.products.committed.saturating_sub(i.imm as u32);
    w.products.complete = w.products.complete.max(complete);
    if let Some(mut observer) = w.observer {
        // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
        unsafe { observer.as_mut() }.products_done(w, complete);
    }
}

/// `wgmma.fence`.
pub(crate) unsafe fn fence(w: &mut Warp, _: &Inst) {
    if super::tensor::whole(w) {
        w.products.fenced = true;
    }
}

/// `setmaxnreg`, of which there is nothing to do but that whole warps carry it out.
pub(crate) unsafe fn whole_warp(w: &mut Warp, _: &Inst) {
    super::tensor::whole(w);
}

/// Registers that may not be read while a product into them is under way: a fault if one of the list is.
pub(crate) unsafe fn read_results(w: &mut Warp, i: &Inst) {
    let frame = w.group.frame;
    if w.list(i).iter().any(|slot| w.products.pending(frame, *slot)) {
        let lane = lanes(w.mask).next().unwrap_or(0);
        let message = "a read of an accumulator of wgmma before wgmma.wait_group".to_string();
        w.fail(FaultKind::Asynchronous, lane, message);
    }
}

/// A move of a register (`a`) to another (`d`), which passes on that a product into it is under way.
pub(crate) unsafe fn move_result(w: &mut Warp, i: &Inst) {
    let frame = w.group.frame;
    w.products.copy(frame, i.a, i.d);
}
