//! Sums of products in Einstein's notation.

use crate::autograd::Cast;
use crate::{Backend, Error, Result, Shape, Tensor};

const OP: &str = "einsum";

/// The name of an axis: a letter, or one of the axes that an ellipsis stands for, counted from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// A tensor whose axes have different labels.
struct Labelled<B: Backend> {
    tensor: Tensor<B>,
    labels: Vec<Label>,
}

fn refuse(equation: &str, expected: impl Into<String>) -> Error {
    Error::invalid(OP, "equation", format!("`{equation}`"), expected.into())
}

/// The labels of one operand's subscripts. `covered` is how many axes an ellipsis stands for.
fn labels(equation: &str, subscripts: &str, covered: usize) -> Result<Vec<Label>> {
    let mut found = Vec::new();
    let mut rest = subscripts;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            if found.iter().any(|l| matches!(l, Label::Ellipsis(_))) || after.contains("...") {
                return Err(refuse(equation, "at most one `...` for each operand"));
            }
            found.extend((0..covered).rev().map(Label::Ellipsis));
            rest = after;
            continue;
        }
        match c {
            'a'..='z' | 'A'..='Z' => found.push(Label::Letter(c)),
            ' ' => {}
            _ => return Err(refuse(equation, "letters, `,`, `...` and one `->`")),
        }
        rest = &rest[c.len_utf8()..];
    }
    Ok(found)
}

impl<B: Backend> Labelled<B> {
    /// An operand with the axes that have the same label reduced to their diagonal.
    fn new(equation: &str, subscripts: &str, tensor: &Tensor<B>) -> Result<Self> {
        let letters = subscripts.chars().filter(char::is_ascii_alphabetic).count();
        let covered = tensor.rank().checked_sub(letters);
        let Some(covered) = covered.filter(|&n| n == 0 || subscripts.contains("...")) else {
            let expected = format!(
                "as many letters in `{subscripts}` as its operand {} has axes",
                tensor.shape()
            );
            return Err(refuse(equation, expected));
        };
        let (mut labels, mut tensor) = (labels(equation, subscripts, covered)?, tensor.clone());
        while let Some((i, j)) = repeated(&labels) {
            let (label, sizes) = (labels[i], [i, j].map(|i| tensor.shape()[i]));
            if sizes[0] != sizes[1] {
                let expected = format!("one size for the letter repeated in `{subscripts}`, not {sizes:?}");
                return Err(refuse(equation, expected));
            }
            // The diagonal becomes the last axis.
            tensor = tensor.diagonal(0, i as isize, j as isize)?;
            labels.remove(j);
            labels.remove(i);
            labels.push(label);
        }
        Ok(Labelled { tensor, labels })
    }

    fn size(&self, label: Label) -> Option<usize> {
        let i = self.labels.iter().position(|&l| l == label)?;
        Some(self.tensor.shape()[i])
    }

    /// The sum over all labels but those that `keep` accepts.
    fn summed(self, keep: impl Fn(Label) -> bool) -> Result<Self> {
        let axes: Vec<isize> = (0..)
            .zip(&self.labels)
            .filter(|(_, l)| !keep(**l))
            .map(|(i, _)| i)
            .collect();
        if axes.is_empty() {
            return Ok(self);
        }
        Ok(Labelled {
            tensor: self.tensor.sum(&axes, false)?,
            labels: self.labels.into_iter().filter(|&l| keep(l)).collect(),
        })
    }

    /// The axes in the order of `labels`, all of which are there.
    fn ordered(&self, labels: &[Label]) -> Result<Tensor<B>> {
        let place = |label: &Label| self.labels.iter().position(|l| l == label).unwrap_or_default() as isize;
        self.tensor.permute(&labels.iter().map(place).collect::<Vec<_>>())
    }

    /// The sum of products over labels that both have and `keep` does not accept, as a batch of matrix products.
    fn times(self, other: Self, keep: impl Fn(Label) -> bool) -> Result<Self> {
        let (a, b) = self.matched(other)?;
        let shared = |l: &Label| b.labels.contains(l);
        let (both, rows): (Vec<_>, Vec<_>) = a.labels.iter().copied().partition(shared);
        let columns: Vec<_> = b.labels.iter().copied().filter(|l| !a.labels.contains(l)).collect();
        let (batch, inner): (Vec<_>, Vec<_>) = both.into_iter().partition(|&l| keep(l));
        let x = a.ordered(&[&batch[..], &rows, &inner].concat())?;
        let y = b.ordered(&[&batch[..], &inner, &columns].concat())?;
        let size = |part: &[Label], of: &Self| -> usize { part.iter().filter_map(|&l| of.size(l)).product() };
        let (n, m, k) = (size(&batch, &a), size(&rows, &a), size(&inner, &a));
        let product = x
            .reshape(&[n, m, k])?
            .matmul(&y.reshape(&[n, k, size(&columns, &b)])?)?;
        let labels = [&batch[..], &rows, &columns].concat();
        let dims: Vec<usize> = labels.iter().filter_map(|&l| a.size(l).or(b.size(l))).collect();
        let tensor = product.reshape(&dims)?;
        Ok(Labelled { tensor, labels })
    }

    /// Both with shared axes of size 1 repeated to the other's size.
    fn matched(self, other: Self) -> Result<(Self, Self)> {
        let wide = |one: Self, like: &Self| -> Result<Self> {
            let size = |&l: &Label| match (one.size(l), like.size(l)) {
                (Some(1), Some(n)) => n,
                (own, _) => own.unwrap_or(1),
            };
            let dims: Vec<usize> = one.labels.iter().map(size).collect();
            let tensor = one.tensor.broadcast_to(&dims)?;
            Ok(Labelled {
                tensor,
                labels: one.labels,
            })
        };
        let a = wide(self, &other)?;
        let b = wide(other, &a)?;
        Ok((a, b))
    }
}

/// The first two axes that have the same label.
fn repeated(labels: &[Label]) -> Option<(usize, usize)> {
    let after = |i: usize| labels[i + 1..].iter().position(|&l| l == labels[i]);
    (0..labels.len()).find_map(|i| after(i).map(|j| (i, i + 1 + j)))
}

/// The labels of the result where the equation does not give them: those of ellipses, then letters that occur once, in order.
fn implicit(equation: &str, inputs: &[&str], covered: usize) -> Vec<Label> {
    let letters: Vec<char> = inputs
        .iter()
        .flat_map(|s| s.chars())
        .filter(char::is_ascii_alphabetic)
        .collect();
    let mut once: Vec<_> = letters
        .iter()
        .filter(|c| letters.iter().filter(|d| d == c).count() == 1)
        .collect();
    once.sort();
    let ellipsis = if equation.contains("...") { covered } else { 0 };
    let dots = (0..ellipsis).rev().map(Label::Ellipsis);
    dots.chain(once.into_iter().map(|&c| Label::Letter(c))).collect()
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The sum of products that `equation` writes in Einstein's notation (`torch.einsum`): each operand's axes have letters,
    /// letters that the result lacks are summed over, and `...` stands for axes that broadcast. Without `->` the result has
    /// the letters that occur once, in alphabetical order. A letter that an operand repeats is its diagonal.
    ///
    /// Operands are multiplied from left to right, each pair by one batched matrix product.
    ///
    /// ```
    /// use kiln_nn::{DType, Result, Rng, Tensor};
    /// # fn main() -> Result<()> {
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let mut rng = Rng::new(0);
    /// # let mut rand = |shape: &[usize]| Tensor::rand(&cpu, shape, DType::F32, &mut rng);
    /// let (q, k) = (rand(&[2, 5, 4, 8])?, rand(&[2, 7, 4, 8])?); // batch, positions, heads, width
    /// let scores = Tensor::einsum("bqhd,bkhd->bhqk", &[&q, &k])?;
    /// assert_eq!(scores.shape().dims(), [2, 4, 5, 7]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An equation that is malformed or does not fit the operands' ranks, sizes of one letter that differ (1 broadcasts),
    /// dtypes that differ, no operand.
    pub fn einsum(equation: &str, operands: &[&Tensor<B>]) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::low() {
            let operands: Vec<_> = operands.iter().map(|t| cast.of(t)).collect::<Result<_>>()?;
            return Tensor::einsum(equation, &operands.iter().map(|t| &**t).collect::<Vec<_>>());
        }
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (equation, None),
        };
        let inputs: Vec<&str> = left.split(',').collect();
        if inputs.len() != operands.len() {
            return Err(refuse(equation, format!("subscripts of {} operands", operands.len())));
        }
        let given = inputs.iter().zip(operands);
        let mut parts: Vec<_> = given
            .map(|(s, t)| Labelled::new(equation, s, t))
            .collect::<Result<_>>()?;
        check_sizes(&parts)?;
        let dots = |l: &Label| match l {
            Label::Ellipsis(i) => i + 1,
            Label::Letter(_) => 0,
        };
        let covered = parts.iter().flat_map(|p| &p.labels).map(dots).max().unwrap_or(0);
        let to = match right {
            Some(right) => labels(equation, right, covered)?,
            None => implicit(equation, &inputs, covered),
        };
        let known = |l: &Label| parts.iter().any(|p| p.labels.contains(l));
        if repeated(&to).is_some() || !to.iter().all(known) {
            return Err(refuse(equation, "a result whose letters are the operands', each once"));
        }
        parts.reverse();
        let Some(mut product) = parts.pop() else {
            return Err(refuse(equation, "at least one operand"));
        };
        while let Some(next) = parts.pop() {
            let later = |l: Label| to.contains(&l) || parts.iter().any(|p| p.labels.contains(&l));
            let first = product.summed(|l| later(l) || next.labels.contains(&l))?;
            let second = next.summed(|l| later(l) || first.labels.contains(&l))?;
            product = first.times(second, later)?;
        }
        product.summed(|l| to.contains(&l))?.ordered(&to)
    }
}

/// Refuses operands that give a letter two sizes other than 1, and dtypes that differ.
fn check_sizes<B: Backend>(parts: &[Labelled<B>]) -> Result<()> {
    for (i, part) in parts.iter().enumerate() {
        for before in &parts[..i] {
            crate::tensor::same_dtype(OP, &before.tensor, &part.tensor)?;
            let fits = |&l: &Label| match (part.size(l), before.size(l)) {
                (Some(a), Some(b)) => a == b || a == 1 || b == 1,
                _ => true,
            };
            if !part.labels.iter().all(fits) {
                let (lhs, rhs): (Shape, Shape) = (*before.tensor.shape(), *part.tensor.shape());
                return Err(Error::ShapeMismatch { op: OP, lhs, rhs });
            }
        }
    }
    Ok(())
}
