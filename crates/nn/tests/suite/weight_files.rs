//! Untrusted weight files: which bytes are read, when, and what is refused.

use kiln_core::Runtime;
use kiln_core::philox::Key;
use kiln_cpu::Cpu;
use kiln_nn::layers::{BatchNorm, Conv2d, Linear};
use kiln_nn::module::{StateDict, Value};
use kiln_nn::trace::first_non_finite;
use kiln_nn::weights::{Metadata, WeightsFile, encode};
use kiln_nn::{
    Backend, DType, Init, Layer, Layout, LoadOptions, Module, Result, Sequential, Tensor, Walkable, WeightsError,
    no_grad,
};
use std::cell::Cell;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::rc::Rc;

/// A unique path of a file that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Scratch(std::env::temp_dir().join(format!("kiln-weight-file-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A model with a kernel that is read in more than one piece, and with running statistics.
fn model(cpu: &Cpu, seed: u64) -> Sequential<Cpu> {
    let init = &mut Init::new(cpu, seed);
    Sequential::new()
        .push(Conv2d::new(init, 130, 260, 3).unwrap())
        .push(BatchNorm::new(init, 260).unwrap())
        .push(Linear::new(init, 7, 5).unwrap())
}

fn values(model: &dyn Module<Cpu>) -> Vec<(String, Vec<f64>)> {
    let dict = StateDict::of(model);
    let floats = dict.iter().filter_map(|(n, v)| match v {
        Value::Float(t) => Some((n.to_string(), t.to_f64().unwrap())),
        Value::Int(_) => None,
    });
    floats.collect()
}

/// The bytes of a safetensors file with this header and data.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn linear(cpu: &Cpu) -> Linear<Cpu> {
    Linear::new(&mut Init::new(cpu, 1), 3, 2).unwrap()
}

/// A file of the weights of `linear` in f64, where element `at` is `value`.
fn linear_file(at: usize, value: f64) -> Vec<u8> {
    let header = r#"{"bias":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},"weight":{"dtype":"F64","shape":[2,3],"data_offsets":[16,64]}}"#;
    let data = (0..8).map(|i| if i == at { value } else { i as f64 });
    file(header, &data.flat_map(f64::to_le_bytes).collect::<Vec<u8>>())
}

fn open(bytes: &[u8]) -> std::result::Result<WeightsFile<Cursor<&[u8]>>, WeightsError> {
    WeightsFile::new(Cursor::new(bytes))
}

#[test]
fn files_load_as_dictionaries_do() {
    let cpu = Cpu::poisoned();
    let all = [
        (DType::F32, true),
        (DType::F32, false),
        (DType::F64, true),
        (DType::BF16, false),
        (DType::F16, true),
    ];
    for (dtype, torch) in all {
        let mut source = model(&cpu, 1);
        source.to_dtype(dtype).unwrap();
        let (dict, layout) = match torch {
            true => (source.torch_state_dict().unwrap(), Layout::Torch),
            false => (source.state_dict(), Layout::Kiln),
        };
        let bytes = encode(&dict, &Metadata::new()).unwrap();
        let (mut expected, mut loaded) = (model(&cpu, 2), model(&cpu, 3));
        let options = LoadOptions::strict().layout(layout);
        expected.load_state_dict(&dict, options).unwrap();
        let report = open(&bytes).unwrap().load_into(&mut loaded, options).unwrap();
        assert!(report.is_exact());
        assert!(values(&loaded) == values(&expected), "{dtype} {torch}");
    }
}

/// A reader that counts the bytes read from it.
struct Counted<R>(R, Rc<Cell<u64>>);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.read(bytes)?;
        self.1.set(self.1.get() + n as u64);
        Ok(n)
    }
}

impl<R: Seek> Seek for Counted<R> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn misfits_are_refused_by_their_header() {
    let cpu = Cpu::poisoned();
    let scratch = Scratch::new("misfit");
    let header = r#"{"weight":{"dtype":"F32","shape":[16384,16384],"data_offsets":[0,1073741824]}}"#;
    std::fs::write(&scratch.0, file(header, &[])).unwrap();
    let sparse = std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap();
    let size = 8 + header.len() as u64;
    sparse.set_len(size + (1 << 30)).unwrap();
    let read = Rc::new(Cell::new(0));
    let counted = Counted(std::fs::File::open(&scratch.0).unwrap(), read.clone());
    let mut target = linear(&cpu);
    let refused = WeightsFile::new(counted)
        .unwrap()
        .load_into(&mut target, LoadOptions::strict())
        .unwrap_err();
    assert!(matches!(refused, WeightsError::Misfit(_)), "{refused}");
    assert_eq!(read.get(), size);
}

#[test]
fn sizes_are_compared_before_anything_is_read() {
    let scratch = Scratch::new("zeros");
    std::fs::write(&scratch.0, []).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&scratch.0)
        .unwrap()
        .set_len(4 << 30)
        .unwrap();
    let refused = WeightsFile::open(&scratch.0).unwrap_err();
    assert!(matches!(refused.root(), WeightsError::Format { .. }), "{refused}");
    let one = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
    for (length, reason) in [
        (0u64, "header"),
        (1 << 40, "1099511627776"),
        (u64::MAX, "18446744073709551615"),
    ] {
        let mut bytes = file(one, &[0; 4]);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        let refused = open(&bytes).unwrap_err();
        assert!(matches!(refused, WeightsError::Format { .. }), "{refused}");
        assert!(refused.to_string().contains(reason), "{refused}");
    }
    for data in [0, 3, 5, 1000] {
        let refused = open(&file(one, &vec![0; data])).unwrap_err();
        assert!(
            refused.to_string().contains(&format!("the file has {data}")),
            "{refused}"
        );
    }
}

/// A file with changed bytes loads or is refused; one refused for its header or its values leaves the model unchanged.
#[test]
fn damaged_files_load_or_leave_all_as_it_was() {
    let cpu = Cpu::poisoned();
    let whole = linear_file(9, 0.0);
    let (mut target, mut loaded, mut refused) = (linear(&cpu), 0, 0);
    for case in 0..2000 {
        let key = Key::new(3, 0, case);
        let mut bytes = whole.clone();
        for i in 0..1 + u64::from(key.below(0, 3)) {
            let at = key.below(1 + 4 * i, bytes.len() as u32) as usize;
            bytes[at] = key.word(3 + 4 * i) as u8;
        }
        bytes.truncate(whole.len() - (key.below(100, 2) * key.below(101, 90)) as usize);
        let before = values(&target);
        match open(&bytes).and_then(|mut file| file.load_into(&mut target, LoadOptions::strict())) {
            Ok(_) => loaded += 1,
            Err(_) => {
                refused += 1;
                assert!(values(&target) == before, "{case}");
            }
        }
    }
    assert!(loaded > 100 && refused > 500, "{loaded} loaded, {refused} refused");
}

#[test]
fn parts_of_a_buffer_have_their_place() {
    let cpu = Cpu::poisoned();
    let mut buffer = cpu.upload(&[0u8; 6]).unwrap();
    cpu.upload_part(&[1, 2], &mut buffer, 4).unwrap();
    cpu.upload_part(&[], &mut buffer, 6).unwrap();
    for (count, offset) in [(3, 4), (1, 6), (0, 7), (2, usize::MAX)] {
        assert!(
            cpu.upload_part(&[9; 3][..count], &mut buffer, offset).is_err(),
            "{count} at {offset}"
        );
    }
    assert_eq!(cpu.download::<u8>(&buffer).unwrap(), [0, 0, 0, 0, 1, 2]);
}

/// A load needs no device memory beside the model's, even if it converts dtypes and reorders kernels.
#[test]
fn a_load_takes_no_second_model() {
    for (dtype, layout) in [(DType::F32, Layout::Kiln), (DType::F64, Layout::Torch)] {
        let bytes = {
            let cpu = Cpu::new();
            let mut source = model(&cpu, 1);
            source.to_dtype(dtype).unwrap();
            let dict = match layout {
                Layout::Torch => source.torch_state_dict().unwrap(),
                Layout::Kiln => source.state_dict(),
            };
            encode(&dict, &Metadata::new()).unwrap()
        };
        let cpu = Cpu::new();
        let mut target = model(&cpu, 2);
        let before = cpu.memory();
        open(&bytes)
            .unwrap()
            .load_into(&mut target, LoadOptions::strict().layout(layout))
            .unwrap();
        let after = cpu.memory();
        assert_eq!((after.live, after.peak), (before.live, before.peak));
    }
}

#[test]
fn values_that_are_not_finite_are_named() {
    let cpu = Cpu::poisoned();
    for (at, value, dtype, named) in [
        (0, f64::NAN, DType::F32, "`bias` holds NaN at [0]"),
        (1, f64::INFINITY, DType::F64, "`bias` holds inf at [1]"),
        (6, f64::NEG_INFINITY, DType::F32, "`weight` holds -inf at [1, 1]"),
        (4, 1e300, DType::F32, "at [0, 2], which is too large for f32"),
        (
            7,
            1e5,
            DType::F16,
            "`weight` holds 100000 at [1, 2], which is too large for f16",
        ),
    ] {
        let mut target = linear(&cpu);
        target.to_dtype(dtype).unwrap();
        let (before, bytes) = (values(&target), linear_file(at, value));
        let refused = open(&bytes)
            .unwrap()
            .load_into(&mut target, LoadOptions::strict())
            .unwrap_err();
        assert!(refused.to_string().contains(named), "{refused}");
        assert_eq!(values(&target), before, "a refused load changes nothing");
        let allowed = LoadOptions::strict().allow_non_finite();
        open(&bytes).unwrap().load_into(&mut target, allowed).unwrap();
        assert!(values(&target).iter().any(|(_, v)| v.iter().any(|x| !x.is_finite())));
    }
    // A state dictionary may hold NaN: only loading into a model refuses it.
    let dict = open(&linear_file(0, f64::NAN)).unwrap().state_dict(&cpu).unwrap();
    assert!(dict.float("bias").unwrap().to_f64().unwrap()[0].is_nan());
}

#[test]
fn a_file_that_changes_meanwhile_is_an_error() {
    let cpu = Cpu::poisoned();
    let scratch = Scratch::new("shrinks");
    let bytes = linear_file(9, 0.0);
    std::fs::write(&scratch.0, &bytes).unwrap();
    let size = bytes.len() as u64;
    let mut opened = WeightsFile::open(&scratch.0).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&scratch.0)
        .unwrap()
        .set_len(size - 1)
        .unwrap();
    let mut target = linear(&cpu);
    let refused = opened.load_into(&mut target, LoadOptions::strict()).unwrap_err();
    assert!(matches!(refused.root(), WeightsError::Format { .. }), "{refused}");
    assert!(refused.to_string().contains("shrinks"), "{refused}");
}

#[cfg(unix)]
#[test]
fn regular_files_alone_are_read() {
    let scratch = Scratch::new("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&scratch.0)
            .status()
            .unwrap()
            .success()
    );
    for path in [
        scratch.0.as_path(),
        std::path::Path::new("/dev/zero"),
        &std::env::temp_dir(),
    ] {
        let refused = linear(&Cpu::poisoned()).load(path, LoadOptions::strict()).unwrap_err();
        assert!(matches!(refused, WeightsError::Io { action: "open", .. }), "{refused}");
        assert!(refused.to_string().contains("expected a regular file"), "{refused}");
    }
}

#[test]
fn names_cannot_steer_a_terminal() {
    let cpu = Cpu::poisoned();
    let name = format!("\\u001b[2J\\u009b{}", "x".repeat(1 << 20));
    let entry =
        |dtype: &str, bytes: usize| format!(r#""{name}":{{"dtype":"{dtype}","shape":[1],"data_offsets":[0,{bytes}]}}"#);
    let misfit = file(&format!("{{{}}}", entry("F32", 4)), &[0; 4]);
    let unknown = file(&format!("{{{}}}", entry("C64", 8)), &[0; 8]);
    let wide = file(&format!("{{{}}}", entry("I64", 8)), &[0xff, 0, 0, 0, 0, 0, 0, 1]);
    let quoted = file(&format!(r#"{{"{name}":"{name}"}}"#), &[]);
    let overlapping = file(&format!("{{{}}}", entry("F32", 4).replace("[0,4]", "[2,6]")), &[0; 6]);
    let refused = [
        open(&misfit)
            .unwrap()
            .load_into(&mut linear(&cpu), LoadOptions::strict())
            .unwrap_err(),
        open(&unknown).unwrap_err(),
        open(&wide).unwrap().state_dict(&cpu).unwrap_err(),
        open(&quoted).unwrap_err(),
        open(&overlapping).unwrap_err(),
    ];
    for error in refused {
        let text = error.to_string();
        assert!(text.len() < 4000 && !text.contains(['\x1b', '\u{9b}']), "{text:.500}");
    }
}

/// A layer that multiplies by a number whose square overflows f32.
#[derive(Clone)]
struct Large;

impl<B: Backend> Walkable<B> for Large {
    fn walk<'a>(&'a self, _: &mut kiln_nn::Walk<'_, 'a, B>) {}
    fn walk_mut<'a>(&'a mut self, _: &mut kiln_nn::WalkMut<'_, 'a, B>) {}
}

impl<B: Backend> Layer<B> for Large {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.mul_scalar(1e30)
    }
}

#[test]
fn the_first_layer_that_overflows_is_found() {
    let cpu = Cpu::poisoned();
    let inner = Sequential::new().push(Large).push(Large).push(Large);
    let net = Sequential::new().push(Large).push(inner);
    let small = Tensor::full(&cpu, &[2, 2], DType::F32, 1e-40).unwrap();
    let found = |x: &Tensor<Cpu>| {
        let (y, first) = first_non_finite(|| no_grad(|| net.forward(x)));
        y.unwrap();
        first.map(|call| (call.path, call.kind))
    };
    assert_eq!(found(&small), Some(("1.1".to_string(), "Large")));
    assert_eq!(found(&Tensor::zeros(&cpu, &[2, 2], DType::F32).unwrap()), None);
    assert_eq!(
        found(&Tensor::full(&cpu, &[1], DType::F32, f64::NAN).unwrap()),
        Some(("0".to_string(), "Large"))
    );
}
