//! Images of modules: fat binaries as nvcc writes them, and plain PTX text.
//!
//! A fat binary is a header and a list of entries, each with a header of its own; the layout is what `nvcc --fatbin`
//! 13.0 writes. Of its entries only PTX can be run here.

use thiserror::Error;

/// The first word of the wrapper that nvcc's host code points to.
pub(crate) const WRAPPER: u32 = 0x4662_43b1;
/// The first word of a fat binary.
pub(crate) const HEADER: u32 = 0xba55_ed50;
/// The size of a fat binary's header in bytes.
pub(crate) const HEADER_SIZE: usize = 16;

const PTX: u16 = 1;
const CUBIN: u16 = 2;
/// Bits in an entry's flags: LZ4 and zstd.
const COMPRESSED: u64 = 0x2000 | 0x8000;

/// Why an image cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ImageError {
    /// Neither a fat binary nor PTX.
    #[error("the image is neither a fat binary nor PTX text: it begins with {start:02x?}")]
    Unknown {
        /// Its first bytes.
        start: Vec<u8>,
    },
    /// Machine code of a real GPU.
    #[error("the image is a cubin (machine code): load PTX or a fat binary that holds PTX")]
    Cubin,
    /// An entry reaches beyond the end.
    #[error("the fat binary is cut off: entry {entry} reaches byte {end} of {len}")]
    Truncated {
        /// The entry's index.
        entry: usize,
        /// Where it ends.
        end: u64,
        /// Where the image ends.
        len: usize,
    },
    /// The PTX is compressed.
    #[error("the PTX for compute_{arch} is compressed: compile with nvcc's -no-compress")]
    Compressed {
        /// Its architecture, ten times the compute capability.
        arch: u32,
    },
    /// No PTX that this device may run.
    #[error(
        "the fat binary holds no PTX for compute_{sm} or lower (PTX: {ptx:?}, machine code: {cubin:?}): compile with \
         -gencode arch=compute_{sm},code=compute_{sm}"
    )]
    NoPtx {
        /// The device's architecture.
        sm: u32,
        /// Architectures of the PTX that is there.
        ptx: Vec<u32>,
        /// Architectures of the machine code that is there.
        cubin: Vec<u32>,
    },
    /// PTX text for a newer device, or for exactly another one.
    #[error("the PTX is for sm_{target}, which this device of sm_{sm} does not run")]
    Target {
        /// What the text asks for, with its suffix.
        target: String,
        /// The device's architecture.
        sm: u32,
    },
    /// The PTX is not text.
    #[error("the PTX is not UTF-8")]
    Text,
}

/// One entry of a fat binary.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    kind: u16,
    arch: u32,
    compressed: bool,
    payload: &'a [u8],
}

/// The PTX text of an image that suits a device best: of what does not ask for a newer device, the newest.
///
/// # Errors
/// When there is none.
pub(crate) fn ptx(image: &[u8], sm: u32) -> Result<&str, ImageError> {
    if word(image, 0) == Some(HEADER) {
        return choose(&entries(image)?, sm);
    }
    if image.starts_with(b"\x7fELF") {
        return Err(ImageError::Cubin);
    }
    let text = text(image)?;
    let first = text.trim_start();
    if !(first.starts_with(".version") || first.starts_with("//") || first.starts_with("/*")) {
        return Err(ImageError::Unknown {
            start: image[..image.len().min(8)].to_vec(),
        });
    }
    match target(text) {
        Some((arch, tied, name)) if arch > sm || (tied && arch != sm) => Err(ImageError::Target {
            target: name.to_string(),
            sm,
        }),
        _ => Ok(text),
    }
}

/// The machine code in an image that a real device would run, for what it says of its kernels.
pub(crate) fn cubin(image: &[u8], sm: u32) -> Option<&[u8]> {
    let entries = if word(image, 0) == Some(HEADER) {
        entries(image).ok()?
    } else {
        return None;
    };
    let runs = |e: &&Entry<'_>| e.kind == CUBIN && !e.compressed && e.arch <= sm && e.arch / 10 == sm / 10;
    entries.iter().filter(runs).max_by_key(|e| e.arch).map(|e| e.payload)
}

fn choose<'a>(entries: &[Entry<'a>], sm: u32) -> Result<&'a str, ImageError> {
    let usable = |e: &&Entry<'a>| {
        let alone = || text(e.payload).ok().and_then(target).is_some_and(|(_, tied, _)| tied);
        e.kind == PTX && e.arch <= sm && (e.arch == sm || !alone())
    };
    let Some(best) = entries.iter().filter(usable).max_by_key(|e| e.arch) else {
        let of = |kind| entries.iter().filter(|e| e.kind == kind).map(|e| e.arch).collect();
        return Err(ImageError::NoPtx {
            sm,
            ptx: of(PTX),
            cubin: of(CUBIN),
        });
    };
    if best.compressed {
        return Err(ImageError::Compressed { arch: best.arch });
    }
    text(best.payload)
}

/// What follows `.target sm_`: the architecture, whether it runs on that one alone (`90a`), and as it is written.
fn target(text: &str) -> Option<(u32, bool, &str)> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(".target"))?;
    let name = line.split([',', ';', '/']).next()?.trim().strip_prefix("sm_")?;
    let digits = name.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    Some((digits.parse().ok()?, digits.len() < name.len(), name))
}

fn text(bytes: &[u8]) -> Result<&str, ImageError> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).map_err(|_| ImageError::Text)
}

fn entries(image: &[u8]) -> Result<Vec<Entry<'_>>, ImageError> {
    let len = image.len();
    let cut = |entry, end| ImageError::Truncated { entry, end, len };
    let whole = long(image, 8).and_then(|size| size.checked_add(HEADER_SIZE as u64));
    let end = whole
        .filter(|end| *end <= len as u64)
        .ok_or(cut(0, whole.unwrap_or(u64::MAX)))? as usize;
    let mut entries = Vec::new();
    let mut at = half(image, 6).map_or(HEADER_SIZE, usize::from);
    while at < end {
        let n = entries.len();
        let bytes = image.get(at..end).ok_or(cut(n, at as u64))?;
        let fields = || {
            Some((
                half(bytes, 0)?,
                word(bytes, 4)?,
                long(bytes, 8)?,
                word(bytes, 28)?,
                long(bytes, 40)?,
            ))
        };
        let (kind, header, size, arch, flags) = fields().ok_or(cut(n, at as u64 + 64))?;
        let stop = u64::from(header)
            .checked_add(size)
            .filter(|s| *s <= bytes.len() as u64 && *s >= 48);
        let stop = stop.ok_or(cut(n, (at as u64).saturating_add(size)))? as usize;
        let payload = &bytes[header as usize..stop];
        entries.push(Entry {
            kind,
            arch,
            compressed: flags & COMPRESSED != 0,
            payload,
        });
        at += stop;
    }
    Ok(entries)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u16, arch: u32, flags: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0u8; 64];
        out[0..2].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&64u32.to_le_bytes());
        out[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        out[28..32].copy_from_slice(&arch.to_le_bytes());
        out[40..48].copy_from_slice(&flags.to_le_bytes());
        out.extend(payload);
        out
    }

    fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
        let body = entries.concat();
        let mut out = HEADER.to_le_bytes().to_vec();
        out.extend([1, 0, 16, 0]);
        out.extend((body.len() as u64).to_le_bytes());
        out.extend(body);
        out
    }

    fn of(arch: u32, suffix: &str) -> Vec<u8> {
        let text = format!("\n\n.version 9.0\n.target sm_{arch}{suffix}\n// {arch}{suffix}\0\0\0");
        entry(PTX, arch, 0x11, text.as_bytes())
    }

    #[test]
    fn the_newest_ptx_that_runs_is_chosen() {
        let image = fatbin(&[
            of(70, ""),
            entry(CUBIN, 90, 0x11, b"\x7fELF"),
            of(90, ""),
            of(80, ""),
            of(100, "a"),
        ]);
        for (sm, chosen) in [(70, 70), (75, 70), (80, 80), (86, 80), (90, 90), (120, 90)] {
            assert!(ptx(&image, sm).unwrap().ends_with(&format!("// {chosen}")), "{sm}");
        }
        assert!(ptx(&image, 100).unwrap().ends_with("// 100a"));
        assert_eq!((cubin(&image, 90), cubin(&image, 80)), (Some(&b"\x7fELF"[..]), None));
        let missing = ptx(&image, 61).unwrap_err();
        assert_eq!(
            missing,
            ImageError::NoPtx {
                sm: 61,
                ptx: vec![70, 90, 80, 100],
                cubin: vec![90]
            }
        );
    }

    #[test]
    fn compressed_ptx_says_how_to_compile() {
        for flag in [0x2000, 0x8000] {
            let image = fatbin(&[entry(PTX, 80, 0x11 | flag, b"(\xb5/\xfd")]);
            assert!(ptx(&image, 80).unwrap_err().to_string().contains("-no-compress"));
        }
    }

    #[test]
    fn every_cut_is_noticed() {
        let image = fatbin(&[of(80, ""), of(90, "")]);
        for len in 4..image.len() {
            let cut = ptx(&image[..len], 80);
            assert!(matches!(cut, Err(ImageError::Truncated { .. })), "{len}: {cut:?}");
        }
        let mut lying = image.clone();
        lying[16 + 8..16 + 16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(ptx(&lying, 80), Err(ImageError::Truncated { entry: 0, .. })));
    }

    #[test]
    fn text_is_an_image_and_machine_code_is_not() {
        assert!(
            ptx(b"\n.version 8.0\n.target sm_80\0", 80)
                .unwrap()
                .starts_with("\n.version")
        );
        assert!(ptx(b"// generated\n.version 8.0\n", 80).is_ok());
        for (target, fits) in [
            ("sm_75", true),
            ("sm_80, debug", true),
            ("sm_90", false),
            ("sm_75a", false),
        ] {
            let text = format!(".version 8.0\n.target {target}\n.address_size 64\n");
            let found = ptx(text.as_bytes(), 80);
            assert!(
                found.is_ok() == fits && (fits || matches!(found, Err(ImageError::Target { .. }))),
                "{target}"
            );
        }
        assert_eq!(ptx(b"\x7fELF\x02", 80), Err(ImageError::Cubin));
        assert!(matches!(ptx(b"hello", 80), Err(ImageError::Unknown { .. })));
        assert!(matches!(ptx(b"", 80), Err(ImageError::Unknown { .. })));
    }
}
