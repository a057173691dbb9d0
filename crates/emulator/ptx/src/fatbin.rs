//! Images of modules: fat binaries as nvcc writes them, and plain PTX text.
//!
//! A fat binary is a header and a list of entries, each with a header of its own; the layout is what `nvcc --fatbin`
//! 13.0 writes. Of its entries only PTX can be run here.

use std::borrow::Cow;
use std::io::Read;

use thiserror::Error;

use crate::bytes::{u16_at, u32_at, u64_at};
use crate::lz4;

/// The first word of the wrapper that nvcc's host code points to.
pub const WRAPPER: u32 = 0x4662_43b1;
/// The first word of a fat binary.
pub const HEADER: u32 = 0xba55_ed50;
/// The size of a fat binary's header in bytes.
pub const HEADER_SIZE: usize = 16;

const PTX: u16 = 1;
const CUBIN: u16 = 2;
/// The bit in an entry's flags of code for one architecture alone, such as 90a.
const TIED: u64 = 0x10_0000;
/// Bits in an entry's flags that name its compression.
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

/// The reason why an image holds no PTX for a device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
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
        /// The byte behind its last one.
        end: u64,
        /// The size of the image in bytes.
        len: usize,
    },
    /// Compressed code that does not unpack to the size that its entry gives.
    #[error("the code for compute_{arch} is compressed and broken: {reason}")]
    Unpack {
        /// Its architecture, ten times the compute capability.
        arch: u32,
        /// The fault.
        reason: String,
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
        /// The architecture in the text's `.target`, with its suffix.
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
    flags: u64,
    /// Bytes of the payload without its padding, and the bytes that they unpack to, where it is compressed.
    sizes: (u64, u64),
    payload: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The code itself.
    fn code(&self) -> Result<Cow<'a, [u8]>, ImageError> {
        let arch = self.arch;
        if self.flags & (LZ4 | ZSTD) == 0 {
            return Ok(Cow::Borrowed(self.payload));
        }
        let broken = |reason: String| ImageError::Unpack { arch, reason };
        let (packed, whole) = self.sizes;
        let packed = usize::try_from(packed).ok().and_then(|n| self.payload.get(..n));
        let packed = packed.ok_or_else(|| broken("it is cut off".to_string()))?;
        if self.flags & LZ4 != 0 {
            let code = usize::try_from(whole).ok().and_then(|whole| lz4::unpack(packed, whole));
            return code
                .map(Cow::Owned)
                .ok_or_else(|| broken("it is no LZ4 block".to_string()));
        }
        let reader = ruzstd::decoding::StreamingDecoder::new(packed).map_err(|e| broken(e.to_string()))?;
        let mut code = Vec::new();
        let read = reader.take(whole.saturating_add(1)).read_to_end(&mut code);
        read.map_err(|e| broken(e.to_string()))?;
        if code.len() as u64 != whole {
            return Err(broken(format!("{} bytes came out, {whole} should", code.len())));
        }
        Ok(Cow::Owned(code))
    }
}

/// The PTX text of an image that suits a device best: the newest that does not ask for a newer device.
///
/// # Errors
/// [`ImageError`] if there is none.
pub fn ptx(image: &[u8], sm: u32) -> Result<Cow<'_, str>, ImageError> {
    if u32_at(image, 0) == Some(HEADER) {
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
        _ => Ok(Cow::Borrowed(text)),
    }
}

/// The machine code in an image that a real device would run; it is read for what it says about its kernels.
pub fn cubin(image: &[u8], sm: u32) -> Option<Cow<'_, [u8]>> {
    let entries = if u32_at(image, 0) == Some(HEADER) {
        entries(image).ok()?
    } else {
        return None;
    };
    let runs = |e: &&Entry<'_>| {
        let later = e.flags & TIED == 0 && e.arch <= sm && e.arch / 10 == sm / 10;
        e.kind == CUBIN && (e.arch == sm || later)
    };
    let best = entries.iter().filter(runs).max_by_key(|e| (e.arch, e.flags & TIED))?;
    best.code().ok()
}

/// The fat binaries that a host's object or archive carries.
pub fn inside(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Sections of fat binaries are aligned to 8 bytes, members of archives to 2.
    let starts = (0..bytes.len().saturating_sub(HEADER_SIZE)).step_by(2);
    starts.filter_map(|at| {
        let image = &bytes[at..];
        let version = u16_at(image, 4)? == 1 && usize::from(u16_at(image, 6)?) == HEADER_SIZE;
        let size = usize::try_from(u64_at(image, 8)?).ok()?.checked_add(HEADER_SIZE)?;
        (u32_at(image, 0)? == HEADER && version)
            .then(|| image.get(..size))
            .flatten()
    })
}

/// A fat binary that holds one PTX text.
pub fn wrap(ptx: &str, sm: u32) -> Vec<u8> {
    let size = (ptx.len() + 1).next_multiple_of(8);
    let mut image = HEADER.to_le_bytes().to_vec();
    image.extend([1, 0, HEADER_SIZE as u8, 0]);
    image.extend((size as u64 + 64).to_le_bytes());
    let mut entry = [0u8; 64];
    entry[..2].copy_from_slice(&PTX.to_le_bytes());
    entry[4..8].copy_from_slice(&64u32.to_le_bytes());
    entry[8..16].copy_from_slice(&(size as u64).to_le_bytes());
    entry[28..32].copy_from_slice(&sm.to_le_bytes());
    image.extend(entry);
    image.extend(ptx.as_bytes());
    image.resize(HEADER_SIZE + 64 + size, 0);
    image
}

fn choose<'a>(entries: &[Entry<'a>], sm: u32) -> Result<Cow<'a, str>, ImageError> {
    let tied = |e: &Entry<'a>| {
        let code = e.code().ok()?;
        target(text(&code).ok()?).map(|(_, tied, _)| tied)
    };
    let usable = |e: &&Entry<'a>| {
        let alone = || tied(e).unwrap_or(false);
        e.kind == PTX && e.arch <= sm && (e.arch == sm || !alone())
    };
    // What is for this device alone may use more of it than what runs on later ones too.
    let rank = |e: &&Entry<'a>| (e.arch, e.arch == sm && tied(e).unwrap_or(false));
    let Some(best) = entries.iter().filter(usable).max_by_key(rank) else {
        let of = |kind| entries.iter().filter(|e| e.kind == kind).map(|e| e.arch).collect();
        return Err(ImageError::NoPtx {
            sm,
            ptx: of(PTX),
            cubin: of(CUBIN),
        });
    };
    match best.code()? {
        Cow::Borrowed(code) => text(code).map(Cow::Borrowed),
        Cow::Owned(code) => text(&code).map(|t| Cow::Owned(t.to_string())),
    }
}

/// The parts of `.target sm_…`: the architecture, true if the text runs on that one alone (`90a`), and the name as written.
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
    let whole = u64_at(image, 8).and_then(|size| size.checked_add(HEADER_SIZE as u64));
    let end = whole
        .filter(|end| *end <= len as u64)
        .ok_or(cut(0, whole.unwrap_or(u64::MAX)))? as usize;
    let mut entries = Vec::new();
    let mut at = u16_at(image, 6).map_or(HEADER_SIZE, usize::from);
    while at < end {
        let n = entries.len();
        let bytes = image.get(at..end).ok_or(cut(n, at as u64))?;
        let fields = || {
            Some((
                u16_at(bytes, 0)?,
                u32_at(bytes, 4)?,
                u64_at(bytes, 8)?,
                u32_at(bytes, 28)?,
                u64_at(bytes, 40)?,
                (u64::from(u32_at(bytes, 16)?), u64_at(bytes, 56).unwrap_or(0)),
            ))
        };
        let (kind, header, size, arch, flags, sizes) = fields().ok_or(cut(n, at as u64 + 64))?;
        let stop = u64::from(header)
            .checked_add(size)
            .filter(|s| *s <= bytes.len() as u64 && *s >= 48);
        let stop = stop.ok_or(cut(n, (at as u64).saturating_add(size)))? as usize;
        let payload = &bytes[header as usize..stop];
        entries.push(Entry {
            kind,
            arch,
            flags,
            sizes,
            payload,
        });
        at += stop;
    }
    Ok(entries)
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
        assert_eq!(cubin(&image, 90).as_deref(), Some(&b"\x7fELF"[..]));
        assert_eq!(cubin(&image, 80), None);
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
    fn code_for_one_device_alone_is_chosen_there_and_nowhere_else() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let ptx_of = [of(80, ""), of(90, ""), of(90, "a")];
            let image = fatbin(&order.map(|n| ptx_of[n].clone()));
            for (sm, chosen) in [(80, "80"), (89, "80"), (90, "90a"), (100, "90")] {
                assert!(ptx(&image, sm).unwrap().ends_with(&format!("// {chosen}")), "{sm}");
            }
            let code = [
                entry(CUBIN, 80, 0x11, b"80"),
                entry(CUBIN, 90, 0x11, b"90"),
                entry(CUBIN, 90, 0x11 | TIED, b"90a"),
            ];
            let image = fatbin(&order.map(|n| code[n].clone()));
            for (sm, chosen) in [(80, Some("80")), (90, Some("90a")), (91, Some("90")), (100, None)] {
                let found = cubin(&image, sm);
                assert_eq!(found.as_deref(), chosen.map(str::as_bytes), "{sm}");
            }
        }
        let alone = fatbin(&[of(90, "a")]);
        assert!(ptx(&alone, 90).unwrap().ends_with("// 90a"));
        for sm in [80, 100, 120] {
            assert!(matches!(ptx(&alone, sm), Err(ImageError::NoPtx { .. })), "{sm}");
        }
    }

    /// An entry whose payload is `packed` and should unpack to `whole` bytes.
    fn compressed(kind: u16, flag: u64, packed: &[u8], whole: usize) -> Vec<u8> {
        let mut out = entry(kind, 80, 0x11 | flag, packed);
        out[16..20].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        out[56..64].copy_from_slice(&(whole as u64).to_le_bytes());
        // nvcc pads entries to a multiple of 8.
        out[8..16].copy_from_slice(&(packed.len() as u64 + 3).to_le_bytes());
        out.extend([0; 3]);
        out
    }

    #[test]
    fn zstd_is_unpacked() {
        let text = "\n.version 9.0\n.target sm_80\n".repeat(50);
        let packed = ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
        let image = fatbin(&[
            compressed(PTX, ZSTD, &packed, text.len()),
            compressed(CUBIN, ZSTD, &packed, text.len()),
        ]);
        assert_eq!(ptx(&image, 80).unwrap(), text);
        assert_eq!(ptx(&image, 90).unwrap(), text);
        assert_eq!(cubin(&image, 80).unwrap(), text.as_bytes());
        let wrong: [(&[u8], usize); 5] = [
            (&packed, text.len() - 1),
            (&packed, text.len() + 1),
            (&packed[..packed.len() - 9], text.len()),
            (b"(\xb5/\xfd", 4),
            (b"nothing", 7),
        ];
        for (packed, whole) in wrong {
            let image = fatbin(&[compressed(PTX, ZSTD, packed, whole)]);
            assert!(matches!(ptx(&image, 80), Err(ImageError::Unpack { arch: 80, .. })));
        }
    }

    #[test]
    fn lz4_is_unpacked() {
        // Four literals, then a match of 29 bytes that begins two bytes back, then a last literal.
        let packed = b"\x4f\n\n//\x02\x00\x0a\x10!";
        let text = format!("\n\n{}!", "//".repeat(15) + "/");
        let image = fatbin(&[compressed(PTX, LZ4, packed, text.len())]);
        assert_eq!(ptx(&image, 80).unwrap(), text);
        for (packed, whole) in [
            (&packed[..], text.len() + 1),
            (&packed[..8], text.len()),
            (b"\x1f\n\x05\x00\x00", 9),
        ] {
            let image = fatbin(&[compressed(PTX, LZ4, packed, whole)]);
            assert!(matches!(ptx(&image, 80), Err(ImageError::Unpack { arch: 80, .. })));
        }
    }

    #[test]
    fn what_is_wrapped_is_read_again() {
        let text = ".version 8.0\n.target sm_80\n";
        let image = wrap(text, 80);
        assert_eq!(ptx(&image, 80).unwrap(), text);
        let archive = [b"!<arch>\n".to_vec(), image.clone(), b"more".to_vec(), image.clone()].concat();
        assert_eq!(inside(&archive).collect::<Vec<_>>(), [&image[..], &image[..]]);
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
