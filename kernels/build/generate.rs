//! Writes the Rust module that names every image and kernel.

use crate::compile::Image;
use crate::entries;
use std::fmt::Write;

/// One module per image, with a constant per kernel and a [`PerFloat`] where all three float dtypes exist.
pub(crate) fn module(images: &[Image]) -> Result<String, String> {
    let mut text = String::new();
    for image in images {
        let bytes = std::fs::read(&image.ptx).map_err(|e| format!("cannot read {}: {e}", image.ptx.display()))?;
        let entries = entries::read(&bytes).map_err(|e| format!("{}: {e}", image.ptx.display()))?;
        write_image(&mut text, image, &entries).map_err(|e| e.to_string())?;
    }
    Ok(text)
}

fn write_image(text: &mut String, image: &Image, entries: &[entries::Entry]) -> std::fmt::Result {
    let name = &image.name;
    writeln!(text, "/// Kernels of `{name}.cu`; the file describes them.")?;
    writeln!(text, "pub mod {name} {{\n    use crate::{{Aligned, Image, Kernel}};")?;
    writeln!(
        text,
        "    static BYTES: &Aligned<[u8]> = &Aligned(*include_bytes!({:?}));",
        image.path
    )?;
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
                "    pub static {up}: crate::PerFloat = crate::PerFloat {{ f32: &{up}_F32, bf16: &{up}_BF16, f16: &{up}_F16 }};"
            )?;
        }
    }
    writeln!(text, "}}")
}
