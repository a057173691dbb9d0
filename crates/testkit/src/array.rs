//! A plain f64 array for oracles, simple rather than fast.

use std::fmt;

/// A row-major f64 array.
#[derive(Clone, PartialEq)]
pub struct Array {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Elements in row-major order.
    pub data: Vec<f64>,
}

impl Array {
    /// An array of the given elements.
    ///
    /// # Panics
    /// When the number of elements is not the size of the shape.
    pub fn new(shape: &[usize], data: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "array of shape {shape:?}");
        Array {
            shape: shape.to_vec(),
            data,
        }
    }

    /// The array whose element at `i` is `f(i)`.
    pub fn from_fn(shape: &[usize], mut f: impl FnMut(&[usize]) -> f64) -> Self {
        let size: usize = shape.iter().product();
        let data = (0..size).map(|n| f(&unravel(n, shape))).collect();
        Array::new(shape, data)
    }

    /// An array of zeros.
    pub fn zeros(shape: &[usize]) -> Self {
        Array::new(shape, vec![0.0; shape.iter().product()])
    }

    /// The element at `index`.
    pub fn at(&self, index: &[usize]) -> f64 {
        self.data[self.offset(index)]
    }

    /// The element at `index`, for writing.
    pub fn at_mut(&mut self, index: &[usize]) -> &mut f64 {
        let offset = self.offset(index);
        &mut self.data[offset]
    }

    /// The element that NumPy's broadcasting to a larger shape has at `index`.
    pub fn broadcast_at(&self, index: &[usize]) -> f64 {
        let lead = index.len() - self.shape.len();
        let own: Vec<usize> = self
            .shape
            .iter()
            .zip(&index[lead..])
            .map(|(&d, &i)| if d == 1 { 0 } else { i })
            .collect();
        self.at(&own)
    }

    /// The array of `f` of every element.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Array::new(&self.shape, self.data.iter().map(|&x| f(x)).collect())
    }

    /// Number of elements.
    pub fn size(&self) -> usize {
        self.data.len()
    }

    /// Row-major offset of `index`.
    fn offset(&self, index: &[usize]) -> usize {
        assert_eq!(index.len(), self.shape.len());
        index.iter().zip(&self.shape).fold(0, |o, (&i, &d)| {
            assert!(i < d, "index {index:?} in shape {:?}", self.shape);
            o * d + i
        })
    }
}

/// The shape that two shapes broadcast to (NumPy), which the caller knows to exist.
pub fn broadcast_shape(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    (0..rank)
        .map(|i| if at(a, i) == 1 { at(b, i) } else { at(a, i) })
        .collect()
}

/// The multi-index of element `n` of a row-major array.
pub fn unravel(mut n: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &d) in index.iter_mut().zip(shape).rev() {
        *i = n % d;
        n /= d;
    }
    index
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array{:?} {:?}", self.shape, self.data)
    }
}
