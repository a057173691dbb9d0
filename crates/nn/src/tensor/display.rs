//! Tensors as text, as PyTorch prints them.

use crate::{Backend, Indices, Result, Tensor, no_grad};
use kiln_core::DType;
use std::fmt::{self, Write};

/// Elements from which on only the entries at both ends of each axis are printed.
const THRESHOLD: usize = 1000;
/// Entries at each end of a long axis.
const EDGE: usize = 3;
/// Columns of a line.
const LINE: usize = 80;

/// How numbers are written: all of a tensor in the same way and width.
struct Format {
    notation: Notation,
    width: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Notation {
    /// `3`: integers.
    Integer,
    /// `3.`: floats that have no fraction.
    Whole,
    /// `3.1416`.
    Fixed,
    /// `3.1416e+10`.
    Scientific,
    /// `true`.
    Boolean,
}

impl Notation {
    /// The notation of floats: scientific where four digits after the point cannot show both the largest and the smallest.
    fn of(values: &[f64]) -> Notation {
        let sizes = || values.iter().filter(|x| x.is_finite() && **x != 0.0).map(|x| x.abs());
        let (least, largest) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
        let whole = sizes().all(|x| x.fract() == 0.0);
        let wide = largest / least > 1000.0 || largest > 1e8;
        match (whole, wide) {
            (true, false) => Notation::Whole,
            (false, false) if least >= 1e-4 => Notation::Fixed,
            _ => Notation::Scientific,
        }
    }

    fn write(self, x: f64) -> String {
        match self {
            Notation::Boolean => (x != 0.0).to_string(),
            _ if x.is_nan() => "nan".into(),
            _ if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.into(),
            Notation::Integer => format!("{x:.0}"),
            Notation::Whole => format!("{x:.0}."),
            Notation::Fixed => format!("{x:.4}"),
            Notation::Scientific => {
                let text = format!("{x:.4e}");
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let exponent: i32 = exponent.parse().unwrap_or_default();
                let sign = if exponent < 0 { '-' } else { '+' };
                format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
            }
        }
    }
}

impl Format {
    fn new(notation: Notation, values: &[f64]) -> Format {
        // As PyTorch, which leaves out NaN and infinities.
        let finite = values.iter().filter(|x| x.is_finite());
        let width = finite.map(|&x| notation.write(x).len()).max().unwrap_or(0);
        Format { notation, width }
    }

    fn number(&self, x: f64) -> String {
        format!("{:>width$}", self.notation.write(x), width = self.width)
    }
}

/// Nested lists of `values` of this shape, in which axes that were `cut` have dots in their middle.
fn lists(out: &mut String, values: &[f64], shape: &[usize], cut: &[bool], format: &Format, indent: usize) {
    let Some((&n, inner)) = shape.split_first() else {
        let number = values.first().map(|&x| format.notation.write(x));
        return out.push_str(&number.unwrap_or_default());
    };
    out.push('[');
    if inner.is_empty() {
        let per_line = (LINE.saturating_sub(indent) / (format.width + 2)).max(1);
        let mut cells: Vec<String> = values.iter().map(|&x| format.number(x)).collect();
        if cut[0] {
            cells.insert(EDGE, " ...".into());
        }
        for (i, cell) in cells.iter().enumerate() {
            match i {
                0 => {}
                _ if i % per_line == 0 => {
                    let _ = write!(out, ",\n{:indent$} ", "");
                }
                _ => out.push_str(", "),
            }
            out.push_str(cell);
        }
    } else {
        let size = values.len() / n.max(1);
        for i in 0..n {
            // Blank lines between matrices, as many as there are brackets to close, less one.
            let gap = format!(",{}{:indent$} ", "\n".repeat(inner.len()), "");
            if i > 0 {
                out.push_str(&gap);
            }
            if i == EDGE && cut[0] {
                let _ = write!(out, "...{gap}");
            }
            lists(
                out,
                &values[i * size..(i + 1) * size],
                inner,
                &cut[1..],
                format,
                indent + 1,
            );
        }
    }
    out.push(']');
}

/// Values, the shape they have now, which axes were cut to get there, and their notation.
struct Shown {
    values: Vec<f64>,
    shape: Vec<usize>,
    cut: Vec<bool>,
    notation: Notation,
}

fn print(f: &mut fmt::Formatter<'_>, whole: &[usize], about: &str, shown: Result<Shown>) -> fmt::Result {
    const NAME: &str = "tensor(";
    let mut text = NAME.to_string();
    match shown {
        Ok(s) if s.values.is_empty() => text.push_str("[]"),
        Ok(s) => {
            let format = Format::new(s.notation, &s.values);
            lists(&mut text, &s.values, &s.shape, &s.cut, &format, NAME.len());
        }
        Err(e) => {
            let _ = write!(text, "<{e}>");
        }
    }
    let about = format!("shape={whole:?}, {about})");
    let last = text.rsplit('\n').next().unwrap_or_default().len();
    let space = if last + about.len() + 2 > LINE {
        format!(",\n{:width$}", "", width = NAME.len())
    } else {
        ", ".into()
    };
    write!(f, "{text}{space}{about}")
}

/// The entries of a long axis that are printed: the first and the last three.
fn ends(n: usize) -> [(usize, usize); 2] {
    [(0, EDGE), (n - EDGE, EDGE)]
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    fn shown(&self) -> Result<Shown> {
        let mut x = self.detach();
        let summarised = self.size() > THRESHOLD;
        let cut: Vec<bool> = self.shape().iter().map(|&n| summarised && n > 2 * EDGE).collect();
        for (axis, _) in cut.iter().enumerate().filter(|(_, cut)| **cut) {
            let axis = axis as isize;
            let parts = ends(x.shape()[axis as usize]).map(|(start, n)| x.narrow(axis, start, n));
            let [first, last] = parts;
            x = Tensor::concat(&[&first?, &last?], axis)?;
        }
        let values = x.to_f64()?;
        let notation = Notation::of(&values);
        let shape = x.shape().to_vec();
        Ok(Shown {
            values,
            shape,
            cut,
            notation,
        })
    }
}

#[compiled_once]
impl<B: Backend> fmt::Display for Tensor<B> {
    /// The values, rounded to four digits after the point, and of more than 1000 elements only the first and the last three
    /// entries of each axis; then shape, dtype and device, and `requires_grad` or the op that made a tracked tensor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = match self.node() {
            None => String::new(),
            Some(node) if node.is_leaf() => ", requires_grad=true".into(),
            Some(node) => format!(", grad_fn={}", node.op()),
        };
        let about = format!("dtype={}, device={}{graph}", self.dtype(), self.backend().name());
        print(f, self.shape(), &about, no_grad(|| self.shown()))
    }
}

#[compiled_once]
impl<B: Backend> fmt::Debug for Tensor<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    fn shown(&self) -> Result<Shown> {
        let mut x = self.clone();
        let summarised = self.size() > THRESHOLD;
        let cut: Vec<bool> = self.shape().iter().map(|&n| summarised && n > 2 * EDGE).collect();
        for (axis, _) in cut.iter().enumerate().filter(|(_, cut)| **cut) {
            let n = x.shape()[axis];
            let rows: Vec<i32> = ends(n)
                .iter()
                .flat_map(|&(start, n)| (start..start + n).map(|i| i as i32))
                .collect();
            let rows = Indices::from_slice(x.backend(), &rows, &[rows.len()])?;
            x = x.index_select(axis as isize, &rows)?;
        }
        let (values, notation) = match x.dtype() {
            DType::U8 => (
                x.to_vec::<u8>()?.into_iter().map(f64::from).collect(),
                Notation::Boolean,
            ),
            _ => (
                x.to_vec::<i32>()?.into_iter().map(f64::from).collect(),
                Notation::Integer,
            ),
        };
        let shape = x.shape().to_vec();
        Ok(Shown {
            values,
            shape,
            cut,
            notation,
        })
    }
}

#[compiled_once]
impl<B: Backend> fmt::Display for Indices<B> {
    /// As a [`Tensor`]'s; masks as `true` and `false`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = format!("dtype={}, device={}", self.dtype(), self.backend().name());
        print(f, self.shape(), &about, self.shown())
    }
}

#[compiled_once]
impl<B: Backend> fmt::Debug for Indices<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
