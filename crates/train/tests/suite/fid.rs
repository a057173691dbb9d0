//! The Fréchet distance, compared with the formula of pytorch-fid.

use crate::golden::{output, tensor};
use kiln_cpu::Cpu;
use kiln_train::{FeatureStatistics, FrechetDistance, Metric, frechet_distance};
use serde_json::Value;

fn rows(value: &Value) -> Vec<Vec<f64>> {
    serde_json::from_value(value.clone()).unwrap()
}

fn statistics(rows: &[Vec<f64>], batch: usize) -> FeatureStatistics {
    let mut statistics = FeatureStatistics::new(rows[0].len());
    for rows in rows.chunks(batch) {
        statistics.add(&rows.concat()).unwrap();
    }
    statistics
}

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("../golden/fid.json")).unwrap()
}

#[test]
fn distances_are_those_of_pytorch_fid_in_batches_of_any_size() {
    for case in cases() {
        let (a, b) = (rows(&case["a"]), rows(&case["b"]));
        let expected = case["distance"].as_f64().unwrap();
        for batch in [1, 7, 1000] {
            let (a, b) = (statistics(&a, batch), statistics(&b, batch));
            let found = frechet_distance(&a, &b).unwrap();
            // The square root of a product with an eigenvalue near 0 has half of the digits.
            assert!((found - expected).abs() < 1e-6 * expected, "{found}, {expected}");
            assert!((frechet_distance(&b, &a).unwrap() - found).abs() < 1e-9 * expected);
            assert!(frechet_distance(&a, &a).unwrap().abs() < 1e-6 * expected);
        }
    }
}

#[test]
fn the_metric_is_the_distance_of_all_batches() {
    let case = &cases()[0];
    let (a, b) = (rows(&case["a"]), rows(&case["b"]));
    let mut fid = FrechetDistance::new(statistics(&a, 9));
    for _ in 0..2 {
        for rows in b.chunks(8) {
            let features = tensor(&rows.concat(), &[rows.len(), b[0].len()]);
            let term = fid.measure(&output().with("features", features)).unwrap();
            Metric::<Cpu>::observe(&mut fid, &term.to_f64().unwrap(), term.shape());
        }
        let value = Metric::<Cpu>::value(&mut fid, &[], b.len() as u64);
        let expected = case["distance"].as_f64().unwrap();
        assert!((value - expected).abs() < 1e-6 * expected, "{value}, {expected}");
    }
    assert!(Metric::<Cpu>::value(&mut fid, &[], 0).is_nan());
    assert!(Metric::<Cpu>::failure(&mut fid).is_none());
}

#[test]
fn what_has_no_distance_is_an_error() {
    let mut two = FeatureStatistics::new(2);
    two.add(&[0.0, 1.0, 2.0, 3.0]).unwrap();
    for (wrong, word) in [
        (&[1.0, 2.0, 3.0][..], "a multiple of the 2"),
        (&[1.0, f64::NAN], "NaN in vector 0"),
    ] {
        let before = two.clone();
        assert!(two.add(wrong).unwrap_err().to_string().contains(word));
        assert_eq!(two, before);
    }
    let mut one = FeatureStatistics::new(2);
    one.add(&[0.0, 1.0]).unwrap();
    assert!(
        frechet_distance(&two, &one)
            .unwrap_err()
            .to_string()
            .contains("at least 2")
    );
    let three = FeatureStatistics::new(3);
    assert!(
        frechet_distance(&two, &three)
            .unwrap_err()
            .to_string()
            .contains("features = 3")
    );
    let mut fid = FrechetDistance::new(two);
    let wrong = tensor(&[0.0; 6], &[2, 3]);
    assert!(fid.measure(&output().with("features", wrong)).is_err());
    Metric::<Cpu>::observe(&mut fid, &[1.0, 2.0], &[1, 2]);
    assert!(Metric::<Cpu>::value(&mut fid, &[], 1).is_nan());
    assert!(Metric::<Cpu>::failure(&mut fid).is_some());
}
