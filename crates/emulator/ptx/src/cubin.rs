//! Resources of the kernels in machine code: the registers that `ptxas` gave them, their local and shared memory, the size of their
//! blocks.
//!
//! The code itself is not run. A cubin is an ELF file; its section `.nv.info` is a list of attributes, of which those
//! for a kernel name it by its place in the table of symbols. A kernel `f` has attributes of its own in `.nv.info.f`, and its shared
//! memory is the section `.nv.shared.f`.

use std::collections::HashMap;

use crate::bytes::{u16_at, u32_at, u64_at};

/// The resources of one kernel, as `ptxas -v` prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread.
    pub local: u32,
    /// Bytes of shared memory of a block that the kernel declares with a size.
    pub shared: u32,
    /// The most threads of a block (`__launch_bounds__`); 0 if the kernel says nothing.
    pub max_threads: u32,
}

const SYMBOLS: u32 = 2;
/// The form of an attribute that has its size and its value behind it.
const SIZED: u8 = 4;
const REGISTERS: u8 = 0x2f;
const FRAME: u8 = 0x11;
const MAX_THREADS: u8 = 0x05;
/// Bytes at the start of a block's shared memory that belong to the system, from compute capability 9.0 on a part of the section.
const RESERVED: u64 = 1024;

/// One section, and its bytes.
struct Section<'a> {
    name: u32,
    kind: u32,
    link: u32,
    /// Its size, which a section without bytes in the file has too.
    size: u64,
    bytes: &'a [u8],
}

/// The kernels of a cubin by name; of a damaged one, as many as can be read.
pub fn resources(elf: &[u8]) -> HashMap<String, Resources> {
    read(elf).unwrap_or_default()
}

fn read(elf: &[u8]) -> Option<HashMap<String, Resources>> {
    let sections = sections(elf)?;
    let names = sections.get(usize::from(u16_at(elf, 0x3e)?))?;
    let symbols = sections.iter().find(|s| s.kind == SYMBOLS)?;
    let strings = sections.get(symbols.link as usize)?;
    let info = sections
        .iter()
        .find(|s| text(names.bytes, s.name) == Some(".nv.info"))?
        .bytes;
    let mut found: HashMap<String, Resources> = HashMap::new();
    each_attribute(info, |attribute, value| {
        if matches!(attribute, REGISTERS | FRAME)
            && let (Some(symbol), Some(value)) = (u32_at(value, 0), u32_at(value, 4))
            && let Some(at) = (symbol as usize).checked_mul(24)
            && let Some(name) = u32_at(symbols.bytes, at).and_then(|n| text(strings.bytes, n))
        {
            let kernel = found.entry(name.to_string()).or_default();
            if attribute == REGISTERS {
                kernel.registers = value
            } else {
                kernel.local = value
            }
        }
    });
    let reserved = if architecture(elf)? >= 90 { RESERVED } else { 0 };
    for section in &sections {
        let Some(name) = text(names.bytes, section.name) else {
            continue;
        };
        if let Some(kernel) = name.strip_prefix(".nv.shared.").and_then(|n| found.get_mut(n)) {
            kernel.shared = u32::try_from(section.size.saturating_sub(reserved)).unwrap_or(u32::MAX);
        }
        if let Some(kernel) = name.strip_prefix(".nv.info.").and_then(|n| found.get_mut(n)) {
            each_attribute(section.bytes, |attribute, value| {
                let sides = [0, 4, 8].map(|at| u32_at(value, at).unwrap_or(0));
                if attribute == MAX_THREADS && value.len() == 12 {
                    kernel.max_threads = sides.into_iter().fold(1, u32::saturating_mul);
                }
            });
        }
    }
    Some(found)
}

/// The architecture that the code is for, ten times its compute capability: a byte of the ELF header's flags, the lowest up to CUDA 12,
/// the second from CUDA 13 on (`EI_ABIVERSION` 8).
pub fn architecture(elf: &[u8]) -> Option<u32> {
    let flags = u32_at(elf, 0x30)?;
    let newer = *elf.get(8)? >= 8;
    Some(if newer { flags >> 8 & 0xff } else { flags & 0xff })
}

/// Hands out the attributes of a list that have a value behind them: their codes and their values.
fn each_attribute(info: &[u8], mut each: impl FnMut(u8, &[u8])) {
    let mut at = 0;
    while let (Some(&[form, attribute]), Some(size)) = (info.get(at..at + 2), u16_at(info, at + 2)) {
        at += 4;
        if form == SIZED {
            let Some(value) = info.get(at..at + usize::from(size)) else {
                return;
            };
            each(attribute, value);
            at += usize::from(size);
        }
    }
}

fn sections(elf: &[u8]) -> Option<Vec<Section<'_>>> {
    let (table, size, count) = (
        u64_at(elf, 0x28)? as usize,
        usize::from(u16_at(elf, 0x3a)?),
        u16_at(elf, 0x3c)?,
    );
    let section = |n: u16| {
        let header = elf.get(table.checked_add(size * usize::from(n))?..)?;
        let (kind, start, len) = (
            u32_at(header, 4)?,
            u64_at(header, 24)? as usize,
            u64_at(header, 32)? as usize,
        );
        // A section without bytes in the file (type 8, NOBITS) still has a size.
        let bytes = if kind == 8 {
            &[][..]
        } else {
            elf.get(start..start.checked_add(len)?)?
        };
        Some(Section {
            name: u32_at(header, 0)?,
            kind,
            link: u32_at(header, 40)?,
            size: len as u64,
            bytes,
        })
    };
    (0..count).map(section).collect()
}

fn text(table: &[u8], at: u32) -> Option<&str> {
    let rest = table.get(at as usize..)?;
    std::str::from_utf8(&rest[..rest.iter().position(|b| *b == 0)?]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of CUDA 13 for sm_90 with the sections that are read, for kernels of these names, registers, bytes of local and of
    /// shared memory, and threads.
    fn cubin(kernels: &[(&str, u32, u32, u32, u32)]) -> Vec<u8> {
        let mut names = b"\0.nv.info\0".to_vec();
        let (mut strings, mut symbols, mut info) = (vec![0u8], vec![0u8; 24], vec![3, 0x37, 5, 0]);
        let mut own = Vec::new();
        for (n, (name, registers, local, shared, threads)) in kernels.iter().enumerate() {
            symbols.extend((strings.len() as u32).to_le_bytes());
            symbols.extend([0; 20]);
            strings.extend(name.bytes().chain([0]));
            for (attribute, value) in [(REGISTERS, registers), (0x12, &7), (FRAME, local)] {
                info.extend([SIZED, attribute, 8, 0]);
                info.extend((n as u32 + 1).to_le_bytes());
                info.extend(value.to_le_bytes());
            }
            let mut sides = vec![SIZED, MAX_THREADS, 12, 0];
            sides.extend([threads / 2, 2, 1].iter().flat_map(|side| side.to_le_bytes()));
            // Their bodies, and the sizes that their headers give: shared memory has no bytes in the file.
            for (kind, prefix, body, size) in [
                (0x7000_0000u32, ".nv.info.", sides, 16),
                (8, ".nv.shared.", Vec::new(), u64::from(shared + 1024)),
            ] {
                own.push((kind, names.len() as u32, 0u32, body, size));
                names.extend(prefix.bytes().chain(name.bytes()).chain([0]));
            }
        }
        let sized = |kind: u32, name: u32, link: u32, body: Vec<u8>| {
            let size = body.len() as u64;
            (kind, name, link, body, size)
        };
        let mut sections = vec![
            sized(3, 0, 0, names),
            sized(3, 0, 0, strings),
            sized(SYMBOLS, 0, 1, symbols),
            sized(0x7000_0000, 1, 0, info),
        ];
        sections.extend(own);
        let (mut elf, mut headers) = (vec![0u8; 64], Vec::new());
        elf[..4].copy_from_slice(b"\x7fELF");
        elf[8] = 8;
        elf[0x30..0x34].copy_from_slice(&0x0a00_5a04u32.to_le_bytes());
        let count = sections.len() as u16;
        for (kind, name, link, body, size) in sections {
            let mut header = [0u8; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(elf.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            elf.extend(body);
            headers.extend(header);
        }
        let table = elf.len() as u64;
        elf[0x28..0x30].copy_from_slice(&table.to_le_bytes());
        elf[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
        elf[0x3c..0x3e].copy_from_slice(&count.to_le_bytes());
        elf.extend(headers);
        elf
    }

    #[test]
    fn kernels_are_found_by_name() {
        let elf = cubin(&[("tile", 40, 400, 49152, 256), ("plain", 8, 0, 0, 64)]);
        let found = resources(&elf);
        assert_eq!(found.len(), 2);
        let of = |name: &str| {
            let r = found[name];
            (r.registers, r.local, r.shared, r.max_threads)
        };
        assert_eq!(of("tile"), (40, 400, 49152, 256));
        assert_eq!(of("plain"), (8, 0, 0, 64));
        assert_eq!(architecture(&elf), Some(90));
        // Up to CUDA 12 the architecture is the lowest byte, and shared memory has no part of the system's in it before 9.0.
        let mut older = elf;
        older[8] = 7;
        older[0x30..0x34].copy_from_slice(&0x0055_0550u32.to_le_bytes());
        assert_eq!(architecture(&older), Some(80));
        assert_eq!(resources(&older)["tile"].shared, 49152 + 1024);
    }

    #[test]
    fn damaged_files_give_nothing_and_no_panic() {
        let whole = cubin(&[("tile", 40, 400, 64, 32)]);
        // The last header is read but for its end.
        for len in 0..whole.len() - 20 {
            assert!(resources(&whole[..len]).is_empty());
        }
        for at in 0..whole.len() {
            let mut wrong = whole.clone();
            wrong[at] = 0xff;
            resources(&wrong);
        }
    }
}
