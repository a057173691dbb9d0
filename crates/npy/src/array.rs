//! The values of arrays, from bytes and to bytes.

use crate::error::{NpyError, Result};
use crate::header::Header;
use half::{bf16, f16};
use kiln_core::{DType, host};
use kiln_nn::module::Value;
use kiln_nn::ops::integer::IntegerValue;
use kiln_nn::{Backend, Indices, Shape, Tensor};

/// The elements of a shape in C's order, from the same in Fortran's.
fn reorder<T: Copy>(values: Vec<T>, shape: &[usize]) -> Result<Vec<T>> {
    let steps: Vec<usize> = shape
        .iter()
        .scan(1, |step, d| Some(std::mem::replace(step, *step * d)))
        .collect();
    let mut index = vec![0; shape.len()];
    let mut at = 0;
    let next = (0..values.len()).map(|_| {
        let value = values[at];
        for axis in (0..shape.len()).rev() {
            (index[axis], at) = (index[axis] + 1, at + steps[axis]);
            if index[axis] < shape[axis] {
                break;
            }
            at -= steps[axis] * shape[axis];
            index[axis] = 0;
        }
        value
    });
    Ok(host::collect(next)?)
}

/// The elements in C's order, each from `N` bytes.
fn elements<const N: usize, T: Copy>(header: &Header, data: &[u8], of: impl Fn([u8; N]) -> T) -> Result<Vec<T>> {
    let wanted = header.shape.iter().try_fold(N, |size, &d| size.checked_mul(d));
    if wanted != Some(data.len()) {
        let (shape, dtype) = (&header.shape, &header.dtype);
        let reason = format!("it has {} bytes of data for shape {shape:?} of {dtype}", data.len());
        return Err(NpyError::format(reason));
    }
    let (chunks, _) = data.as_chunks::<N>();
    let values = host::collect(chunks.iter().map(|&bytes| {
        let mut bytes = bytes;
        if header.big_endian {
            bytes.reverse();
        }
        of(bytes)
    }))?;
    match header.fortran && header.shape.len() > 1 {
        true => reorder(values, &header.shape),
        false => Ok(values),
    }
}

/// The array of a header and its data.
pub(crate) fn from_bytes<B: Backend>(header: &Header, data: &[u8], backend: &B) -> Result<Value<B>> {
    // Checks the rank before anything is read.
    Shape::new(&header.shape)?;
    macro_rules! float {
        ($t:ty) => {
            Tensor::from_slice(
                backend,
                &elements(header, data, <$t>::from_le_bytes)?,
                &header.shape,
            )
            .map(Value::Float)
        };
    }
    macro_rules! int {
        ($t:ty) => {{
            let values = elements(header, data, <$t>::from_le_bytes)?;
            let out = values.iter().position(|&v| i32::try_from(v).is_err());
            if let Some(index) = out {
                let value = i128::from(values[index]);
                return Err(NpyError::Range { index, value });
            }
            // Every value is in range.
            let values = host::collect(values.iter().map(|&v| v as i32))?;
            indices(backend, &values, &header.shape)
        }};
    }
    Ok(match header.dtype.as_str() {
        "f2" => float!(f16)?,
        "f4" => float!(f32)?,
        "f8" => float!(f64)?,
        "i4" => indices(backend, &elements(header, data, i32::from_le_bytes)?, &header.shape)?,
        "u1" => indices(backend, &elements(header, data, u8::from_le_bytes)?, &header.shape)?,
        "b1" => indices(backend, &elements(header, data, |[b]| u8::from(b != 0))?, &header.shape)?,
        "i1" => int!(i8)?,
        "i2" => int!(i16)?,
        "i8" => int!(i64)?,
        "u2" => int!(u16)?,
        "u4" => int!(u32)?,
        "u8" => int!(u64)?,
        other => return Err(NpyError::DType(kiln_files::shown(other).to_string())),
    })
}

fn indices<B: Backend, T: IntegerValue>(backend: &B, values: &[T], shape: &[usize]) -> kiln_core::Result<Value<B>> {
    Indices::from_slice(backend, values, shape).map(Value::Int)
}

/// The bytes of a file with the array.
pub(crate) fn to_bytes<B: Backend>(array: &Value<B>) -> Result<Vec<u8>> {
    let dtype = array.dtype();
    let name = match dtype {
        DType::F32 | DType::BF16 => "f4",
        DType::F64 => "f8",
        DType::F16 => "f2",
        DType::I32 => "i4",
        DType::U8 => "u1",
    };
    let header = Header::to_bytes(name, array.shape());
    macro_rules! data {
        ($values:expr) => {{
            let values = $values;
            let mut bytes = host::room(header.len() + std::mem::size_of_val(values.as_slice()))?;
            bytes.extend_from_slice(&header);
            bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
            bytes
        }};
    }
    Ok(match array {
        Value::Float(t) => match dtype {
            DType::F64 => data!(t.to_vec::<f64>()?),
            DType::F16 => data!(t.to_vec::<f16>()?),
            DType::BF16 => data!(host::collect(t.to_vec::<bf16>()?.iter().map(|v| v.to_f32()))?),
            _ => data!(t.to_vec::<f32>()?),
        },
        Value::Int(t) => match dtype {
            DType::U8 => data!(t.to_vec::<u8>()?),
            _ => data!(t.to_vec::<i32>()?),
        },
    })
}
