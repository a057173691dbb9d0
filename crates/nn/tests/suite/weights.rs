//! Weights in files and state dictionaries.

use kiln_core::philox::Key;
use kiln_cpu::Cpu;
use kiln_files::FileError;
use kiln_nn::layers::{Conv2d, Dropout, Flatten, Linear, MaxPool2d};
use kiln_nn::module::{ParamLayout, StateDict, Value};
use kiln_nn::weights::{self, Mismatch, columns_from_torch, columns_to_torch};
use kiln_nn::{DType, Indices, Init, Layer, Layout, LoadOptions, LoadReport, Module, Sequential, Tensor, WeightsError};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kiln-weights-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn model(cpu: &Cpu, seed: u64) -> Sequential<Cpu> {
    let init = &mut Init::new(cpu, seed);
    Sequential::new()
        .push(Conv2d::new(init, 1, 2, 3).unwrap())
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Dropout::new(init, 0.5).unwrap())
        .push(Linear::new(init, 8, 3).unwrap())
}

fn values(model: &dyn Module<Cpu>) -> BTreeMap<String, Vec<f64>> {
    let dict = StateDict::of(model);
    let host = |v: &Value<Cpu>| match v {
        Value::Float(t) => t.to_f64().unwrap(),
        Value::Int(i) => i.to_vec::<i32>().unwrap().into_iter().map(f64::from).collect(),
    };
    dict.iter().map(|(n, v)| (n.to_string(), host(v))).collect()
}

#[test]
fn a_saved_model_loads_whole() {
    let (cpu, folder) = (Cpu::poisoned(), Folder::new("whole"));
    let path = folder.0.join("model.safetensors");
    let saved = model(&cpu, 1);
    // Two forward passes, which the counter of the dropout layer counts.
    let x = Tensor::zeros(&cpu, &[1, 6, 6, 1], DType::F32).unwrap();
    (0..2).for_each(|_| drop(saved.forward(&x).unwrap()));
    saved.save(&path).unwrap();
    let mut loaded = model(&cpu, 2);
    assert_ne!(values(&loaded), values(&saved));
    let report = loaded.load(&path, LoadOptions::strict()).unwrap();
    assert_eq!(values(&loaded), values(&saved));
    assert_eq!(report.loaded, ["0.weight", "0.bias", "3.step", "4.weight", "4.bias"]);
    assert!(report.is_exact() && report.counters_kept.is_empty());
    assert_eq!(values(&loaded)["3.step"], [2.0]);
    // Saving replaces an existing file and leaves no other file behind.
    model(&cpu, 3).save(&path).unwrap();
    assert_eq!(folder.names(), ["model.safetensors"]);
}

#[test]
fn every_dtype_goes_through_a_file() {
    let cpu = Cpu::poisoned();
    let mut dict = StateDict::new();
    let numbers = [0.0, -1.5, 3.25, 1024.0, -0.125, 7.0];
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let t = Tensor::from_f64(&cpu, &numbers, &[2, 3], dtype).unwrap();
        dict.insert(format!("a.{dtype}"), Value::Float(t));
    }
    dict.insert(
        "i32",
        Value::Int(Indices::from_slice(&cpu, &[i32::MIN, 0, i32::MAX], &[3]).unwrap()),
    );
    dict.insert(
        "u8",
        Value::Int(Indices::from_slice(&cpu, &[0u8, 1, 255], &[3]).unwrap()),
    );
    dict.insert(
        "scalar",
        Value::Float(Tensor::full(&cpu, &[], DType::F32, 2.5).unwrap()),
    );
    dict.insert("empty", Value::Float(Tensor::zeros(&cpu, &[0, 3], DType::F32).unwrap()));
    let metadata = BTreeMap::from([("epoch".to_string(), "3 \"quoted\"".to_string())]);
    let bytes = weights::encode(&dict, &metadata).unwrap();
    let (back, read) = weights::decode(&bytes, &cpu).unwrap();
    assert_eq!(read, metadata);
    assert!(back.names().eq(dict.names()));
    for (name, value) in dict.iter() {
        let other = back.get(name).unwrap();
        assert_eq!((value.shape(), value.dtype()), (other.shape(), other.dtype()), "{name}");
        match (value, other) {
            (Value::Float(a), Value::Float(b)) => assert_eq!(a.to_f64().unwrap(), b.to_f64().unwrap(), "{name}"),
            (Value::Int(a), Value::Int(b)) if a.dtype() == DType::U8 => {
                assert_eq!(a.to_vec::<u8>().unwrap(), b.to_vec::<u8>().unwrap());
            }
            (Value::Int(a), Value::Int(b)) => assert_eq!(a.to_vec::<i32>().unwrap(), b.to_vec::<i32>().unwrap()),
            _ => panic!("{name} changed its kind"),
        }
    }
}

#[test]
fn the_same_weights_and_metadata_give_the_same_bytes() {
    let cpu = Cpu::poisoned();
    let metadata: BTreeMap<_, _> = (0..40)
        .map(|i| (format!("key {i}"), format!("\"{i}\" \\ \n é")))
        .collect();
    for dict in [StateDict::new(), model(&cpu, 1).state_dict()] {
        let bytes = weights::encode(&dict, &metadata).unwrap();
        for _ in 0..4 {
            assert!(bytes == weights::encode(&dict, &metadata).unwrap());
        }
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(header % 8, 0);
        let plain = weights::encode(&dict, &BTreeMap::new()).unwrap();
        assert!(plain.ends_with(&bytes[header..]));
        let (back, read) = weights::decode(&bytes, &cpu).unwrap();
        assert_eq!(read, metadata);
        assert!(back.names().eq(dict.names()));
        assert_eq!(back.len(), dict.len());
    }
}

#[test]
fn reports_name_what_does_not_fit() {
    let cpu = Cpu::poisoned();
    let mut target = model(&cpu, 1);
    let before = values(&target);
    let mut dict = model(&cpu, 2).state_dict();
    dict.remove("0.bias").unwrap();
    dict.remove("3.step").unwrap();
    dict.insert("4.bias", Value::Float(Tensor::zeros(&cpu, &[4], DType::F32).unwrap()));
    dict.insert("9.weight", Value::Float(Tensor::zeros(&cpu, &[4], DType::F32).unwrap()));
    let expected = LoadReport {
        loaded: vec!["0.weight".into(), "4.weight".into()],
        missing: vec!["0.bias".into()],
        unexpected: vec!["9.weight".into()],
        mismatched: vec![Mismatch {
            name: "4.bias".into(),
            expected: "[3] f32".into(),
            found: "[4] f32".into(),
        }],
        counters_kept: vec!["3.step".into()],
    };
    match target.load_state_dict(&dict, LoadOptions::strict()) {
        Err(WeightsError::Misfit(report)) => assert_eq!(report, expected),
        other => panic!("{other:?}"),
    }
    assert_eq!(values(&target), before, "a refused load changes nothing");
    let text = WeightsError::Misfit(expected.clone()).to_string();
    assert_eq!(
        text,
        "the weights do not fit the model: 2 loaded; 1 missing: 0.bias; 1 unexpected: 9.weight; \
         1 mismatched: 4.bias (expected [3] f32, found [4] f32)"
    );
    let report = target.load_state_dict(&dict, LoadOptions::partial()).unwrap();
    assert_eq!(report, expected);
    let (after, source) = (values(&target), values(&model(&cpu, 2)));
    assert_eq!(after["0.weight"], source["0.weight"]);
    assert_eq!(after["0.bias"], before["0.bias"]);
    assert_eq!(after["4.bias"], before["4.bias"]);
    // A float entry under the name of a counter.
    dict.insert("3.step", Value::Float(Tensor::zeros(&cpu, &[], DType::F32).unwrap()));
    let report = target.load_state_dict(&dict, LoadOptions::partial()).unwrap();
    assert!(
        report
            .mismatched
            .iter()
            .any(|m| m.name == "3.step" && m.expected == "[] i32")
    );
}

#[test]
fn dtypes_convert_on_the_way_in() {
    let cpu = Cpu::poisoned();
    let (mut wide, mut narrow) = (model(&cpu, 1), model(&cpu, 2));
    wide.to_dtype(DType::F64).unwrap();
    narrow
        .load_state_dict(&wide.state_dict(), LoadOptions::strict())
        .unwrap();
    assert!(
        narrow
            .named_parameters()
            .iter()
            .all(|(_, p)| p.dtype() == DType::F32 && p.is_tracked())
    );
    assert_eq!(values(&narrow), values(&model(&cpu, 1)));
}

#[test]
fn a_dictionary_is_a_snapshot() {
    let cpu = Cpu::poisoned();
    let mut live = model(&cpu, 1);
    let before = values(&live);
    let dict = live.state_dict();
    live.load_state_dict(&model(&cpu, 2).state_dict(), LoadOptions::strict())
        .unwrap();
    assert_ne!(values(&live), before);
    live.load_state_dict(&dict, LoadOptions::strict()).unwrap();
    assert_eq!(values(&live), before);
    let mut all = StateDict::new();
    all.insert_part("model", dict.clone());
    assert!(all.part("model").names().eq(dict.names()) && all.part("mod").is_empty());
}

#[test]
fn truncated_files_are_refused_at_every_length() {
    let cpu = Cpu::poisoned();
    let bytes = weights::encode(&model(&cpu, 1).state_dict(), &Default::default()).unwrap();
    assert!(weights::decode(&bytes, &cpu).is_ok());
    for length in (0..bytes.len()).step_by(7).chain([7, 8, 9, bytes.len() - 1]) {
        let refused = weights::decode(&bytes[..length], &cpu).unwrap_err();
        assert!(matches!(refused, WeightsError::Format { .. }), "{length}: {refused}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(
        weights::decode(&longer, &cpu),
        Err(WeightsError::Format { .. })
    ));
}

/// The bytes of a safetensors file with this header and `data` bytes of zeros.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn lying_headers_are_refused() {
    let cpu = Cpu::poisoned();
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    assert!(weights::decode(&file(&one("F32", "[2]", "[0,8]"), 8), &cpu).is_ok());
    let huge = u64::MAX;
    let format = [
        file(&one("F32", "[3]", "[0,8]"), 8),
        file(&one("F32", "[2]", "[0,8]"), 4),
        file(&one("F32", "[2]", "[8,0]"), 8),
        file(&one("F32", "[2]", "[4,12]"), 12),
        file(&one("F32", "[2]", &format!("[0,{huge}]")), 8),
        file(&one("F32", &format!("[{huge},{huge}]"), "[0,8]"), 8),
        file(&one("F32", "[4611686018427387904,4]", "[0,0]"), 0),
        file(&one("F32", "[-1]", "[0,8]"), 8),
        file(&one("Q7", "[2]", "[0,8]"), 8),
        file("[]", 0),
        file("{", 0),
        file("", 0),
        file(&"[".repeat(10_000), 0),
        {
            // Two tensors over the same bytes.
            let b = one("F32", "[2]", "[0,8]").replace("\"a\"", "\"b\"");
            file(
                &format!("{},{}", one("F32", "[2]", "[0,8]").trim_end_matches('}'), &b[1..]),
                8,
            )
        },
        {
            let mut bytes = file(&one("F32", "[2]", "[0,8]"), 8);
            bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
            bytes
        },
        {
            let mut bytes = file(&one("F32", "[2]", "[0,8]"), 8);
            bytes[9] = 0xff;
            bytes
        },
    ];
    for (i, bytes) in format.iter().enumerate() {
        let refused = weights::decode(bytes, &cpu).unwrap_err();
        assert!(matches!(refused, WeightsError::Format { .. }), "{i}: {refused}");
    }
    // Shapes of size 0 with a dimension too large for any tensor, or with too many dimensions.
    for shape in ["[0,9223372036854775807,16]", "[1,1,1,1,1,1,1,1,0]"] {
        let refused = weights::decode(&file(&one("F32", shape, "[0,0]"), 0), &cpu).unwrap_err();
        assert!(
            matches!(refused, WeightsError::Tensor { .. } | WeightsError::Format { .. }),
            "{shape}: {refused}"
        );
    }
    let refused = weights::decode(&file(&one("C64", "[1]", "[0,8]"), 8), &cpu).unwrap_err();
    assert!(matches!(refused, WeightsError::DType { .. }), "{refused}");
    let mut wide = file(&one("I64", "[1]", "[0,8]"), 8);
    assert!(weights::decode(&wide, &cpu).unwrap().0.int("a").is_some());
    *wide.last_mut().unwrap() = 1;
    assert!(matches!(weights::decode(&wide, &cpu), Err(WeightsError::Range { .. })));
}

#[test]
fn damaged_files_never_panic() {
    let cpu = Cpu::poisoned();
    let whole = weights::encode(&model(&cpu, 1).state_dict(), &Default::default()).unwrap();
    assert_eq!(
        weights::encode(&model(&cpu, 1).state_dict(), &Default::default()).unwrap(),
        whole,
        "the same bytes"
    );
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let (mut refused, mut target) = (0, model(&cpu, 2));
    for round in 0..2000u32 {
        let key = Key::new(9, 0, round);
        let mut bytes = whole.clone();
        for i in 0..1 + u64::from(key.below(0, 3)) {
            // Most changes are in the header, where they matter more.
            let end = if key.below(1 + 4 * i, 8) == 0 {
                whole.len()
            } else {
                header
            };
            bytes[key.below(2 + 4 * i, end as u32) as usize] = key.word(3 + 4 * i) as u8;
        }
        match weights::decode(&bytes, &cpu) {
            Ok((dict, _)) => drop(target.load_state_dict(&dict, LoadOptions::partial())),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1000, "{refused} of 2000 refused");
}

#[test]
fn file_errors_name_the_file() {
    let (cpu, folder) = (Cpu::poisoned(), Folder::new("errors"));
    let mut target = model(&cpu, 1);
    let absent = folder.0.join("absent.safetensors");
    let refused = target.load(&absent, LoadOptions::strict()).unwrap_err();
    assert!(
        matches!(&refused, WeightsError::Io { action: "open", path, .. } if *path == absent),
        "{refused}"
    );
    let broken = folder.0.join("broken.safetensors");
    std::fs::write(&broken, b"not weights at all").unwrap();
    let refused = target.load(&broken, LoadOptions::strict()).unwrap_err();
    assert!(matches!(refused.root(), WeightsError::Format { .. }));
    assert!(refused.to_string().contains("broken.safetensors"), "{refused}");
    let nowhere = folder.0.join("no").join("folder.safetensors");
    let refused = target.save(&nowhere).unwrap_err();
    assert!(
        matches!(&refused, WeightsError::File(FileError::Io { action: "write", path, .. }) if *path == nowhere),
        "{refused}"
    );
    // A target that cannot be replaced stays, and no other file is left behind.
    let taken = folder.0.join("taken");
    std::fs::create_dir_all(taken.join("inside")).unwrap();
    let refused = target.save(&taken).unwrap_err();
    assert!(
        matches!(
            &refused,
            WeightsError::File(FileError::NotRegular { found: "a folder", .. })
        ),
        "{refused}"
    );
    let mut names = folder.names();
    names.sort();
    assert_eq!(names, ["broken.safetensors", "taken"]);
}

/// A matrix that PyTorch code keeps `[in, out]` turns on its way in, also a square one, whose shape does not show it, and on its way out.
#[test]
fn transposed_matrices_turn_at_the_border() {
    let cpu = Cpu::poisoned();
    for (inputs, outputs) in [(2, 3), (3, 3), (1, 4)] {
        let make = |seed| {
            let mut layer = Linear::new(&mut Init::new(&cpu, seed), inputs, outputs).unwrap();
            layer.weight.set_layout(ParamLayout::Transposed);
            layer
        };
        let (source, mut from_dict, mut from_file) = (make(1), make(2), make(3));
        let torch = source.torch_state_dict().unwrap();
        let theirs = torch.float("weight").unwrap();
        assert_eq!(theirs.shape().dims(), [inputs, outputs]);
        let ours = source.weight.to_f64().unwrap();
        assert_eq!(theirs.permute(&[1, 0]).unwrap().to_f64().unwrap(), ours);
        let options = LoadOptions::strict().layout(Layout::Torch);
        from_dict.load_state_dict(&torch, options).unwrap();
        let bytes = weights::encode(&torch, &weights::Metadata::new()).unwrap();
        let mut file = weights::WeightsFile::new(std::io::Cursor::new(bytes)).unwrap();
        assert!(file.load_into(&mut from_file, options).unwrap().is_exact());
        for layer in [from_dict, from_file] {
            assert_eq!(layer.weight.to_f64().unwrap(), ours);
            assert_eq!(layer.clone().weight.layout(), ParamLayout::Transposed);
        }
    }
}

#[test]
fn torch_kernels_turn_at_the_border() {
    let cpu = Cpu::poisoned();
    let source = model(&cpu, 1);
    let torch = source.torch_state_dict().unwrap();
    assert_eq!(torch.get("0.weight").unwrap().shape().dims(), [2, 1, 3, 3]);
    let (ours, theirs) = (&source.state_dict(), torch.float("0.weight").unwrap().to_f64().unwrap());
    let kernel = ours.float("0.weight").unwrap().to_f64().unwrap();
    for o in 0..2 {
        for k in 0..9 {
            assert_eq!(
                theirs[o * 9 + k],
                kernel[o * 9 + k],
                "one input channel: the order stays"
            );
        }
    }
    let mut target = model(&cpu, 2);
    let refused = target.load_state_dict(&torch, LoadOptions::strict()).unwrap_err();
    assert!(matches!(refused, WeightsError::Misfit(_)), "{refused}");
    target
        .load_state_dict(&torch, LoadOptions::strict().layout(Layout::Torch))
        .unwrap();
    assert_eq!(values(&target), values(&source));
}

#[test]
fn flattened_columns_turn_at_the_border() {
    let cpu = Cpu::poisoned();
    // Column c·3 + p of PyTorch is column p·2 + c here.
    let torch = Tensor::from_slice(&cpu, &[0.0f32, 1.0, 2.0, 10.0, 11.0, 12.0], &[1, 6]).unwrap();
    let ours = columns_from_torch(&torch, 3, 2).unwrap();
    assert_eq!(ours.to_vec::<f32>().unwrap(), [0.0, 10.0, 1.0, 11.0, 2.0, 12.0]);
    let back = columns_to_torch(&ours, 3, 2).unwrap();
    assert_eq!(back.to_vec::<f32>().unwrap(), torch.to_vec::<f32>().unwrap());
    assert!(columns_from_torch(&torch, 4, 2).is_err());
    assert!(columns_from_torch(&torch.reshape(&[6]).unwrap(), 3, 2).is_err());
    assert!(columns_from_torch(&torch, usize::MAX, 2).is_err());
}
