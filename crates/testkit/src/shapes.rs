//! Strategies for sizes, shapes and values that straddle the edges of warps, vectors and tiles.

use crate::Array;
use proptest::prelude::*;

/// A dimension: 0, 1, small, prime, or around the size of a vector, a warp or a tile.
pub fn dim() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 1usize..6,
        1 => Just(0usize),
        2 => prop::sample::select(vec![7usize, 8, 13, 15, 16, 17]),
        1 => prop::sample::select(vec![31usize, 32, 33, 63, 65, 127, 129]),
    ]
}

/// A dimension small enough for numeric gradients, never zero.
pub fn small() -> impl Strategy<Value = usize> {
    1usize..5
}

/// A shape of rank `0..=max_rank` with mostly small dimensions and at most `4096` elements.
pub fn shape(max_rank: usize) -> impl Strategy<Value = Vec<usize>> {
    (0..=max_rank).prop_flat_map(|rank| {
        let dims = match rank {
            0..=2 => prop::collection::vec(dim().boxed(), rank),
            _ => prop::collection::vec(prop_oneof![6 => 1usize..5, 1 => Just(0usize)].boxed(), rank),
        };
        dims.prop_filter("at most 4096 elements", |d| d.iter().product::<usize>() <= 4096)
    })
}

/// Two shapes that broadcast with each other.
pub fn broadcast_pair() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    (shape(4), any::<[bool; 8]>(), 0usize..5, any::<bool>()).prop_map(|(full, ones, drop, swap)| {
        let drop = drop.min(full.len());
        let other: Vec<usize> = full[drop..]
            .iter()
            .zip(ones)
            .map(|(&d, one)| if one { 1 } else { d })
            .collect();
        if swap { (other, full) } else { (full, other) }
    })
}

/// An array of `shape` with values in `low..high` that f32 holds exactly.
pub fn values(shape: &[usize], low: f64, high: f64) -> impl Strategy<Value = Array> + use<> {
    let shape = shape.to_vec();
    let size: usize = shape.iter().product();
    prop::collection::vec(0u32..1 << 20, size).prop_map(move |v| {
        let data = v
            .into_iter()
            .map(|x| f64::from((low + (high - low) * (f64::from(x) + 0.5) / f64::from(1 << 20)) as f32))
            .collect();
        Array::new(&shape, data)
    })
}
