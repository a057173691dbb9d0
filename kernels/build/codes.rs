//! Writes the header of codes: the enums and tables of core's ops as CUDA C has them, so that there is one list of each.

use kiln_core::ops::{Activation, Binary, Compare, GradReads, Integer, IntegerFold, Reduce, Unary};
use std::fmt::{Debug, Write};
use std::path::{Path, PathBuf};

/// Writes `codes.cuh` into the folder `codes` under `out`, and returns that folder.
pub(crate) fn write(out: &Path) -> Result<PathBuf, String> {
    let folder = out.join("codes");
    let path = folder.join("codes.cuh");
    let text = header().map_err(|e| e.to_string())?;
    let written = std::fs::create_dir_all(&folder).and_then(|()| match std::fs::read_to_string(&path) {
        Ok(old) if old == text => Ok(()),
        _ => std::fs::write(&path, text),
    });
    written.map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok(folder)
}

fn header() -> Result<String, std::fmt::Error> {
    let mut text = "// Written by kernels/build/codes.rs from the tables of kiln-core.\n#pragma once\n\n".to_string();
    codes(&mut text, "Unary", Unary::ALL)?;
    codes(&mut text, "Binary", Binary::ALL)?;
    codes(&mut text, "Compare", Compare::ALL)?;
    codes(&mut text, "Reduce", Reduce::ALL)?;
    codes(&mut text, "Activation", Activation::ALL)?;
    codes(&mut text, "Integer", Integer::ALL)?;
    codes(&mut text, "IntegerFold", IntegerFold::ALL)?;

    each(&mut text, "Unary", Unary::ALL)?;
    each(&mut text, "Binary", Binary::ALL)?;
    each(&mut text, "Integer", Integer::ALL)?;
    // The first is the identity.
    each(&mut text, "Activation", &Activation::ALL[1..])?;
    flags(&mut text, "Whether the gradient reads x.", "GRAD_READS_X", |f| {
        f.function().reads == GradReads::Input
    })?;
    flags(&mut text, "Whether the gradient reads y.", "GRAD_READS_Y", |f| {
        f.function().reads == GradReads::Output
    })?;
    let light = "is a few instructions, so that all lanes of a pack may be unrolled.";
    flags(&mut text, &format!("Whether the value {light}"), "UNARY_LIGHT", |f| {
        f.function().work[0] == 1
    })?;
    flags(&mut text, &format!("Whether the slope {light}"), "GRAD_LIGHT", |f| {
        f.function().work[1] == 1
    })?;
    Ok(text)
}

/// An enum of core, whose variants' places in `all` are their codes.
fn codes<T: Debug>(text: &mut String, name: &str, all: &[T]) -> std::fmt::Result {
    write!(text, "enum {name}Code : unsigned {{")?;
    for f in all {
        write!(text, " {}_{},", name.to_uppercase(), upper(f))?;
    }
    writeln!(text, " }};\n")
}

/// A macro that hands the variants to another one by one, for a switch over all.
fn each<T: Debug>(text: &mut String, name: &str, all: &[T]) -> std::fmt::Result {
    write!(text, "#define {}_CODES(M)", name.to_uppercase())?;
    for f in all {
        write!(text, " M({})", upper(f))?;
    }
    writeln!(text, "\n")
}

/// A constant that is true for the functions for which `holds` is, kept as one number with a bit for each function.
fn flags(text: &mut String, doc: &str, name: &str, holds: impl Fn(&Unary) -> bool) -> std::fmt::Result {
    assert!(Unary::ALL.len() <= 64, "a number has 64 bits");
    let set = Unary::ALL.iter().enumerate();
    let bits = set.fold(0u64, |bits, (i, f)| bits | u64::from(holds(f)) << i);
    writeln!(
        text,
        "// {doc}\ntemplate <unsigned OP> constexpr bool {name} = ({bits:#x}ull >> OP & 1) != 0;"
    )
}

/// `LeakyRelu` as `LEAKY_RELU`.
fn upper(variant: &impl Debug) -> String {
    let mut name = String::new();
    for (i, c) in format!("{variant:?}").char_indices() {
        if c.is_uppercase() && i > 0 {
            name.push('_');
        }
        name.extend(c.to_uppercase());
    }
    name
}
