//! Arguments that elementwise ops refuse.

use crate::refused;
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Indices, Tensor};

/// Shapes that do not broadcast, dtypes that differ or that the backend lacks, and NaN as parameter are typed errors.
pub fn bad_input<B: Backend>(backend: &B) {
    run(backend).unwrap_or_else(|e| panic!("{e}"));
}

fn run<B: Backend>(backend: &B) -> Result<()> {
    let make = |shape: &[usize]| Tensor::ones(backend, shape, DType::F32);
    let (a, b) = (make(&[2, 3])?, make(&[2, 4])?);
    for f in [
        Tensor::add,
        Tensor::sub,
        Tensor::mul,
        Tensor::div,
        Tensor::pow,
        Tensor::maximum,
        Tensor::minimum,
    ] {
        refused!(f(&a, &b), Error::ShapeMismatch { .. });
        refused!(f(&make(&[0])?, &make(&[2])?), Error::ShapeMismatch { .. });
        // Each shape is valid, but the shape that they broadcast to is too large.
        let (tall, wide) = (make(&[0, 1 << 31, 1])?, make(&[0, 1, 1 << 31])?);
        refused!(f(&tall, &wide), Error::TooLarge { .. });
        if backend.supports_dtype(DType::F64) {
            let double = Tensor::ones(backend, &[2, 3], DType::F64)?;
            refused!(
                f(&a, &double),
                Error::DTypeMismatch {
                    lhs: DType::F32,
                    rhs: DType::F64,
                    ..
                }
            );
        }
    }
    for f in [Tensor::eq, Tensor::ne, Tensor::lt, Tensor::le, Tensor::gt, Tensor::ge] {
        refused!(f(&a, &b), Error::ShapeMismatch { .. });
    }
    let mask = Indices::from_slice(backend, &[1u8, 0], &[2])?;
    let labels = Indices::from_slice(backend, &[1, 0, 2], &[3])?;
    refused!(Tensor::where_(&mask, &a, &a), Error::ShapeMismatch { .. });
    refused!(
        Tensor::where_(&labels, &a, &a),
        Error::UnsupportedDType { dtype: DType::I32, .. }
    );
    refused!(a.masked_fill(&labels, 0.0), Error::UnsupportedDType { .. });
    refused!(labels.eq(&mask), Error::ShapeMismatch { .. });
    refused!(a.to_dtype(DType::I32), Error::UnsupportedDType { .. });
    refused!(a.clamp(f64::NAN, 1.0), Error::InvalidArgument { argument: "min", .. });
    refused!(a.clamp(0.0, f64::NAN), Error::InvalidArgument { argument: "max", .. });
    refused!(a.powf(f64::NAN), Error::InvalidArgument { .. });
    refused!(a.leaky_relu(f64::NAN), Error::InvalidArgument { .. });
    refused!(a.elu(f64::NAN), Error::InvalidArgument { .. });
    for beta in [0.0, f64::NAN, f64::INFINITY] {
        refused!(a.softplus(beta, 20.0), Error::InvalidArgument { argument: "beta", .. });
    }
    refused!(a.softplus(1.0, f64::NAN), Error::InvalidArgument { .. });
    refused!(a.sum_to_size(&[2]), Error::ShapeMismatch { .. });
    refused!(a.sum_to_size(&[1, 2, 3]), Error::ShapeMismatch { .. });
    refused!(a.sum_to_size(&[2, 0]), Error::ShapeMismatch { .. });
    // The message has the op and both shapes.
    let message = a.add(&b).map_or_else(|e| e.to_string(), |_| String::new());
    assert_eq!(message, "add: shapes [2, 3] and [2, 4] do not agree");
    Ok(())
}
