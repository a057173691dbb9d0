//! Sums of products in Einstein's notation.

use super::matmul::magnitudes;
use crate::{Array, Case, Rounding, check_with, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// An equation with its explicit result, and operands.
#[derive(Clone, Debug)]
struct Einsum {
    equation: String,
    operands: Vec<Array>,
}

/// Equations, and the same with every axis lettered: diagonals, sums, outer and inner products, batches, implicit results,
/// ellipses, letters out of order and chains of three.
const EQUATIONS: &[(&str, &str)] = &[
    ("ij->ji", "ij->ji"),
    ("ii", "ii->"),
    ("iij->ij", "iij->ij"),
    ("iji->j", "iji->j"),
    ("ijk->k", "ijk->k"),
    ("...ij->...", "aij->a"),
    ("i,i", "i,i->"),
    ("i,j->ij", "i,j->ij"),
    ("ij,jk", "ij,jk->ik"),
    ("ij,kj->ki", "ij,kj->ki"),
    ("b i j, b j k -> b i k", "bij,bjk->bik"),
    ("bqhd,bkhd->bhqk", "bqhd,bkhd->bhqk"),
    ("...qd,...kd->...qk", "abqd,abkd->abqk"),
    ("...i,i...->...", "ai,ia->a"),
    ("ba,cb", "ba,cb->ac"),
    ("bij,j->b", "bij,j->b"),
    ("ij,jk,kl->il", "ij,jk,kl->il"),
    ("bn,anm,bm->ba", "bn,anm,bm->ba"),
    ("ii,ij->j", "ii,ij->j"),
    (",ij->ij", ",ij->ij"),
];

impl Einsum {
    fn lettered(&self) -> (&'static str, &'static str) {
        let found = EQUATIONS.iter().find(|e| e.0 == self.equation);
        found.and_then(|e| e.1.split_once("->")).unwrap_or_default()
    }

    /// The size of every letter; axes of size 1 broadcast.
    fn sizes(&self) -> BTreeMap<char, usize> {
        let mut sizes = BTreeMap::new();
        for (letters, x) in self.lettered().0.split(',').zip(&self.operands) {
            for (c, &n) in letters.chars().zip(&x.shape) {
                let size = sizes.entry(c).or_insert(1);
                *size = if *size == 1 { n } else { *size };
            }
        }
        sizes
    }
}

impl Case for Einsum {
    fn inputs(&self) -> Vec<Array> {
        self.operands.clone()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        Tensor::einsum(&self.equation, &x.iter().collect::<Vec<_>>())
    }

    /// The product of the operands at every value of all letters, added where the result has it.
    fn oracle(&self, x: &[Array]) -> Array {
        let ((inputs, output), sizes) = (self.lettered(), self.sizes());
        let letters: Vec<char> = sizes.keys().copied().collect();
        let all: Vec<usize> = sizes.values().copied().collect();
        let mut y = Array::zeros(&output.chars().map(|c| sizes[&c]).collect::<Vec<_>>());
        for n in 0..all.iter().product() {
            let at = crate::array::unravel(n, &all);
            let place = |c: char| at[letters.iter().position(|&l| l == c).unwrap_or_default()];
            let term = inputs.split(',').zip(x).map(|(letters, x)| {
                let at: Vec<usize> = letters.chars().map(place).collect();
                x.broadcast_at(&at)
            });
            let term: f64 = term.product();
            *y.at_mut(&output.chars().map(place).collect::<Vec<_>>()) += term;
        }
        y
    }

    /// Every term is a product; intermediate results are stored.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let terms: usize = self.sizes().values().product();
        let steps = terms as f64 + x.len() as f64 + 1.0;
        Rounding::terms(steps, self.oracle(&magnitudes(x))).stored(2.0 * x.len() as f64)
    }
}

/// Every equation with sizes of which some are 0 and, where letters are shared, some 1.
pub fn einsum<B: Backend>(backend: &B) {
    for (equation, lettered) in EQUATIONS {
        let operands: Vec<&str> = lettered.split("->").next().unwrap_or_default().split(',').collect();
        let count = lettered.len();
        let size = prop_oneof![12 => 1usize..4, 1 => Just(0usize), 1 => Just(17usize)];
        let drawn = (prop::collection::vec(size, 26), prop::collection::vec(0..8u8, count));
        let cases = drawn.prop_flat_map(move |(sizes, ones)| {
            let mut ones = ones.into_iter();
            let inputs: Vec<_> = operands
                .iter()
                .map(|letters| {
                    // A repeated letter is a diagonal, whose axes have one size.
                    let repeats = |c: char| letters.matches(c).count() > 1;
                    let mut size = |c: char| match ones.next() == Some(0) && !repeats(c) {
                        true => 1,
                        false => sizes[(c as u8 - b'a') as usize],
                    };
                    let shape: Vec<usize> = letters.chars().map(&mut size).collect();
                    shapes::values(&shape, -1.0, 1.0)
                })
                .collect();
            inputs.prop_map(|operands| Einsum {
                equation: equation.to_string(),
                operands,
            })
        });
        check_with(8, backend, cases);
    }
}

/// Equations that are malformed or do not fit.
pub fn refused<B: Backend>(backend: &B) {
    let of = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let (a, b) = (of(&[2, 3]), of(&[4, 2]));
    let malformed = [
        "ij",
        "ij,jk,k",
        "i,jk",
        "ij,k->ik",
        "ij,kl->im",
        "ij,kl->ii",
        "i1,kl",
        "......,ij",
        "ij,kl->.i",
    ];
    for equation in malformed
        .into_iter()
        .chain(["ij..,jk", "ij,->i", "ij,...kl->i->", "IJ,K"])
    {
        let refused = Tensor::einsum(equation, &[&a, &b]);
        assert!(
            matches!(refused, Err(Error::InvalidArgument { .. })),
            "{equation}: {refused:?}"
        );
    }
    let refused = Tensor::einsum("ij,jk", &[&a, &b]);
    assert!(matches!(refused, Err(Error::ShapeMismatch { .. })), "{refused:?}");
    assert!(Tensor::<B>::einsum("", &[]).is_err());
    assert!(Tensor::einsum("ii", &[&a]).is_err());
    let refused = Tensor::einsum("abcde,fghij->abcdefghij", &[&of(&[1; 5]), &of(&[1; 5])]);
    assert!(refused.is_err(), "ten dimensions");
}
