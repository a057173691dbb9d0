//! Files that NumPy wrote, files that it would write, and files that nobody should.

use kiln_cpu::Cpu;
use kiln_nn::module::{StateDict, Value};
use kiln_nn::{DType, Indices, Rng, Tensor};
use kiln_npy::{NpyError, decode, encode, read, read_indices, read_npz, read_tensor, write, write_npz};
use proptest::prelude::*;

/// The bytes of a file with this header text.
fn file(text: &str, data: &[u8]) -> Vec<u8> {
    let length = (text.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), data].concat()
}

fn floats(value: Value<Cpu>) -> Tensor<Cpu> {
    match value {
        Value::Float(t) => t,
        Value::Int(_) => panic!("integers"),
    }
}

fn ints(value: Value<Cpu>) -> Indices<Cpu> {
    match value {
        Value::Int(t) => t,
        Value::Float(_) => panic!("floats"),
    }
}

/// `golden/arrays.py` wrote these with NumPy.
#[test]
fn arrays_of_numpy_are_read() {
    let cpu = Cpu::poisoned();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    for name in ["plain", "packed"] {
        let dict = read_npz(format!("{folder}/{name}.npz"), &cpu).unwrap();
        for name in ["f2", "f4", "f8", "big", "fortran"] {
            let x = dict.float(name).unwrap();
            assert_eq!(x.shape().dims(), [2, 3, 4], "{name}");
            let want: Vec<f64> = (0..24).map(|i| f64::from(i) / 4.0 - 1.0).collect();
            assert_eq!(x.to_f64().unwrap(), want, "{name}");
        }
        for name in ["i1", "i2", "i4", "i8", "u2", "u4", "u8", "big_i8", "fortran_i4"] {
            let x = dict.int(name).unwrap();
            assert_eq!(x.shape().dims(), [2, 3], "{name}");
            assert_eq!(x.to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, 5], "{name}");
        }
        for name in ["u1", "b1"] {
            assert_eq!(dict.int(name).unwrap().to_vec::<u8>().unwrap(), [1, 0, 1], "{name}");
        }
        assert_eq!(dict.float("scalar").unwrap().shape().rank(), 0);
        assert_eq!(dict.float("scalar").unwrap().item().unwrap(), 2.5);
        assert_eq!(dict.float("empty").unwrap().shape().dims(), [0, 3]);
    }
    let x = read_tensor(format!("{folder}/x.npy"), &cpu).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
}

#[test]
fn files_are_written_as_numpy_writes_them() {
    let cpu = Cpu::poisoned();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3]).unwrap();
    assert_eq!(encode(&x).unwrap(), std::fs::read(format!("{folder}/x.npy")).unwrap());
    let y = Indices::from_slice(&cpu, &[1u8, 0], &[1, 2]).unwrap();
    let text = "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2), }";
    let bytes = encode(&y).unwrap();
    assert!(String::from_utf8_lossy(&bytes).contains(text) && bytes.len() == 128 + 2);
    // NumPy has no bf16; f32 holds its values.
    let halves = x.to_dtype(DType::BF16).unwrap();
    assert_eq!(encode(&halves).unwrap(), encode(&x).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(dims in proptest::collection::vec(0usize..5, 0..5), seed: u64, dtype in 0..5) {
        let cpu = Cpu::poisoned();
        let x = Tensor::randn(&cpu, &dims, DType::F32, &mut Rng::new(seed)).unwrap();
        let value: Value<Cpu> = match dtype {
            0 => (&x).into(),
            1 => (&x.to_dtype(DType::F64).unwrap()).into(),
            2 => (&x.to_dtype(DType::F16).unwrap()).into(),
            3 => (&x.mul_scalar(1e3).unwrap().to_indices().unwrap()).into(),
            _ => (&x.gt_scalar(0.0).unwrap()).into(),
        };
        let back = decode(&encode(value.clone()).unwrap(), &cpu).unwrap();
        prop_assert_eq!(back.dtype(), value.dtype());
        prop_assert_eq!(back.shape(), value.shape());
        // The bytes of equal values are equal.
        prop_assert_eq!(encode(back).unwrap(), encode(value).unwrap());
    }

    /// Any bytes get an answer and no panic.
    #[test]
    fn damaged_files_are_refused_or_read(at in 0usize..200, byte: u8, cut in 0usize..220) {
        let cpu = Cpu::new();
        let x = Tensor::zeros(&cpu, &[2, 9], DType::F32).unwrap();
        let mut bytes = encode(&x).unwrap();
        let len = bytes.len();
        bytes[at % len] = byte;
        let _ = decode(&bytes, &cpu);
        prop_assert!(decode(&bytes[..cut.min(len - 1)], &cpu).is_err());
    }
}

#[test]
fn files_and_archives_go_there_and_back() {
    let cpu = Cpu::poisoned();
    let folder = tempfile::tempdir().unwrap();
    let x = Tensor::randn(&cpu, &[3, 50], DType::F32, &mut Rng::new(1)).unwrap();
    let ids = Indices::from_slice(&cpu, &[1, -2, i32::MIN], &[3]).unwrap();
    let path = folder.path().join("x.npy");
    write(&path, &x).unwrap();
    assert_eq!(read_tensor(&path, &cpu).unwrap().to_f64().unwrap(), x.to_f64().unwrap());
    let error = read_indices(&path, &cpu).unwrap_err().to_string();
    assert!(
        error.ends_with("x.npy: an array of floats, not of integers; `read` takes both"),
        "{error}"
    );
    write(&path, &ids).unwrap();
    assert_eq!(
        ints(read(&path, &cpu).unwrap()).to_vec::<i32>().unwrap(),
        [1, -2, i32::MIN]
    );

    let mut dict = StateDict::new();
    dict.insert("layer.weight", (&x).into());
    dict.insert("ids", (&ids).into());
    let path = folder.path().join("all.npz");
    for compressed in [false, true] {
        write_npz(&path, &dict, compressed).unwrap();
        let back = read_npz(&path, &cpu).unwrap();
        assert_eq!(back.names().collect::<Vec<_>>(), ["ids", "layer.weight"]);
        assert_eq!(
            back.float("layer.weight").unwrap().to_f64().unwrap(),
            x.to_f64().unwrap()
        );
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(bytes.len() / 2);
        let cut = folder.path().join("cut.npz");
        std::fs::write(&cut, bytes).unwrap();
        assert!(
            read_npz(&cut, &cpu)
                .unwrap_err()
                .to_string()
                .contains("cut.npz: not a file of NumPy's")
        );
    }
}

#[test]
fn what_is_no_array_is_refused_by_name() {
    let cpu = Cpu::new();
    let refused = |bytes: &[u8], wanted: &str| {
        let error = decode(bytes, &cpu).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}, expected {wanted}");
    };
    refused(b"", "does not begin with \\x93NUMPY");
    refused(b"PK\x03\x04", "does not begin with");
    refused(b"\x93NUMPY\x01\x00\xff", "ends within its header");
    refused(b"\x93NUMPY\x09\x00\x00\x00", "version is 9");
    refused(&file("{'descr': '<f4', 'shape': (1,), }", &[0; 4]), "lacks");
    refused(
        &file("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,), }", &[0; 4]),
        "True or False",
    );
    refused(
        &file(
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
            &[0; 4],
        ),
        "a string",
    );
    refused(
        &file("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", &[0; 4]),
        "a dimension",
    );
    refused(
        &file("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", &[0; 8]),
        "arrays of c8",
    );
    refused(
        &file("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", &[0; 8]),
        "arrays of O",
    );
    refused(
        &file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", &[0; 4]),
        "4 bytes of data",
    );
    let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }";
    refused(&file(huge, &[0; 4]), "");
    let nine = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }";
    refused(&file(nine, &[0; 4]), "");
    let text = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }";
    let error = decode(&file(text, &[[0u8; 8], [0, 0, 0, 0, 1, 0, 0, 0]].concat()), &cpu).unwrap_err();
    assert!(
        matches!(
            error,
            NpyError::Range {
                index: 1,
                value: 4_294_967_296
            }
        ),
        "{error}"
    );
    let old = file("{'descr': \"<f4\", 'fortran_order': False, 'shape': (2L, 1L)}", &[0; 8]);
    assert_eq!(floats(decode(&old, &cpu).unwrap()).shape().dims(), [2, 1]);
    assert!(read(std::env::temp_dir(), &cpu).is_err());
}
