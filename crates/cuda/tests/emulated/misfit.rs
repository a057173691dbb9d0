//! Buffers and parameters that do not fit each other, and memory of another device.

use crate::{cuda, with};
use kiln_core::ops::{ElementwiseOps, MatmulOps, MatmulParams};
use kiln_core::{DType, Error, Runtime, Shape};
use kiln_cuda::Options;
use kiln_cuda::matmul::{Algorithm, Plan};

#[test]
fn memory_of_another_handle_is_refused() {
    let (mine, other) = (cuda(), with(Options::default()));
    let x = other.upload(&[1f32; 4]).unwrap();
    let mut y = mine.clone().alloc(DType::F32, 4).unwrap();
    let refused = [
        mine.accumulate(&x, &mut y),
        mine.copy(&x, &mut y),
        mine.download::<f32>(&x).map(drop),
    ];
    for result in refused {
        assert!(matches!(result, Err(Error::InvalidArgument { .. })), "{result:?}");
    }
    mine.fill(1.0, &mut y).unwrap();
}

#[test]
fn a_chosen_variant_checks_its_operands_too() {
    let cuda = cuda();
    let shape = |dims: &[usize]| Shape::new(dims).unwrap();
    let (p, _) = MatmulParams::new("matmul", &shape(&[5, 8]), &shape(&[5, 8]), true, false).unwrap();
    let (short, b) = (cuda.upload(&[0f32; 39]).unwrap(), cuda.upload(&[0f32; 40]).unwrap());
    let mut c = cuda.alloc(DType::F32, 64).unwrap();
    assert!(cuda.matmul(&p, &short, &b, &mut c).is_err());
    for algorithm in Algorithm::ALL {
        let result = cuda.matmul_with(Plan::new(algorithm), &p, &short, &b, None, &mut c);
        assert!(
            matches!(result, Err(Error::Operand { .. })),
            "{algorithm:?}: {result:?}"
        );
    }
}

/// A captured step repeats on its own buffers, even after the program has dropped them, and on no others.
#[test]
fn a_graph_keeps_the_buffers_it_repeats_on() {
    for options in [
        Options {
            exact: true,
            ..Options::default()
        },
        Options::default(),
    ] {
        let cuda = with(options);
        let mut y = cuda.upload(&[1f32; 1000]).unwrap();
        let x = cuda.upload(&[2f32; 1000]).unwrap();
        // A first call loads the kernel, which cannot be done while a stream is captured.
        cuda.accumulate(&x, &mut y).unwrap();
        let mut graph = cuda.capture(&mut || cuda.accumulate(&x, &mut y)).unwrap().unwrap();
        drop((x, y));
        let others: Vec<_> = (0..4).map(|i| cuda.upload(&[i as f32; 1000]).unwrap()).collect();
        for _ in 0..3 {
            cuda.replay(&mut graph).unwrap();
        }
        for (i, other) in others.iter().enumerate() {
            assert_eq!(cuda.download::<f32>(other).unwrap(), [i as f32; 1000]);
        }
        let stranger = with(options);
        assert!(matches!(
            stranger.replay(&mut graph),
            Err(Error::InvalidArgument { .. })
        ));
    }
}
