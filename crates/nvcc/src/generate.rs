//! Writes the Rust module that names every image and kernel.

use crate::compile::Image;
use crate::entries::{self, Entry};
use std::fmt::Write;

/// One module per image, with a constant per kernel and a [`PerFloat`] where all three float dtypes exist.
pub(crate) fn module(images: &[Image], types: &str) -> Result<String, String> {
    let mut all = Vec::new();
    for image in images {
        let bytes = std::fs::read(&image.ptx).map_err(|e| format!("cannot read {}: {e}", image.ptx.display()))?;
        let entries = entries::read(&bytes).map_err(|e| format!("{}: {e}", image.ptx.display()))?;
        let bytes = format!("*include_bytes!({:?})", image.path);
        all.push((image.name.clone(), bytes, entries));
    }
    write_all(&all, types).map_err(|e| e.to_string())
}

/// The module for a list of kernels, in images without code: for documentation that is built without nvcc. The list has a line for
/// each kernel with its image, its name, the most threads of a block and the bytes of its parameters; `types` is the Rust path of the
/// types.
///
/// # Errors
/// A line that is not a kernel.
pub fn documented(list: &str, types: &str) -> Result<String, String> {
    let mut all: Vec<(String, String, Vec<Entry>)> = Vec::new();
    for line in list.lines() {
        let broken = || format!("`{line}` is not a kernel");
        let mut words = line.split_whitespace();
        let (image, name) = (words.next().ok_or_else(broken)?, words.next().ok_or_else(broken)?);
        let mut numbers = words.map(|w| w.parse::<u32>().map_err(|_| broken()));
        let entry = Entry {
            name: name.to_string(),
            max_threads: Some(numbers.next().ok_or_else(broken)??),
            params: numbers.collect::<Result<_, _>>()?,
        };
        match all.last_mut() {
            Some((last, _, entries)) if last == image => entries.push(entry),
            _ => all.push((image.to_string(), "[]".to_string(), vec![entry])),
        }
    }
    write_all(&all, types).map_err(|e| e.to_string())
}

/// The modules of images, each with the expression of its bytes, and the list of all kernels.
fn write_all(images: &[(String, String, Vec<Entry>)], types: &str) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for (name, bytes, entries) in images {
        write_image(&mut text, name, bytes, entries, types)?;
    }
    writeln!(text, "/// Every kernel, image by image.")?;
    writeln!(text, "pub static ALL: &[&{types}::Kernel] = &[")?;
    for (name, _, entries) in images {
        for e in entries {
            writeln!(text, "    &{name}::{},", e.name.to_uppercase())?;
        }
    }
    writeln!(text, "];")?;
    Ok(text)
}

fn write_image(text: &mut String, name: &str, bytes: &str, entries: &[Entry], types: &str) -> std::fmt::Result {
    writeln!(text, "/// Kernels of `{name}.cu`; the file describes them.")?;
    writeln!(text, "pub mod {name} {{\n    use {types}::{{Aligned, Image, Kernel}};")?;
    writeln!(text, "    static BYTES: &Aligned<[u8]> = &Aligned({bytes});")?;
    writeln!(text, "    /// The compiled file.")?;
    writeln!(
        text,
        "    pub static IMAGE: Image = Image {{ name: {name:?}, fatbin: &BYTES.0 }};"
    )?;
    for e in entries {
        let max = e.max_threads.unwrap_or(1024);
        writeln!(text, "    /// `{}`", e.name)?;
        writeln!(
            text,
            "    pub static {}: Kernel = Kernel {{ name: {:?}, image: &IMAGE, params: &{:?}, max_threads: {max} }};",
            e.name.to_uppercase(),
            e.name,
            e.params
        )?;
    }
    let has = |stem: &str, dtype: &str| entries.iter().any(|e| e.name == format!("{stem}_{dtype}"));
    for e in entries {
        let Some(stem) = e.name.strip_suffix("_f32") else {
            continue;
        };
        if has(stem, "bf16") && has(stem, "f16") {
            let up = stem.to_uppercase();
            writeln!(text, "    /// `{stem}` by dtype.")?;
            writeln!(
                text,
                "    pub static {up}: {types}::PerFloat = {types}::PerFloat {{ f32: &{up}_F32, bf16: &{up}_BF16, f16: &{up}_F16 }};"
            )?;
        }
    }
    writeln!(text, "}}")
}
