//! A list of tensors for one launch: optimizer updates, casts and copies of many tensors at once.
//!
//! The list travels inside the launch's parameters, so nothing is uploaded and a captured step keeps it. What fits in 4 KiB is one launch.

use bytemuck::{Pod, Zeroable};
use kiln_core::{Error, Result};
use kiln_device::Geometry;

/// Elements of one block's work: `CHUNK` of the kernels.
pub(crate) const CHUNK: u64 = 4096;
/// Words of a launch's list.
pub(crate) const WORDS: usize = 500;

/// A launch's list: for each tensor a record of addresses, elements and first chunk, with a last word for the copy in half precision if
/// any parameter has one.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Tensors {
    count: u32,
    halves: u32,
    words: [u64; WORDS],
}
const _: () = assert!(size_of::<Tensors>() == 4008);

impl Tensors {
    /// The list of tensors with these addresses, number of elements each, and copies in half precision, and the number of chunks they
    /// have together. Either all have a word for a copy, or none.
    pub(crate) fn of<R: Iterator<Item = u64>>(tensors: impl Iterator<Item = (R, usize, Option<u64>)>) -> (Self, u64) {
        let mut list = Tensors::zeroed();
        let (mut words, mut chunks) = (list.words.iter_mut(), 0);
        for (addresses, n, half) in tensors {
            let n = n as u64;
            list.halves = u32::from(half.is_some());
            // The values are the first side of the zip: when they end, no word has been taken.
            for (value, word) in addresses.chain([n, chunks]).chain(half).zip(words.by_ref()) {
                *word = value;
            }
            chunks += n.div_ceil(CHUNK);
            list.count += 1;
        }
        (list, chunks)
    }
}

/// A grid with a block for each chunk; `lens` are the elements of the tensors, for the error of too many.
pub(crate) fn chunks_of(op: &'static str, chunks: u64, lens: impl Fn() -> Vec<usize>) -> Result<Geometry> {
    let blocks = u32::try_from(chunks).ok().filter(|&n| n <= i32::MAX as u32);
    let blocks = blocks.ok_or_else(|| Error::TooLarge { op, dims: lens() })?;
    Ok(Geometry {
        grid: [blocks, 1, 1],
        block: [256, 1, 1],
        shared: 0,
    })
}
