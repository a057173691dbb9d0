//! Resources of the kernels in machine code: the registers that `ptxas` gave them, and their local memory.
//!
//! The code itself is not run. A cubin is an ELF file; its section `.nv.info` is a list of attributes, of which those
//! for a kernel name it by its place in the table of symbols.

use std::collections::HashMap;

use crate::bytes::{u16_at, u32_at, u64_at};

/// The resources of one kernel, as `ptxas -v` prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread.
    pub local: u32,
}

const SYMBOLS: u32 = 2;
/// The form of an attribute that has its size and its value behind it.
const SIZED: u8 = 4;
const REGISTERS: u8 = 0x2f;
const FRAME: u8 = 0x11;

/// One section, and its bytes.
struct Section<'a> {
    name: u32,
    kind: u32,
    link: u32,
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
    let mut at = 0;
    while at + 4 <= info.len() {
        let (form, attribute, size) = (info[at], info[at + 1], usize::from(u16_at(info, at + 2)?));
        at += 4;
        if form != SIZED {
            continue;
        }
        if size >= 8
            && matches!(attribute, REGISTERS | FRAME)
            && let Some(name) =
                u32_at(symbols.bytes, 24 * u32_at(info, at)? as usize).and_then(|n| text(strings.bytes, n))
        {
            let kernel = found.entry(name.to_string()).or_default();
            let value = u32_at(info, at + 4)?;
            if attribute == REGISTERS {
                kernel.registers = value
            } else {
                kernel.local = value
            }
        }
        at += size;
    }
    Some(found)
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

    /// An ELF file with the sections that are read, for kernels of these names, registers and bytes of local memory.
    fn cubin(kernels: &[(&str, u32, u32)]) -> Vec<u8> {
        let names = b"\0.nv.info\0".to_vec();
        let (mut strings, mut symbols, mut info) = (vec![0u8], vec![0u8; 24], vec![3, 0x37, 5, 0]);
        for (n, (name, registers, local)) in kernels.iter().enumerate() {
            symbols.extend((strings.len() as u32).to_le_bytes());
            symbols.extend([0; 20]);
            strings.extend(name.bytes().chain([0]));
            for (attribute, value) in [(REGISTERS, registers), (0x12, &7), (FRAME, local)] {
                info.extend([SIZED, attribute, 8, 0]);
                info.extend((n as u32 + 1).to_le_bytes());
                info.extend(value.to_le_bytes());
            }
        }
        let bodies = [
            (3u32, 0u32, 0u32, names),
            (3, 0, 0, strings),
            (SYMBOLS, 0, 1, symbols),
            (0x7000_0000, 1, 0, info),
        ];
        let (mut elf, mut headers) = (vec![0u8; 64], Vec::new());
        elf[..4].copy_from_slice(b"\x7fELF");
        for (kind, name, link, body) in bodies {
            let mut header = [0u8; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(elf.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(body.len() as u64).to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            elf.extend(body);
            headers.extend(header);
        }
        let table = elf.len() as u64;
        elf[0x28..0x30].copy_from_slice(&table.to_le_bytes());
        elf[0x3a..0x40].copy_from_slice(&[64, 0, 4, 0, 0, 0]);
        elf.extend(headers);
        elf
    }

    #[test]
    fn kernels_are_found_by_name() {
        let found = resources(&cubin(&[("tile", 40, 400), ("plain", 8, 0)]));
        assert_eq!(found.len(), 2);
        assert_eq!(
            found["tile"],
            Resources {
                registers: 40,
                local: 400
            }
        );
        assert_eq!(found["plain"], Resources { registers: 8, local: 0 });
    }

    #[test]
    fn damaged_files_give_nothing_and_no_panic() {
        let whole = cubin(&[("tile", 40, 400)]);
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
