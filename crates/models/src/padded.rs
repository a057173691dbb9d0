//! Texts of several lengths as one array.

use kiln_core::{Backend, Error, Result};
use kiln_data::DataError;
use kiln_nn::{Indices, Tensor};
use ndarray::Array2;

/// The ids of texts `[N, T]` that end with negative numbers, and their mask, cut to the longest text rounded up to 16.
pub(crate) fn padded(texts: &[&[f32]]) -> kiln_data::Result<(Array2<i32>, Array2<u8>)> {
    let used = |text: &[f32]| text.iter().take_while(|&&id| id >= 0.0).count();
    let most = texts.iter().map(|text| text.len()).max().unwrap_or(0);
    let longest = texts.iter().map(|text| used(text)).max().unwrap_or(0);
    let length = longest.next_multiple_of(16).min(most);
    let id = |(n, at): (usize, usize)| texts[n].get(at).copied().unwrap_or(-1.0);
    let shape = (texts.len(), length);
    match longest {
        0 => Err(DataError::Layout {
            found: "texts without tokens".to_string(),
            expected: "one token or more".to_string(),
        }),
        _ => Ok((
            Array2::from_shape_fn(shape, |at| id(at).max(0.0) as i32),
            Array2::from_shape_fn(shape, |at| u8::from(id(at) >= 0.0)),
        )),
    }
}

/// The ids and the mask of texts `[N, T]` as datasets give them, on their device.
pub(crate) fn tokens_of<B: Backend>(texts: &Tensor<B>) -> Result<(Indices<B>, Indices<B>)> {
    let values = texts.to_vec::<f32>()?;
    let width = texts.shape().dims().last().copied().unwrap_or(1).max(1);
    let rows: Vec<&[f32]> = values.chunks(width).collect();
    let (ids, mask) = padded(&rows).map_err(|e| Error::invalid("bert", "texts", e, "texts of tokens"))?;
    let shape = [ids.nrows(), ids.ncols()];
    let backend = texts.backend();
    let ids: Vec<i32> = ids.into_iter().collect();
    let mask: Vec<u8> = mask.into_iter().collect();
    Ok((
        Indices::from_slice(backend, &ids, &shape)?,
        Indices::from_slice(backend, &mask, &shape)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_the_longest_rounded_up() {
        let of = |length: usize| {
            let mut text = vec![5.0; length];
            text.resize(64, -1.0);
            text
        };
        let (short, long) = (of(3), of(17));
        let (ids, mask) = padded(&[&short, &long]).unwrap();
        assert_eq!((ids.dim(), mask.dim()), ((2, 32), (2, 32)));
        assert_eq!((ids.sum(), mask.iter().map(|&m| u32::from(m)).sum::<u32>()), (100, 20));
        assert!(padded(&[&of(0)]).is_err());
    }
}
