//! A reader of event files, for tests.

use std::path::{Path, PathBuf};

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Field<'a> {
    Int(u64),
    Bytes(&'a [u8]),
    Double(f64),
    Float(f32),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            return value;
        }
    }
}

/// The fields of a message by their numbers.
pub(crate) fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let mut take = |n: usize| {
            let (taken, rest) = bytes.split_at(n);
            bytes = rest;
            taken
        };
        let field = match key & 7 {
            0 => Field::Int(varint(&mut bytes)),
            1 => Field::Double(f64::from_le_bytes(take(8).try_into().unwrap())),
            5 => Field::Float(f32::from_le_bytes(take(4).try_into().unwrap())),
            _ => {
                let n = varint(&mut bytes) as usize;
                let (taken, rest) = bytes.split_at(n);
                bytes = rest;
                Field::Bytes(taken)
            }
        };
        found.push((key >> 3, field));
    }
    found
}

/// The event files of a folder in the order in which TensorBoard reads them.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths
}

/// An event: its step, and the name and the number of a summary's value, if it has any.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) step: u64,
    pub(crate) tag: Option<String>,
    pub(crate) scalar: Option<f32>,
    /// True for the beginning of a session, which hides the events of this step and later ones.
    pub(crate) purges: bool,
}

/// The events of a file.
pub(crate) fn events(path: &Path) -> Vec<Seen> {
    let file = std::fs::read(path).unwrap();
    let (mut rest, mut seen) = (&file[..], Vec::new());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        seen.push(event(&rest[12..12 + length]));
        rest = &rest[16 + length..];
    }
    seen
}

fn event(bytes: &[u8]) -> Seen {
    let mut seen = Seen {
        step: 0,
        tag: None,
        scalar: None,
        purges: false,
    };
    for field in fields(bytes) {
        match field {
            (2, Field::Int(step)) => seen.step = step,
            (7, _) => seen.purges = true,
            (5, Field::Bytes(summary)) => {
                let [(1, Field::Bytes(value))] = fields(summary)[..] else {
                    panic!("a summary of one value")
                };
                for field in fields(value) {
                    match field {
                        (1, Field::Bytes(tag)) => seen.tag = Some(String::from_utf8(tag.to_vec()).unwrap()),
                        (2, Field::Float(scalar)) => seen.scalar = Some(scalar),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    seen
}
