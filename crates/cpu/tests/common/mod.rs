//! What the op tests share: fixed random inputs, closeness, and runs at several numbers of threads.
#![allow(dead_code, unreachable_pub)]

use kiln_core::philox::{Key, uniform};

/// Values in −2..2, the same for the same stream.
pub fn random(n: usize, stream: u32) -> Vec<f32> {
    let key = Key::new(11, stream, 0);
    (0..n as u64).map(|i| uniform(key.word(i)) * 4.0 - 2.0).collect()
}

/// Compares with `|got − want| ≤ atol + rtol·|want|`; NaN equals NaN.
#[track_caller]
pub fn close(got: &[f32], want: &[f64], rtol: f64, atol: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let g = f64::from(g);
        let same = g == w || (g.is_nan() && w.is_nan());
        assert!(
            same || (g - w).abs() <= atol + rtol * w.abs(),
            "element {i}: {g:e}, expected {w:e}"
        );
    }
}

/// Runs `f` at 1, 2 and 4 threads, asserts equal bits and returns them.
#[track_caller]
pub fn at_threads(f: impl Fn() -> Vec<f32> + Sync) -> Vec<f32> {
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(&f)
    };
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let one = run(1);
    for threads in [2, 4] {
        assert!(bits(&run(threads)) == bits(&one), "{threads} threads give other bits");
    }
    one
}
