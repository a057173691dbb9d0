//! Sorting and searches of integers, and counting.

use super::{holds, ints, number};
use crate::shapes;
use kiln_core::Backend;
use proptest::prelude::*;

/// Sorting keeps the order of equal numbers, and distinguishes numbers that f32 does not.
pub fn sorted<B: Backend>(backend: &B) {
    let near = prop_oneof![number(), (1i32 << 30)..(1 << 30) + 4, -3i32..3];
    let cases = (shapes::shape(3), any::<u8>(), any::<bool>()).prop_filter("an axis", |(s, ..)| !s.is_empty());
    let cases = cases.prop_flat_map(move |(shape, axis, descending)| {
        let axis = usize::from(axis) % shape.len();
        (ints(&shape, near.clone()), Just(axis), Just(descending))
    });
    holds(40, cases, |(a, axis, descending)| {
        let x = a.on(backend)?;
        let (n, inner) = (a.shape[*axis], a.shape[*axis + 1..].iter().product::<usize>());
        let (mut values, mut index) = (vec![0; a.data.len()], vec![0; a.data.len()]);
        let lines = a.data.len().checked_div(n).unwrap_or(0);
        let (mut largest, mut smallest) = (Vec::new(), Vec::new());
        for line in 0..lines {
            let at = |j: usize| (line / inner * n + j) * inner + line % inner;
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by_key(|&j| i64::from(a.data[at(j)]) * if *descending { -1 } else { 1 });
            for (j, &from) in order.iter().enumerate() {
                (values[at(j)], index[at(j)]) = (a.data[at(from)], from as i32);
            }
            let first = |sign: i64| {
                (0..n)
                    .min_by_key(|&j| (i64::from(a.data[at(j)]) * sign, j))
                    .unwrap_or(0) as i32
            };
            largest.push(first(-1));
            smallest.push(first(1));
        }
        let axis = *axis as isize;
        let (got, places) = x.sort(axis, *descending)?;
        assert_eq!(got.to_vec::<i32>()?, values);
        assert_eq!(places.to_vec::<i32>()?, index);
        let (top, at) = x.top_k(n / 2, axis, *descending)?;
        assert_eq!(top.to_vec::<i32>()?, got.narrow(axis, 0, n / 2)?.to_vec::<i32>()?);
        assert_eq!(at.to_vec::<i32>()?, places.narrow(axis, 0, n / 2)?.to_vec::<i32>()?);
        if n > 0 {
            assert_eq!(x.argmax(axis, false)?.to_vec::<i32>()?, largest);
            assert_eq!(x.argmin(axis, true)?.to_vec::<i32>()?, smallest);
        }
        let found = x.unique()?;
        let mut distinct = a.data.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(found.values.to_vec::<i32>()?, distinct);
        let back = found.values.gather(0, &found.inverse.flatten(0, -1)?)?;
        assert_eq!(back.to_vec::<i32>()?, a.data);
        let classes = x.remainder(7)?;
        let mut counts = [0; 7];
        a.data.iter().for_each(|v| counts[v.rem_euclid(7) as usize] += 1);
        assert_eq!(classes.bincount(7)?.to_vec::<i32>()?, counts);
        Ok(())
    });
}
