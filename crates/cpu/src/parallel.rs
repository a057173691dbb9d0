//! Splits work into chunks. Chunks depend on sizes alone, never on the number of threads; small work stays on one thread.
//!
//! Every chunk is a task that any idle thread can take (`with_max_len(1)`). By default rayon gives a thread several chunks
//! at once, and at the end other threads wait for it.
//!
//! Every function passes its closure to rayon as a `dyn Fn`: one dynamic call per chunk costs nothing, and rayon's code
//! is compiled once per element type rather than once per kernel.

use crate::fork::in_pool;
use crate::interrupt;
use rayon::prelude::*;

/// The number of elementary operations in a chunk: its operands, half a megabyte at most, stay in the L2 cache.
pub(crate) const GRAIN: usize = 1 << 15;

/// The number of vectorised elementary operations below which starting threads costs more than it saves. Entering a
/// parallel region took 10 µs on two cores of a Zen 4, in which one of them adds 10⁵ pairs of numbers.
pub(crate) const THREADS: usize = 1 << 17;

/// Runs `f(first_index, chunk)` over `y`: as one chunk if the work is at most [`THREADS`], otherwise in parallel over
/// chunks of half of that. `cost` is the work of one element relative to one multiplication; the sizes of chunks are
/// multiples of `unit`.
pub(crate) fn chunks_mut<T: Send>(y: &mut [T], unit: usize, cost: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    let cost = cost.max(1);
    if y.len() <= THREADS / cost {
        if !y.is_empty() {
            f(0, y);
        }
        return;
    }
    let size = (THREADS / 2 / cost).max(1).next_multiple_of(unit.max(1));
    each_mut(y, size, y.len() > size, &|i, chunk| f(i * size, chunk));
}

/// The size of a chunk of a copy in bytes; up to twice this is copied by one thread.
const COPY: usize = 1 << 18;

/// Copies bytes, in parallel chunks if there are many.
pub(crate) fn copy_bytes(src: &[u8], dst: &mut [u8]) {
    debug_assert_eq!(src.len(), dst.len());
    let parallel = dst.len() > 2 * COPY;
    each_mut(dst, COPY, parallel, &|i, dst| {
        dst.copy_from_slice(&src[i * COPY..][..dst.len()])
    });
}

/// Runs `f(first_index, chunk)` over chunks of `size` elements of `y`, in parallel if `parallel`; stops at an error.
pub(crate) fn try_chunks_mut<T: Send>(
    y: &mut [T],
    size: usize,
    parallel: bool,
    f: impl Fn(usize, &mut [T]) -> kiln_core::Result<()> + Sync,
) -> kiln_core::Result<()> {
    let size = size.max(1);
    let parallel = parallel && y.len() > size;
    let interrupt = interrupt::current();
    try_each_mut(y, size, parallel, &|i, chunk| {
        interrupt::look(&interrupt)?;
        f(i * size, chunk)
    })
}

/// Runs `f(first_index, a_chunk, b_chunk)` over chunks of `size` elements of two slices of one length, in parallel
/// when there is more than one.
pub(crate) fn pair_chunks_mut<A: Send, B: Send>(
    a: &mut [A],
    b: &mut [B],
    size: usize,
    f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    debug_assert_eq!(a.len(), b.len());
    let size = size.max(1);
    zip2_mut((a, size), (b, size), |i, a, b| f(i * size, a, b));
}

/// The number of rows in a chunk, for `rows` rows of `width` elements: all if their work is at most [`THREADS`], otherwise
/// as many as make up half of that, at least one.
pub(crate) fn rows_per_chunk(rows: usize, width: usize, cost: usize) -> usize {
    let cost = cost.max(1) * width.max(1);
    if rows <= THREADS / cost {
        rows.max(1)
    } else {
        (THREADS / 2 / cost).max(1)
    }
}

/// Runs `f(i, a_i, b_i)` over chunk `i` of `a` (of `la` elements) and of `b` (of `lb`), in parallel when there is more
/// than one.
pub(crate) fn zip2_mut<A: Send, B: Send>(
    (a, la): (&mut [A], usize),
    (b, lb): (&mut [B], usize),
    f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    if a.len() > la {
        zip2_parallel((a, la), (b, lb), &f);
    } else if !a.is_empty() {
        f(0, a, b);
    }
}

/// As [`zip2_mut`], in parallel only if `parallel`; stops at an error.
pub(crate) fn try_zip2_mut<A: Send, B: Send>(
    (a, la): (&mut [A], usize),
    (b, lb): (&mut [B], usize),
    parallel: bool,
    f: impl Fn(usize, &mut [A], &mut [B]) -> kiln_core::Result<()> + Sync,
) -> kiln_core::Result<()> {
    let interrupt = interrupt::current();
    let each = |i: usize, a: &mut [A], b: &mut [B]| {
        interrupt::look(&interrupt)?;
        f(i, a, b)
    };
    match parallel && a.len() > la {
        true => try_zip2_parallel((a, la), (b, lb), &each),
        false => {
            let both = a.chunks_mut(la).zip(b.chunks_mut(lb)).enumerate();
            both.into_iter().try_for_each(|(i, (a, b))| each(i, a, b))
        }
    }
}

/// As [`zip2_mut`], over three slices.
pub(crate) fn zip3_mut<A: Send, B: Send, C: Send>(
    (a, la): (&mut [A], usize),
    (b, lb): (&mut [B], usize),
    (c, lc): (&mut [C], usize),
    f: impl Fn(usize, &mut [A], &mut [B], &mut [C]) + Sync,
) {
    if a.len() > la {
        zip3_parallel((a, la), (b, lb), (c, lc), &f);
    } else if !a.is_empty() {
        f(0, a, b, c);
    }
}

/// Runs `f(i, item)` over the items of `size` elements that make up `y`, in parallel if their total `work` is worth
/// starting threads.
pub(crate) fn items_mut<T: Send>(y: &mut [T], size: usize, work: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    each_mut(y, size.max(1), y.len() > size && work > THREADS, &f);
}

/// Calls `f(i)` for every `i < n`, in parallel; stops at an error.
pub(crate) fn try_each(n: usize, f: &(dyn Fn(usize) -> kiln_core::Result<()> + Sync)) -> kiln_core::Result<()> {
    let interrupt = interrupt::current();
    in_pool(|| {
        (0..n).into_par_iter().with_max_len(1).try_for_each(|i| {
            interrupt::look(&interrupt)?;
            f(i)
        })
    })
}

/// Runs `a` and `b`, in parallel if a thread is idle.
pub(crate) fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    in_pool(|| rayon::join(a, b))
}

/// A kernel over chunk `i` of two slices.
type Kernel2<'f, A, B> = &'f (dyn Fn(usize, &mut [A], &mut [B]) + Sync);
/// A kernel over chunk `i` of three slices.
type Kernel3<'f, A, B, C> = &'f (dyn Fn(usize, &mut [A], &mut [B], &mut [C]) + Sync);

fn each_mut<T: Send>(y: &mut [T], size: usize, parallel: bool, f: &(dyn Fn(usize, &mut [T]) + Sync)) {
    if parallel {
        in_pool(|| {
            y.par_chunks_mut(size)
                .enumerate()
                .with_max_len(1)
                .for_each(|(i, chunk)| f(i, chunk));
        });
    } else {
        y.chunks_mut(size).enumerate().for_each(|(i, chunk)| f(i, chunk));
    }
}

fn try_each_mut<T: Send>(
    y: &mut [T],
    size: usize,
    parallel: bool,
    f: &(dyn Fn(usize, &mut [T]) -> kiln_core::Result<()> + Sync),
) -> kiln_core::Result<()> {
    if parallel {
        in_pool(|| {
            y.par_chunks_mut(size)
                .enumerate()
                .with_max_len(1)
                .try_for_each(|(i, chunk)| f(i, chunk))
        })
    } else {
        y.chunks_mut(size).enumerate().try_for_each(|(i, chunk)| f(i, chunk))
    }
}

fn zip2_parallel<A: Send, B: Send>((a, la): (&mut [A], usize), (b, lb): (&mut [B], usize), f: Kernel2<'_, A, B>) {
    in_pool(|| {
        a.par_chunks_mut(la)
            .zip(b.par_chunks_mut(lb))
            .enumerate()
            .with_max_len(1)
            .for_each(|(i, (a, b))| f(i, a, b));
    });
}

/// A kernel over chunk `i` of two slices, which may fail.
type TryKernel2<'f, A, B> = &'f (dyn Fn(usize, &mut [A], &mut [B]) -> kiln_core::Result<()> + Sync);

fn try_zip2_parallel<A: Send, B: Send>(
    (a, la): (&mut [A], usize),
    (b, lb): (&mut [B], usize),
    f: TryKernel2<'_, A, B>,
) -> kiln_core::Result<()> {
    in_pool(|| {
        a.par_chunks_mut(la)
            .zip(b.par_chunks_mut(lb))
            .enumerate()
            .with_max_len(1)
            .try_for_each(|(i, (a, b))| f(i, a, b))
    })
}

fn zip3_parallel<A: Send, B: Send, C: Send>(
    (a, la): (&mut [A], usize),
    (b, lb): (&mut [B], usize),
    (c, lc): (&mut [C], usize),
    f: Kernel3<'_, A, B, C>,
) {
    in_pool(|| {
        a.par_chunks_mut(la)
            .zip(b.par_chunks_mut(lb))
            .zip(c.par_chunks_mut(lc))
            .enumerate()
            .with_max_len(1)
            .for_each(|(i, ((a, b), c))| f(i, a, b, c));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_whole() {
        for n in [0, 1, COPY, 2 * COPY, 2 * COPY + 1, 3 * COPY + 5] {
            let src: Vec<u8> = (0..n).map(|i| (i * 7 + i / 251) as u8).collect();
            let mut dst = vec![0; n];
            copy_bytes(&src, &mut dst);
            assert!(dst == src, "{n} bytes");
        }
    }
}
