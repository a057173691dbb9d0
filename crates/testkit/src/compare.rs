//! Closeness, as `numpy.allclose` defines it, with a message that shows where.

/// `|got − want| ≤ atol + rtol·|want|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative part.
    pub rtol: f64,
    /// Absolute part.
    pub atol: f64,
}

impl Tolerance {
    /// Forward values in f32.
    pub const F32: Tolerance = Tolerance { rtol: 1e-4, atol: 1e-5 };
    /// Gradients in f32.
    pub const F32_GRADIENT: Tolerance = Tolerance { rtol: 1e-3, atol: 1e-4 };
    /// Forward values in f64.
    pub const F64: Tolerance = Tolerance {
        rtol: 1e-9,
        atol: 1e-10,
    };
    /// Analytic against numeric gradients in f64.
    pub const NUMERIC: Tolerance = Tolerance { rtol: 1e-3, atol: 1e-5 };

    /// The same tolerance, `k` times wider.
    pub fn times(self, k: f64) -> Tolerance {
        Tolerance {
            rtol: self.rtol * k,
            atol: self.atol * k,
        }
    }

    /// Whether `got` is close to `want`; NaN equals NaN and infinities equal themselves.
    pub fn accepts(self, got: f64, want: f64) -> bool {
        let near = want.is_finite() && (got - want).abs() <= self.atol + self.rtol * want.abs();
        got == want || (got.is_nan() && want.is_nan()) || near
    }
}

/// Compares element by element.
///
/// # Panics
/// Naming the first difference and `what`.
pub fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: Tolerance) {
    assert_eq!(got.len(), want.len(), "{what}: number of elements");
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        assert!(
            tolerance.accepts(g, w),
            "{what}: element {i} is {g:e}, expected {w:e} (difference {:e}, {tolerance:?})",
            (g - w).abs()
        );
    }
}
