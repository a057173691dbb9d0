//! Moving elements by views and by indices.

use super::elementwise::bits;
use super::instance;
use crate::fault::code;
use crate::launch::blocks;
use crate::tensors::{Tensors, WORDS, chunks_of};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{IndexOps, IndexParams, Join, Split, ViewParams};
use kiln_core::{Buffer, DType, Result, checks};
use kiln_device::Arg;
use kiln_kernels::{Kernel, index_add as add, index_gather as gather, index_view as view};

/// The most indices along an axis for which each element itself looks for its duplicates (`index_add.cu`).
const HEADS: u64 = 64;
/// The fewest indices of index_add of which those that are alike are summed first (`index_add.cu`).
const SUMMED: u64 = 512;
/// The shortest side of a matrix for which transposing by tiles pays.
const TILES: u64 = 8;

/// Kernels by bytes of an element: 1, 2, 4, 8, 16.
type BySize = [&'static Kernel; 5];
const READ: BySize = [
    &view::VIEW_READ_B8,
    &view::VIEW_READ_B16,
    &view::VIEW_READ_B32,
    &view::VIEW_READ_B64,
    &view::VIEW_READ_B128,
];
const WRITE: BySize = [
    &view::VIEW_WRITE_B8,
    &view::VIEW_WRITE_B16,
    &view::VIEW_WRITE_B32,
    &view::VIEW_WRITE_B64,
    &view::VIEW_WRITE_B128,
];
const SELECT: BySize = [
    &gather::INDEX_SELECT_B8,
    &gather::INDEX_SELECT_B16,
    &gather::INDEX_SELECT_B32,
    &gather::INDEX_SELECT_B64,
    &gather::INDEX_SELECT_B128,
];
/// Kernels by bytes of an element: 1, 2, 4.
type ByElement = [&'static Kernel; 3];
const READ_TILES: ByElement = [
    &view::VIEW_READ_TILES_B8,
    &view::VIEW_READ_TILES_B16,
    &view::VIEW_READ_TILES_B32,
];
const WRITE_TILES: ByElement = [
    &view::VIEW_WRITE_TILES_B8,
    &view::VIEW_WRITE_TILES_B16,
    &view::VIEW_WRITE_TILES_B32,
];
const GATHER: ByElement = [&gather::GATHER_B8, &gather::GATHER_B16, &gather::GATHER_B32];
const ONE_HOT: ByElement = [&gather::ONE_HOT_B8, &gather::ONE_HOT_B16, &gather::ONE_HOT_B32];

/// The place of an element's size in the tables.
fn place(size: usize) -> usize {
    size.trailing_zeros() as usize
}

/// The view with several neighbouring elements taken as one, as many as its innermost dimension, offset and strides allow,
/// up to 16 bytes; and the bytes of such an element.
fn widen(p: &ViewParams, size: usize) -> (ViewParams, usize) {
    let mut wide = *p;
    let mut bytes = size;
    let Some(last) = (p.rank as usize).checked_sub(1) else {
        return (wide, bytes);
    };
    let even = |p: &ViewParams| {
        p.strides[last] == 1
            && (p.shape[last] | p.offset).is_multiple_of(2)
            && p.strides[..last].iter().all(|s| s % 2 == 0)
    };
    while bytes < 16 && even(&wide) {
        wide.shape[last] /= 2;
        wide.offset /= 2;
        wide.n /= 2;
        wide.strides[..last].iter_mut().for_each(|s| *s /= 2);
        bytes *= 2;
    }
    (wide, bytes)
}

/// The number of tiles that transpose the view's last two dimensions, where they are a transpose.
fn tiles(p: &ViewParams) -> Option<u64> {
    let r = p.rank as usize;
    if r < 2 || p.strides[r - 2] != 1 || p.strides[r - 1] <= 1 {
        return None;
    }
    let (h, w) = (p.shape[r - 2], p.shape[r - 1]);
    (h.min(w) >= TILES).then(|| p.n / (h * w) * h.div_ceil(32) * w.div_ceil(32))
}

/// The columns of an owner's block, and the blocks.
fn owners_of(p: &IndexParams) -> (u32, u64) {
    let columns = p.inner.next_power_of_two().min(256);
    let rows = 32 * (256 / columns);
    (
        columns as u32,
        p.outer * p.size.div_ceil(rows) * p.inner.div_ceil(columns),
    )
}

impl Cuda {
    /// Copies stretches: for each the buffers and first elements that it is copied from and to, and its elements.
    fn copy_each(&self, copies: &[[(&CudaBuffer, usize); 2]], lens: &[usize]) -> Result<()> {
        let copies: Vec<_> = copies.iter().zip(lens).filter(|(_, n)| **n > 0).collect();
        for part in copies.chunks(WORDS / 4) {
            part.iter()
                .flat_map(|(pair, _)| *pair)
                .try_for_each(|(buffer, _)| self.keep(buffer))?;
            let (list, chunks) = Tensors::of(part.iter().map(|(pair, n)| {
                let size = pair[0].0.dtype().size();
                let addresses = pair.map(|(buffer, start)| buffer.block.ptr() + (start * size) as u64);
                (addresses.into_iter(), *n * size, None)
            }));
            let geometry = chunks_of("copy", chunks, || part.iter().map(|(_, n)| **n).collect())?;
            self.launch(&view::COPY_EACH, geometry, &[Arg::value(&list)])?;
        }
        Ok(())
    }

    fn view(
        &self,
        p: &ViewParams,
        size: usize,
        [copies, transposes]: [&[&'static Kernel]; 2],
        x: Arg<'_>,
        y: Arg<'_>,
    ) -> Result<()> {
        if p.n == 0 {
            return Ok(());
        }
        if let Some(tiles) = tiles(p) {
            return self.launch(transposes[place(size)], blocks("view", tiles)?, &[Arg::value(p), x, y]);
        }
        let (p, size) = widen(p, size);
        self.launch(copies[place(size)], self.striding(p.n, 1), &[Arg::value(&p), x, y])
    }

    /// Checks the indices where the result is empty, so that no other kernel checks them.
    fn check_index(&self, p: &IndexParams, index: &CudaBuffer, op: u32) -> Result<()> {
        let n = index.len() as u64;
        let args = [
            Arg::value(p),
            index.arg(),
            Arg::value(&n),
            Arg::value(&op),
            self.fault(),
        ];
        self.launch(&gather::INDEX_CHECK_B32, self.striding(n, 1), &args)
    }

    /// Adds rows by index in two kernels: sums of those of the same index among neighbours, and the sums to the result.
    fn add_sums(&self, p: &IndexParams, [x, index]: [&CudaBuffer; 2], y: &mut CudaBuffer) -> Result<()> {
        let (columns, owners) = owners_of(p);
        let mut first = self.scratch(DType::I32, p.count as usize)?;
        let mut sums = self.scratch(DType::F32, x.len())?;
        let grid = p.outer * p.count.div_ceil(256) * p.inner.div_ceil(u64::from(columns));
        let args = [
            Arg::value(p),
            x.arg(),
            index.arg(),
            first.out(),
            sums.out(),
            Arg::value(&columns),
            self.fault(),
        ];
        self.launch(instance(&add::INDEX_SUMS, x.dtype()), blocks("index_add", grid)?, &args)?;
        let args = [
            Arg::value(p),
            sums.arg(),
            first.arg(),
            y.out(),
            Arg::value(&columns),
            self.fault(),
        ];
        self.launch(
            instance(&add::INDEX_SUM_OWNERS, x.dtype()),
            blocks("index_add", owners)?,
            &args,
        )
    }

    /// Adds by heads or by owners; `index_add.cu` says what each costs.
    fn add_by_index(&self, p: &IndexParams, op: u32, [x, index]: [&CudaBuffer; 2], y: &mut CudaBuffer) -> Result<()> {
        if x.len() == 0 || y.len() == 0 {
            return self.check_index(p, index, op);
        }
        if op == code::INDEX_ADD && p.count >= SUMMED {
            return self.add_sums(p, [x, index], y);
        }
        let owners = if op == code::SCATTER_ADD {
            &add::SCATTER_OWNERS
        } else {
            &add::INDEX_OWNERS
        };
        let (kernel, extra, geometry) = if p.count <= HEADS {
            (&add::ADD_HEADS, op, self.striding(x.len() as u64, 1))
        } else {
            let (columns, grid) = owners_of(p);
            (owners, columns, blocks("index_add", grid)?)
        };
        let args = [
            Arg::value(p),
            x.arg(),
            index.arg(),
            y.out(),
            Arg::value(&extra),
            self.fault(),
        ];
        self.launch(instance(kernel, x.dtype()), geometry, &args)
    }
}

impl IndexOps for Cuda {
    fn view_read(&self, p: &ViewParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::view_read(self, p, x, y)?;
        self.view(p, x.dtype().size(), [&READ, &READ_TILES], x.arg(), y.out())
    }

    fn view_write(&self, p: &ViewParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::view_write(self, p, x, y)?;
        self.view(p, x.dtype().size(), [&WRITE, &WRITE_TILES], x.arg(), y.out())
    }

    fn join(&self, joins: &mut [Join<'_, CudaBuffer>]) -> Result<()> {
        checks::join(self, joins)?;
        let (mut copies, mut lens) = (Vec::new(), Vec::new());
        for join in joins.iter() {
            let mut start = 0;
            for part in &join.parts {
                copies.push([(*part, 0), (&*join.whole, start)]);
                lens.push(part.len());
                start += part.len();
            }
        }
        self.copy_each(&copies, &lens)
    }

    fn split(&self, splits: &mut [Split<'_, CudaBuffer>]) -> Result<()> {
        checks::split(self, splits)?;
        let parts = || {
            splits
                .iter()
                .flat_map(|s| s.parts.iter().map(|(start, part)| (s.whole, *start, &**part)))
        };
        let copies: Vec<_> = parts()
            .map(|(whole, start, part)| [(whole, start), (part, 0)])
            .collect();
        let lens: Vec<_> = parts().map(|(_, _, part)| part.len()).collect();
        self.copy_each(&copies, &lens)
    }

    fn gather(&self, p: &IndexParams, x: &CudaBuffer, index: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::gather(self, p, x, index, y)?;
        let n = index.len() as u64;
        let args = [Arg::value(p), x.arg(), index.arg(), y.out(), self.fault()];
        self.launch(GATHER[place(x.dtype().size())], self.striding(n, 1), &args)
    }

    fn scatter_add(&self, p: &IndexParams, x: &CudaBuffer, index: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::scatter_add(self, p, x, index, y)?;
        self.add_by_index(p, code::SCATTER_ADD, [x, index], y)
    }

    fn index_select(&self, p: &IndexParams, x: &CudaBuffer, index: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::index_select(self, p, x, index, y)?;
        if y.len() == 0 {
            return self.check_index(p, index, code::INDEX_SELECT);
        }
        let (mut p, mut size) = (*p, x.dtype().size());
        while size < 16 && p.inner.is_multiple_of(2) {
            p.inner /= 2;
            size *= 2;
        }
        let args = [Arg::value(&p), x.arg(), index.arg(), y.out(), self.fault()];
        let n = p.outer * p.count * p.inner;
        self.launch(SELECT[place(size)], self.striding(n, 1), &args)
    }

    fn index_add(&self, p: &IndexParams, x: &CudaBuffer, index: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::index_add(self, p, x, index, y)?;
        self.add_by_index(p, code::INDEX_ADD, [x, index], y)
    }

    fn one_hot(&self, p: &IndexParams, index: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::one_hot(self, p, index, y)?;
        if y.len() == 0 {
            return self.check_index(p, index, code::ONE_HOT);
        }
        let one = bits(1.0, y.dtype());
        let n = y.len() as u64;
        let kernel = ONE_HOT[place(y.dtype().size())];
        let args = [Arg::value(p), index.arg(), y.out(), Arg::value(&one), self.fault()];
        self.launch(kernel, self.striding(n, 1), &args)
    }
}
