//! Functions that most tests use.

pub(crate) use crate::program::Ran;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A driver that does not exist, so that the program finds no GPU: these tests are about the CPU.
pub(crate) const NO_DRIVER: &str = "no/such/driver.so";

/// The program, to be run in `dir`.
pub(crate) fn kiln(dir: &Path, args: &[&str]) -> Command {
    let mut command = crate::program::kiln(dir, args);
    command.env("KILN_CUDA_DRIVER", NO_DRIVER);
    command
}

pub(crate) fn run(dir: &Path, args: &[&str]) -> Ran {
    Ran::of(kiln(dir, args).output().unwrap())
}

/// Runs the program with a text as standard input.
pub(crate) fn piped(dir: &Path, args: &[&str], input: &str) -> Ran {
    let mut command = kiln(dir, args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Ran::of(child.wait_with_output().unwrap())
}

/// Runs the program and asserts that it succeeds.
pub(crate) fn succeeds(dir: &Path, args: &[&str]) -> Ran {
    let ran = run(dir, args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.stdout, ran.stderr);
    ran
}

/// The names in a folder, sorted, those of checkpoints left out: how many there are depends on the time of a stop.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| !name.starts_with("checkpoint-"));
    names.sort();
    names
}

/// Writes a grey picture.
pub(crate) fn write_png(path: &Path, width: u32, height: u32, pixel: impl Fn(u32, u32) -> u8) {
    let file = std::fs::File::create(path).unwrap();
    let mut encoder = png::Encoder::new(file, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let data: Vec<u8> = (0..width * height).map(|i| pixel(i % width, i / width)).collect();
    encoder.write_header().unwrap().write_image_data(&data).unwrap();
}

/// Width and height of a PNG file.
pub(crate) fn png_size(path: &Path) -> (u32, u32) {
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let reader = png::Decoder::new(file).read_info().unwrap();
    (reader.info().width, reader.info().height)
}
