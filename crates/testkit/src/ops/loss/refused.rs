//! Arguments that losses refuse.

use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{CrossEntropyOptions, Indices, Reduction, Tensor};

/// Bad arguments are typed errors.
pub fn refused<B: Backend>(backend: &B) {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(backend, shape, dtype).unwrap_or_else(|e| panic!("{e}"));
    let f32 = |shape: &[usize]| zeros(shape, DType::F32);
    let labels = |v: &[i32], shape: &[usize]| Indices::from_slice(backend, v, shape).unwrap_or_else(|e| panic!("{e}"));
    let shape = |r: Result<Tensor<B>>| assert!(matches!(r, Err(Error::ShapeMismatch { .. })), "{r:?}");
    let dtype = |r: Result<Tensor<B>>| assert!(matches!(r, Err(Error::DTypeMismatch { .. })), "{r:?}");
    let argument = |name: &str, r: Result<Tensor<B>>| match r {
        Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, name),
        other => panic!("{other:?}"),
    };
    let (logits, good) = (f32(&[3, 10]), labels(&[0, 9, 5], &[3]));
    let every = |x: &Tensor<B>, l: &Indices<B>| {
        [
            x.cross_entropy(l),
            x.nll_loss(l),
            x.cross_entropy_from_probabilities(l, Reduction::Mean),
        ]
    };
    for bad in [10, -1, i32::MAX, i32::MIN] {
        for r in every(&logits, &labels(&[1, 2, bad], &[3])) {
            match r {
                Err(Error::IndexOutOfRange {
                    index, position, size, ..
                }) => {
                    assert_eq!((index, position, size), (i64::from(bad), 2, 10));
                }
                other => panic!("label {bad}: {other:?}"),
            }
        }
    }
    for bad in [
        labels(&[0, 1], &[2]),
        labels(&[0; 3], &[3, 1]),
        labels(&[0], &[]),
        labels(&[], &[0]),
    ] {
        every(&logits, &bad).into_iter().for_each(shape);
    }
    every(&f32(&[3, 0]), &good)
        .into_iter()
        .for_each(|r| argument("classes", r));
    for r in every(&f32(&[]), &labels(&[0], &[])) {
        assert!(matches!(r, Err(Error::Rank { .. })), "{r:?}");
    }
    for rank in 1..=6 {
        let lead = &[1, 2, 1, 2, 1][..rank - 1];
        let x = f32(&[lead, &[4]].concat());
        let n = lead.iter().product::<usize>();
        every(&x, &labels(&vec![3; n], lead))
            .into_iter()
            .for_each(|r| assert!(r.is_ok(), "rank {rank}: {r:?}"));
        every(&x, &labels(&vec![3; n], &[lead, &[1]].concat()))
            .into_iter()
            .for_each(shape);
    }
    let mask = Indices::from_slice(backend, &[0u8; 3], &[3]).unwrap_or_else(|e| panic!("{e}"));
    every(&logits, &mask)
        .into_iter()
        .for_each(|r| assert!(matches!(r, Err(Error::UnsupportedDType { .. })), "{r:?}"));
    let with = |smoothing: f64, weight: Option<&Tensor<B>>| {
        let options = CrossEntropyOptions {
            label_smoothing: smoothing,
            weight,
            ..Default::default()
        };
        [
            logits.cross_entropy_with(&good, &options),
            logits.nll_loss_with(&good, &options),
            logits.cross_entropy_soft(&logits, &options),
        ]
    };
    for bad in [2.0, -0.1, f64::NAN, f64::INFINITY] {
        with(bad, None).into_iter().for_each(|r| argument("label_smoothing", r));
    }
    for bad in [f32(&[9]), f32(&[1, 10]), f32(&[]), f32(&[0])] {
        with(0.0, Some(&bad)).into_iter().for_each(shape);
    }
    with(0.0, Some(&zeros(&[10], DType::BF16))).into_iter().for_each(dtype);
    let tracked = f32(&[10]).requires_grad();
    with(0.0, Some(&tracked))
        .into_iter()
        .for_each(|r| assert!(matches!(r, Err(Error::NoGradient { .. })), "{r:?}"));
    let r = Reduction::Mean;
    let pairs = |x: &Tensor<B>, t: &Tensor<B>| {
        [
            x.mse_loss(t, r),
            x.l1_loss(t, r),
            x.huber_loss(t, 1.0, r),
            x.smooth_l1_loss(t, 0.0, r),
            x.smooth_l1_loss(t, 1.0, r),
            x.bce_loss(t, r),
            x.bce_with_logits(t, None, r),
            x.kl_div(t, false, r),
            x.cross_entropy_soft(t, &CrossEntropyOptions::default()),
        ]
    };
    for bad in [f32(&[3]), f32(&[3, 1]), f32(&[10, 3]), f32(&[])] {
        pairs(&logits, &bad).into_iter().for_each(shape);
    }
    pairs(&logits, &zeros(&[3, 10], DType::BF16))
        .into_iter()
        .for_each(dtype);
    for bad in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        argument("delta", logits.huber_loss(&logits, bad, r));
    }
    for bad in [-1.0, f64::NAN, f64::NEG_INFINITY] {
        argument("beta", logits.smooth_l1_loss(&logits, bad, r));
    }
    shape(logits.bce_with_logits(&logits, Some(&f32(&[3])), r));
    shape(logits.bce_with_logits(&logits, Some(&f32(&[2, 3, 10])), r));
    dtype(logits.bce_with_logits(&logits, Some(&zeros(&[10], DType::BF16)), r));
}
