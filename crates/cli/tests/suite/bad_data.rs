//! Data that is missing or broken: the error names the file and the position, and no files are left behind.

use crate::common::{names, run, succeeds};
use flate2::{Compression, write::GzEncoder};
use std::io::Write;
use std::path::Path;

/// An IDX file of bytes, with these dimensions.
fn idx(dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dims.len() as u8];
    bytes.extend(dims.iter().flat_map(|d| d.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Writes MNIST's four files with 24 images to train on and 12 to evaluate on.
fn write_mnist(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    for (name, count) in [("train", 24u32), ("t10k", 12)] {
        let pixels: Vec<u8> = (0..count * 784).map(|i| (i * 31 % 251) as u8).collect();
        let labels: Vec<u8> = (0..count).map(|i| (i % 10) as u8).collect();
        let images = gzip(&idx(&[count, 28, 28], &pixels));
        std::fs::write(dir.join(format!("{name}-images-idx3-ubyte.gz")), images).unwrap();
        std::fs::write(
            dir.join(format!("{name}-labels-idx1-ubyte.gz")),
            gzip(&idx(&[count], &labels)),
        )
        .unwrap();
    }
}

#[test]
fn broken_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("mnist");
    let train = ["train", "mnist-cnn", "--data", "mnist", "--epochs", "1"];
    write_mnist(&data);
    succeeds(dir.path(), &[&train[..], &["--out", "good"]].concat());

    let images = "train-images-idx3-ubyte.gz";
    let labels = "train-labels-idx1-ubyte.gz";
    let whole = std::fs::read(data.join(images)).unwrap();
    let mut wrong_label: Vec<u8> = (0..24).map(|i| i % 10).collect();
    wrong_label[7] = 10;
    let cases: [(&str, Vec<u8>, &[&str]); 4] = [
        (images, whole[..whole.len() / 2].to_vec(), &[images]),
        (images, gzip(b"not an IDX file at all"), &[images, "magic"]),
        (images, gzip(&idx(&[25, 28, 28], &[0; 24 * 784])), &[images]),
        (
            labels,
            gzip(&idx(&[24], &wrong_label)),
            &[labels, "label 10", "record 7", "0..10"],
        ),
    ];
    for (file, bytes, parts) in cases {
        write_mnist(&data);
        std::fs::write(data.join(file), bytes).unwrap();
        run(dir.path(), &train).fails(1, parts);
    }
    // The wrong label is still there and can be left out.
    let ran = succeeds(dir.path(), &[&train[..], &["--skip-bad", "--out", "skipped"]].concat());
    assert!(
        ran.stdout.contains("23 images to train") && ran.stdout.contains("1 bad record left out"),
        "{}",
        ran.stdout
    );

    // Evaluation needs only the test files, and refuses or counts broken records there too.
    std::fs::remove_file(data.join(images)).unwrap();
    std::fs::remove_file(data.join(labels)).unwrap();
    let eval = ["eval", "-w", "good/last.safetensors", "--data", "mnist", "--json"];
    assert_eq!(succeeds(dir.path(), &eval).json()[0]["samples"], 12);
    let wrong: Vec<u8> = (0..12).map(|i| i + 1).collect();
    std::fs::write(data.join("t10k-labels-idx1-ubyte.gz"), gzip(&idx(&[12], &wrong))).unwrap();
    run(dir.path(), &eval).fails(1, &["t10k-labels", "label 10"]);
    let skipped = &succeeds(dir.path(), &[&eval[..], &["--skip-bad"]].concat()).json()[0];
    assert_eq!(
        (&skipped["samples"], &skipped["skipped_records"]),
        (&9.into(), &3.into())
    );

    run(dir.path(), &train).fails(1, &["train-images-idx3-ubyte", "not found"]);
    assert_eq!(names(dir.path()), ["good", "mnist", "skipped"]);
}

#[test]
fn images_of_another_size_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_mnist(&dir.path().join("m"));
    for name in ["train", "t10k"] {
        let file = dir.path().join("m").join(format!("{name}-images-idx3-ubyte.gz"));
        let count = if name == "train" { 24 } else { 12 };
        std::fs::write(file, gzip(&idx(&[count, 14, 14], &vec![0; count as usize * 196]))).unwrap();
    }
    run(dir.path(), &["train", "mnist-cnn", "--data", "m"]).fails(1, &["[14, 14, 1]", "[28, 28, 1]"]);
}

#[test]
fn cifar_is_read_and_its_faults_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("cifar");
    std::fs::create_dir(&data).unwrap();
    let train = ["train", "lenet", "--data", "cifar", "--epochs", "1"];
    run(dir.path(), &train).fails(1, &["data_batch_1.bin", "not found", "cifar-10-binary"]);
    let record = |label: u8| [vec![label], vec![label * 20; 3072]].concat();
    for i in 1..=5 {
        std::fs::write(
            data.join(format!("data_batch_{i}.bin")),
            [record(1), record(2)].concat(),
        )
        .unwrap();
    }
    std::fs::write(data.join("test_batch.bin"), record(3)).unwrap();
    succeeds(dir.path(), &train);
    std::fs::rename(data.join("data_batch_5.bin"), dir.path().join("away")).unwrap();
    let eval = [
        "eval",
        "-w",
        "runs/lenet-0/last.safetensors",
        "--data",
        "cifar",
        "--json",
    ];
    assert_eq!(succeeds(dir.path(), &eval).json()[0]["samples"], 1);
    std::fs::rename(dir.path().join("away"), data.join("data_batch_5.bin")).unwrap();
    std::fs::write(data.join("data_batch_3.bin"), [record(1), record(12)].concat()).unwrap();
    run(dir.path(), &train).fails(1, &["data_batch_3.bin", "label 12", "record 1"]);
    std::fs::write(data.join("data_batch_3.bin"), &record(1)[..2000]).unwrap();
    run(dir.path(), &train).fails(1, &["data_batch_3.bin", "truncated"]);
}
