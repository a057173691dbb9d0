//! A reference backend: plain loops in f64, written like the definitions, with no op but the
//! [primitives](kiln_core::ops::Op::PRIMITIVES).
//!
//! Results of other backends are compared with it, and it shows the least that a new backend has to implement. Every element
//! is kept in f64: an array of f32 is rounded when it is filled, converted or downloaded, and not between, so that results of
//! several ops are as accurate as those of one.

mod elementwise;
mod integer;
mod moves;
mod products;
mod random;
mod reduce;

use kiln_core::ops::{
    AttentionOps, ConvPoolOps, ImageOps, LossOps, NormOps, OptimOps, RecurrentOps, ResidualOps, SoftmaxOps,
};
use kiln_core::{Buffer, DType, Element, Float, MemoryStats, Result, Runtime, checks};
use ndarray::Array1;
use std::convert::Infallible;

/// The reference backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// A buffer of the [`Reference`] backend.
#[derive(Clone, Debug)]
pub struct ReferenceBuffer {
    dtype: DType,
    data: Array1<f64>,
}

impl Buffer for ReferenceBuffer {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.data.len()
    }
}

impl ReferenceBuffer {
    /// The elements as indices.
    fn indices(&self) -> impl Iterator<Item = i64> {
        self.data.iter().map(|&i| i as i64)
    }
}

/// `value` converted to `dtype`: truncated and saturated for integers, rounded to nearest for floats.
fn rounded(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => value,
        DType::F32 => f64::from(value as f32),
        DType::BF16 => <half::bf16 as Float>::of(value).f64(),
        DType::F16 => <half::f16 as Float>::of(value).f64(),
        DType::I32 => f64::from(value as i32),
        DType::U8 => f64::from(value as u8),
    }
}

/// The elements of `bytes` as f64.
fn decode<T: Element>(bytes: &[u8], f64: impl Fn(T) -> f64) -> impl Iterator<Item = f64> {
    bytes
        .chunks_exact(size_of::<T>())
        .map(move |b| f64(bytemuck::pod_read_unaligned(b)))
}

/// Writes elements as bytes.
fn encode<T: Element>(values: &Array1<f64>, bytes: &mut [u8], of: impl Fn(f64) -> T) {
    for (&v, b) in values.iter().zip(bytes.chunks_exact_mut(size_of::<T>())) {
        b.copy_from_slice(bytemuck::bytes_of(&of(v)));
    }
}

impl Runtime for Reference {
    type Buffer = ReferenceBuffer;
    type Graph = Infallible;

    fn name(&self) -> String {
        "reference".into()
    }

    fn supports_dtype(&self, _: DType) -> bool {
        true
    }

    /// New elements are NaN, so that an element that an op does not write shows.
    fn alloc(&self, dtype: DType, len: usize) -> Result<ReferenceBuffer> {
        let data = kiln_core::host::repeat(f64::NAN, len)?.into();
        Ok(ReferenceBuffer { dtype, data })
    }

    fn upload_bytes(&self, src: &[u8], dst: &mut ReferenceBuffer) -> Result<()> {
        checks::upload_bytes(self, src, dst)?;
        self.upload_part(src, dst, 0)
    }

    fn upload_part(&self, src: &[u8], dst: &mut ReferenceBuffer, offset: usize) -> Result<()> {
        checks::upload_part(self, src, dst, offset)?;
        let mut bytes = vec![0; dst.len() * dst.dtype.size()];
        self.download_bytes(dst, &mut bytes)?;
        bytes[offset..offset + src.len()].copy_from_slice(src);
        dst.data = match dst.dtype {
            DType::F64 => decode(&bytes, |v: f64| v).collect(),
            DType::F32 => decode(&bytes, |v: f32| v.into()).collect(),
            DType::BF16 => decode(&bytes, |v: half::bf16| v.into()).collect(),
            DType::F16 => decode(&bytes, |v: half::f16| v.into()).collect(),
            DType::I32 => decode(&bytes, |v: i32| v.into()).collect(),
            DType::U8 => decode(&bytes, |v: u8| v.into()).collect(),
        };
        Ok(())
    }

    fn download_bytes(&self, src: &ReferenceBuffer, dst: &mut [u8]) -> Result<()> {
        checks::download_bytes(self, src, dst)?;
        match src.dtype {
            DType::F64 => encode(&src.data, dst, |v| v),
            DType::F32 => encode(&src.data, dst, |v| v as f32),
            DType::BF16 => encode(&src.data, dst, <half::bf16 as Float>::of),
            DType::F16 => encode(&src.data, dst, <half::f16 as Float>::of),
            DType::I32 => encode(&src.data, dst, |v| v as i32),
            DType::U8 => encode(&src.data, dst, |v| v as u8),
        }
        Ok(())
    }

    fn copy(&self, src: &ReferenceBuffer, dst: &mut ReferenceBuffer) -> Result<()> {
        checks::copy(self, src, dst)?;
        dst.data.assign(&src.data);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    const CAPTURES: bool = false;

    fn capture(&self, body: &mut dyn FnMut() -> Result<()>) -> Result<Option<Infallible>> {
        body().map(|()| None)
    }

    fn replay(&self, graph: &mut Infallible) -> Result<()> {
        match *graph {}
    }

    fn launches(&self, graph: &Infallible) -> usize {
        match *graph {}
    }

    fn memory(&self) -> MemoryStats {
        MemoryStats::default()
    }
}

// No op of these families is primitive.
impl AttentionOps for Reference {}
impl ConvPoolOps for Reference {}
impl ImageOps for Reference {}
impl LossOps for Reference {}
impl NormOps for Reference {}
impl OptimOps for Reference {}
impl RecurrentOps for Reference {}
impl ResidualOps for Reference {}
impl SoftmaxOps for Reference {}
