//! Places of elements that are not 0, draws by weights, and gates.

use kiln_cpu::Cpu;
use kiln_nn::layers::{BagMode, EmbeddingBag, Glu};
use kiln_nn::ops::{GridMode, GridOptions, GridPadding};
use kiln_nn::{DType, Error, Indices, Init, Layer, Module, Rng, Tensor, Window};

#[test]
fn places_are_in_row_major_order() {
    let cpu = Cpu::poisoned();
    let x = Indices::from_slice(&cpu, &[0i32, -3, 0, 7, 0, 1], &[1, 2, 3]).unwrap();
    let places = x.nonzero().unwrap();
    assert_eq!(places.shape().dims(), [3, 3]);
    assert_eq!(places.to_vec::<i32>().unwrap(), [0, 0, 1, 0, 1, 0, 0, 1, 2]);
    let mask = Indices::from_slice(&cpu, &[0u8, 1, 0, 0, 1, 1], &[1, 2, 3]).unwrap();
    assert_eq!(x.masked_select(&mask).unwrap().to_vec::<i32>().unwrap(), [-3, 0, 1]);
    let scalar = Indices::from_slice(&cpu, &[1u8], &[]).unwrap();
    assert_eq!(scalar.nonzero().unwrap().shape().dims(), [1, 0]);
    let none = Indices::from_slice(&cpu, &[0u8; 4], &[2, 2]).unwrap();
    assert_eq!(none.nonzero().unwrap().shape().dims(), [0, 2]);
    let y = Tensor::ones(&cpu, &[2, 2], DType::F32).unwrap();
    assert_eq!(y.masked_select(&none).unwrap().size(), 0);
    let other = Indices::from_slice(&cpu, &[1u8; 2], &[2]).unwrap();
    assert!(matches!(y.masked_select(&other), Err(Error::ShapeMismatch { .. })));
    assert!(y.mask(&x).is_err());
    assert!(y.mask(&Indices::from_slice(&cpu, &[1u8; 3], &[3]).unwrap()).is_err());
}

/// The shares of many draws are the weights; no draw repeats without replacement.
#[test]
fn draws_follow_the_weights() {
    let cpu = Cpu::poisoned();
    let weights = [0.5f32, 0.0, 2.0, 1.5, 4.0];
    let x = Tensor::from_slice(&cpu, &weights, &[5]).unwrap();
    let rng = &mut Rng::new(7);
    let n = 20_000;
    let drawn = x.multinomial(n, true, rng).unwrap().to_vec::<i32>().unwrap();
    for (i, w) in weights.iter().enumerate() {
        let share = drawn.iter().filter(|&&d| d == i as i32).count() as f64 / n as f64;
        let want = f64::from(*w) / 8.0;
        // Five standard deviations of a share.
        assert!(
            (share - want).abs() <= 5.0 * (want * (1.0 - want) / n as f64).sqrt(),
            "{i}: {share}, expected {want}"
        );
    }
    // The first of two draws without replacement has the same shares.
    let rows = x.reshape(&[1, 5]).unwrap().expand(&[5000, 5]).unwrap();
    let pairs = rows.multinomial(2, false, rng).unwrap();
    assert_eq!(pairs.shape().dims(), [5000, 2]);
    let pairs = pairs.to_vec::<i32>().unwrap();
    assert!(pairs.chunks(2).all(|p| p[0] != p[1] && p[0] != 1 && p[1] != 1));
    let share = pairs.chunks(2).filter(|p| p[0] == 4).count() as f64 / 5000.0;
    assert!((share - 0.5).abs() < 0.036, "{share}");
    assert_eq!(x.multinomial(0, true, rng).unwrap().shape().dims(), [0]);
    assert_eq!(x.multinomial(4, false, rng).unwrap().shape().dims(), [4]);
    assert!(x.multinomial(5, false, rng).is_err(), "one weight is 0");
    for bad in [[-1f32, 1.0], [f32::NAN, 1.0], [f32::INFINITY, 1.0], [0.0, 0.0]] {
        let x = Tensor::from_slice(&cpu, &bad, &[2]).unwrap();
        assert!(x.multinomial(1, true, rng).is_err(), "{bad:?}");
    }
    assert!(
        Tensor::ones(&cpu, &[], DType::F32)
            .unwrap()
            .multinomial(1, true, rng)
            .is_err()
    );
}

#[test]
fn gates_halve_an_axis() {
    let cpu = Cpu::poisoned();
    let x = Tensor::randn(&cpu, &[3, 4, 2], DType::F64, &mut Rng::new(1)).unwrap();
    let y = x.glu(1).unwrap();
    assert_eq!(y.shape().dims(), [3, 2, 2]);
    let (x, y) = (x.to_f64().unwrap(), y.to_f64().unwrap());
    for (i, y) in y.iter().enumerate() {
        let (n, rest) = (i / 4, i % 4);
        let want = x[n * 8 + rest] / (1.0 + (-x[n * 8 + 4 + rest]).exp());
        assert!((y - want).abs() <= 1e-15 * want.abs().max(1e-3), "{y}, expected {want}");
    }
    let odd = Tensor::zeros(&cpu, &[2, 3], DType::F32).unwrap();
    assert!(odd.glu(-1).is_err() && odd.glu(2).is_err());
    assert_eq!(Glu { axis: 0 }.forward(&odd).unwrap().shape().dims(), [1, 3]);
}

/// A convolution is the product of its windows with its kernel.
#[test]
fn windows_times_a_kernel_are_a_convolution() {
    let cpu = Cpu::poisoned();
    let rng = &mut Rng::new(3);
    let x = Tensor::randn(&cpu, &[2, 7, 6, 3], DType::F64, rng).unwrap();
    let w = Tensor::randn(&cpu, &[5, 3, 2, 3], DType::F64, rng).unwrap();
    for window in [
        Window::new([3, 2]),
        Window::new([3, 2]).stride([2, 1]).padding([1, 2]).dilation([2, 1]),
        Window::new([3, 2]).stride([2, 3]).same(),
    ] {
        let want = x.conv(&w, None, &window, 1, kiln_nn::Activation::None).unwrap();
        let rows = x.unfold(&window).unwrap();
        let kernel = w.reshape(&[5, 18]).unwrap();
        let got = rows
            .matmul_t(&kernel, false, true)
            .unwrap()
            .reshape(want.shape())
            .unwrap();
        for (g, w) in got.to_f64().unwrap().iter().zip(want.to_f64().unwrap()) {
            assert!((g - w).abs() < 1e-13, "{window:?}: {g}, expected {w}");
        }
        // The rows of a fold have to be those of the size.
        assert_eq!(rows.fold(&window, &[7, 6]).unwrap().shape(), x.shape());
        assert!(rows.fold(&window, &[15, 6]).is_err() && rows.fold(&window, &[7]).is_err());
    }
    assert!(x.unfold(&Window::new([9, 9])).is_err());
    assert!(x.unfold(&Window::new([2])).is_err());
}

/// Bags by rows and by lengths are the sums, means and maxima of loops; empty ones are 0 and pass no gradient.
#[test]
fn bags_join_their_vectors() {
    let cpu = Cpu::poisoned();
    let (count, dim) = (7, 3);
    let ids = [3, 0, 3, 6, 1, 5, 5, 2];
    let tokens = Indices::from_slice(&cpu, &ids, &[8]).unwrap();
    for mode in [BagMode::Sum, BagMode::Mean, BagMode::Max] {
        let init = &mut Init::new(&cpu, 1).dtype(DType::F64);
        let bags = EmbeddingBag::new(init, count, dim).unwrap().mode(mode);
        let table = bags.weight.to_f64().unwrap();
        let want = |bag: &[i32]| -> Vec<f64> {
            let of = |j: usize| bag.iter().map(move |&i| (i as usize) * dim + j);
            let each = |j: usize| of(j).map(|at| table[at]);
            let join = |j: usize| match mode {
                _ if bag.is_empty() => 0.0,
                BagMode::Sum => each(j).sum(),
                BagMode::Mean => each(j).sum::<f64>() / bag.len() as f64,
                BagMode::Max => each(j).fold(f64::NEG_INFINITY, f64::max),
            };
            (0..dim).map(join).collect()
        };
        let check = |got: &Tensor<Cpu>, bags: &[&[i32]]| {
            assert_eq!(got.shape().dims(), [bags.len(), dim]);
            let want: Vec<f64> = bags.iter().flat_map(|bag| want(bag)).collect();
            for (g, w) in got.to_f64().unwrap().iter().zip(&want) {
                assert!((g - w).abs() < 1e-14, "{mode:?}: {g}, expected {w}");
            }
        };
        check(
            &bags.forward(&tokens.reshape(&[2, 4]).unwrap()).unwrap(),
            &[&ids[..4], &ids[4..]],
        );
        check(
            &bags.forward(&tokens.i(..0).unwrap().reshape(&[2, 0]).unwrap()).unwrap(),
            &[&[], &[]],
        );
        let y = bags.forward_lengths(&tokens, &[0, 3, 0, 5]).unwrap();
        check(&y, &[&[], &ids[..3], &[], &ids[3..]]);
        check(&bags.forward_lengths(&tokens.i(..0).unwrap(), &[]).unwrap(), &[]);
        // Row 4 is in no bag.
        let grads = y.sum(&[], false).unwrap().backward().unwrap();
        assert_eq!(
            grads.get(&bags.weight).unwrap().i(4).unwrap().to_f64().unwrap(),
            [0.0; 3]
        );
        let error = bags.forward_lengths(&tokens, &[3, 4]).unwrap_err().to_string();
        assert!(error.contains("2 lengths, 7 ids in all"), "{error}");
        assert!(bags.forward(&tokens).is_err() && bags.named_parameters().len() == 1);
    }
}

/// An image without pixels has no windows under `same`, and comes back from none.
#[test]
fn no_windows_fold_to_no_image() {
    let cpu = Cpu::poisoned();
    let window = Window::new([2, 2]).same();
    let rows = Tensor::zeros(&cpu, &[1, 0, 3, 2], DType::F32)
        .unwrap()
        .unfold(&window)
        .unwrap();
    assert_eq!(rows.shape().dims(), [1, 0, 8]);
    assert_eq!(rows.fold(&window, &[0, 3]).unwrap().shape().dims(), [1, 0, 3, 2]);
}

/// An index that is smaller than its tensors adds to the first entries of other axes, and reads the first of the source.
#[test]
fn integers_are_added_under_a_smaller_index() {
    let cpu = Cpu::poisoned();
    let of = |values: &[i32], shape: &[usize]| Indices::from_slice(&cpu, values, shape).unwrap();
    let x = of(&[1, 2, 3, 4, 5, 6], &[2, 3]);
    let source = of(&[10, 20, 30, 40, 50, 60], &[3, 2]);
    let y = x.scatter_add(0, &of(&[1, 1], &[2, 1]), &source).unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [1, 2, 3, 44, 5, 6]);
    let mask = x.gt(3).unwrap();
    let y = mask
        .scatter_add(1, &of(&[0, 2, 2], &[1, 3]), &of(&[5, 6, 7], &[1, 3]))
        .unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [5, 0, 13, 1, 1, 1]);
    let wide = of(&[0, 0, 0, 0], &[1, 4]);
    assert!(x.scatter_add(0, &wide, &wide).is_err() && x.scatter_add(0, &source, &x).is_err());
}

/// A volume whose layers are all alike, sampled by cubics, is the sampled layer.
#[test]
fn cubics_of_a_volume_of_equal_layers_are_those_of_a_layer() {
    let cpu = Cpu::poisoned();
    let mut rng = Rng::new(3);
    let image = Tensor::randn(&cpu, &[2, 4, 5, 3], DType::F64, &mut rng).unwrap();
    let volume = image.unsqueeze(1).unwrap().expand(&[2, 3, 4, 5, 3]).unwrap();
    let grid = Tensor::uniform(&cpu, &[2, 1, 2, 3, 3], DType::F64, -1.5, 1.5, &mut rng).unwrap();
    for padding in [GridPadding::Border, GridPadding::Reflection] {
        let options = GridOptions {
            mode: GridMode::Cubic,
            padding,
            align_corners: false,
        };
        let plane = grid.narrow(-1, 0, 2).unwrap().reshape(&[2, 2, 3, 2]).unwrap();
        let expected = image.grid_sample(&plane, options).unwrap().to_f64().unwrap();
        let found = volume.grid_sample(&grid, options).unwrap();
        assert_eq!(found.shape().dims(), [2, 1, 2, 3, 3]);
        for (found, expected) in found.to_f64().unwrap().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }
}
