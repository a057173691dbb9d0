//! The same calls on the CPU backend and on the device, in every dtype.

use half::{bf16, f16};
use kiln_core::{Backend, Buffer, DType, Float};
use kiln_testkit::accepts;

/// The float dtypes of the device.
pub(crate) const FLOATS: [DType; 3] = [DType::F32, DType::BF16, DType::F16];
/// All dtypes of the device.
pub(crate) const ALL: [DType; 5] = [DType::F32, DType::BF16, DType::F16, DType::I32, DType::U8];

/// A tensor as it was downloaded.
#[derive(Clone)]
pub(crate) struct Out {
    pub(crate) dtype: DType,
    pub(crate) bytes: Vec<u8>,
}

/// `values` as `dtype` rounds them, on a backend.
pub(crate) fn tensor<B: Backend>(b: &B, dtype: DType, values: &[f64]) -> B::Buffer {
    let bytes: Vec<u8> = match dtype {
        DType::F32 => values.iter().flat_map(|&v| (v as f32).to_ne_bytes()).collect(),
        DType::F64 => values.iter().flat_map(|&v| v.to_ne_bytes()).collect(),
        DType::BF16 => values
            .iter()
            .flat_map(|&v| <bf16 as Float>::of(v).to_ne_bytes())
            .collect(),
        DType::F16 => values
            .iter()
            .flat_map(|&v| <f16 as Float>::of(v).to_ne_bytes())
            .collect(),
        DType::I32 => values.iter().flat_map(|&v| (v as i32).to_ne_bytes()).collect(),
        DType::U8 => values.iter().map(|&v| v as u8).collect(),
    };
    let mut buffer = space(b, dtype, values.len());
    b.upload_bytes(&bytes, &mut buffer).unwrap_or_else(|e| panic!("{e}"));
    buffer
}

/// Indices on a backend.
pub(crate) fn indices<B: Backend>(b: &B, values: &[i32]) -> B::Buffer {
    b.upload(values).unwrap_or_else(|e| panic!("{e}"))
}

/// A tensor to be written.
pub(crate) fn space<B: Backend>(b: &B, dtype: DType, n: usize) -> B::Buffer {
    b.alloc(dtype, n).unwrap_or_else(|e| panic!("{e}"))
}

/// The downloaded values of tensors.
pub(crate) fn out<B: Backend>(b: &B, buffers: &[&B::Buffer]) -> Vec<Out> {
    let read = |buffer: &&B::Buffer| {
        let mut bytes = vec![0; buffer.len() * buffer.dtype().size()];
        b.download_bytes(buffer, &mut bytes).unwrap_or_else(|e| panic!("{e}"));
        Out {
            dtype: buffer.dtype(),
            bytes,
        }
    };
    buffers.iter().map(read).collect()
}

/// Runs a body that ends in [`out`] on the device and on the CPU, with poisoned buffers.
macro_rules! both {
    ($cuda:expr, |$b:ident| $body:block) => {{
        let got = {
            let $b = $cuda;
            let run = || -> kiln_core::Result<Vec<crate::both::Out>> { Ok($body) };
            run().unwrap_or_else(|e| panic!("{e}"))
        };
        let want = {
            let $b = &kiln_cpu::Cpu::poisoned();
            let run = || -> kiln_core::Result<Vec<crate::both::Out>> { Ok($body) };
            run().unwrap_or_else(|e| panic!("{e}"))
        };
        (got, want)
    }};
}
pub(crate) use both;

impl Out {
    /// The elements in f64.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        let words = |n: usize| self.bytes.chunks_exact(n);
        let half = |c: &[u8]| u16::from_ne_bytes([c[0], c[1]]);
        let word = |c: &[u8]| u32::from_ne_bytes([c[0], c[1], c[2], c[3]]);
        match self.dtype {
            DType::F32 | DType::F64 => words(4).map(|c| f64::from(f32::from_bits(word(c)))).collect(),
            DType::BF16 => words(2).map(|c| bf16::from_bits(half(c)).to_f64()).collect(),
            DType::F16 => words(2).map(|c| f16::from_bits(half(c)).to_f64()).collect(),
            DType::I32 => words(4).map(|c| f64::from(word(c) as i32)).collect(),
            DType::U8 => self.bytes.iter().map(|&v| f64::from(v)).collect(),
        }
    }
}

/// Half of the distance from 1 to the next number of a dtype.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-24),
    }
}

/// Asserts that every element is the same number, zeros with their signs; any NaN equals any other.
pub(crate) fn assert_same(what: &str, (got, want): &(Vec<Out>, Vec<Out>)) {
    for (k, (got, want)) in got.iter().zip(want).enumerate() {
        let (g, w) = (got.numbers(), want.numbers());
        assert_eq!((g.len(), got.dtype), (w.len(), want.dtype), "{what}: result {k}");
        for (i, (g, w)) in g.iter().zip(&w).enumerate() {
            assert!(
                g.to_bits() == w.to_bits() || (g.is_nan() && w.is_nan()),
                "{what}: result {k}: element {i} of {} is {g:e}, expected {w:e}",
                got.dtype
            );
        }
    }
}

/// Asserts that every element is as near as f32 on both sides and one rounding to the dtype allow. `scale` is the size of
/// intermediate results, which may be larger than the results.
pub(crate) fn assert_near(what: &str, scale: f64, (got, want): &(Vec<Out>, Vec<Out>)) {
    for (k, (got, want)) in got.iter().zip(want).enumerate() {
        let (g, w) = (got.numbers(), want.numbers());
        assert_eq!((g.len(), got.dtype), (w.len(), want.dtype), "{what}: result {k}");
        // The two may round to neighbours.
        let bound = |want: f64| 4e-6 * scale + (2.0 * rounding(got.dtype) + 1e-5) * want.abs();
        for (i, (&g, &w)) in g.iter().zip(&w).enumerate() {
            assert!(
                accepts(g, w, bound(w)),
                "{what}: result {k}: element {i} of {} is {g:e}, expected {w:e}",
                got.dtype
            );
        }
    }
}

/// `n` numbers between −2 and 2 that `salt` chooses; some are equal, all are exact in every float dtype.
pub(crate) fn mixed(n: usize, salt: u64) -> Vec<f64> {
    let key = kiln_core::philox::Key::new(salt, 0, 0);
    (0..n)
        .map(|i| f64::from(key.word(i as u64) % 257) / 64.0 - 2.0)
        .collect()
}
