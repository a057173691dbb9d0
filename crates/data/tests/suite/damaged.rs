//! Damaged files of every format: an error or data, and no panic on the way, caught or not.

use crate::common::{Folder, gzip, idx_u8, jpeg, png, png_chunk};
use kiln_core::philox::Key;
use kiln_data::csv::{Column, Csv, CsvOptions, LabelKind};
use kiln_data::idx::Idx;
use kiln_data::{BadRecords, Cifar, Dataset, ImageLimits, Sample, decode_image};
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cases of each format; more of them in `cargo xtask test --full`.
fn cases() -> u32 {
    if std::env::var_os("KILN_TEST_FULL").is_some() {
        20_000
    } else {
        1000
    }
}

/// Runs `work` and counts the panics inside of it, those that are caught on the way included.
fn panics(work: impl FnOnce() + Send) -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    const NAME: &str = "damaged";
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if std::thread::current().name() == Some(NAME) {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        before(info);
    }));
    std::thread::scope(|scope| {
        let started = std::thread::Builder::new().name(NAME.into()).spawn_scoped(scope, work);
        started.unwrap().join().unwrap();
    });
    COUNT.swap(0, Ordering::Relaxed)
}

/// Draws of one case.
struct Draws(Key, u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.1 += 1;
        self.0.below(self.1, bound.max(1) as u32) as usize
    }

    /// Values that break things more often than others do.
    fn byte(&mut self) -> u8 {
        match self.below(4) {
            0 => [0, 1, 2, 3, 4, 7, 8, 16, 0x7f, 0x80, 0xfe, 0xff][self.below(12)],
            _ => self.below(256) as u8,
        }
    }

    /// Changes, removes, doubles and inserts bytes.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len());
            let length = 1 + self.below(8).min(bytes.len().saturating_sub(at + 1));
            match self.below(8) {
                0 => drop(bytes.drain(at..(at + length).min(bytes.len()))),
                1 => {
                    let part = bytes[at..(at + length).min(bytes.len())].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, part);
                }
                2 => bytes.truncate(at),
                3 => {
                    let byte = self.byte();
                    bytes.insert(at, byte);
                }
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = self.byte();
                    }
                }
            }
        }
    }
}

/// Chunks of a PNG: changed inside, left out, doubled, moved, and their checksums made right again.
fn damage_png(draws: &mut Draws, bytes: &[u8]) -> Vec<u8> {
    let (mut chunks, mut at) = (Vec::new(), 8);
    while at + 12 <= bytes.len() {
        let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let kind: [u8; 4] = bytes[at + 4..at + 8].try_into().unwrap();
        chunks.push((kind, bytes[at + 8..at + 8 + length].to_vec()));
        at += 12 + length;
    }
    for _ in 0..1 + draws.below(3) {
        let i = draws.below(chunks.len());
        match draws.below(8) {
            0 => drop(chunks.remove(i)),
            1 => {
                let j = draws.below(chunks.len());
                chunks.swap(i, j);
            }
            2 => {
                let kinds = [
                    b"PLTE", b"tRNS", b"gAMA", b"acTL", b"fcTL", b"fdAT", b"bKGD", b"sBIT", b"cHRM", b"eXIf", b"IDAT",
                    b"IEND", b"sRGB", b"pHYs", b"iCCP", b"tEXt", b"zTXt", b"iTXt", b"cICP", b"mDCV", b"cLLI",
                ];
                let data = (0..draws.below(40)).map(|_| draws.byte()).collect();
                chunks.insert(i, (*kinds[draws.below(kinds.len())], data));
            }
            3 => chunks.insert(i, chunks[i].clone()),
            _ => {
                let mut data = std::mem::take(&mut chunks[i].1);
                if !data.is_empty() {
                    draws.damage(&mut data);
                }
                chunks[i].1 = data;
            }
        }
        if chunks.is_empty() {
            break;
        }
    }
    let chunks = chunks.iter().flat_map(|(kind, data)| png_chunk(kind, data));
    bytes[..8].iter().copied().chain(chunks).collect()
}

/// A PNG of every colour type and of low and high depths, with a palette and its transparency where the type has them.
fn pngs() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for (colour, depths) in [
        (0u8, &[1u8, 2, 4, 8, 16][..]),
        (2, &[8, 16]),
        (3, &[1, 2, 4, 8]),
        (4, &[8]),
        (6, &[8, 16]),
    ] {
        for &depth in depths {
            for interlaced in [0u8, 1] {
                let samples = match colour {
                    2 => 3,
                    4 => 2,
                    6 => 4,
                    _ => 1,
                };
                let rows = 9 * (1 + (7 * samples * usize::from(depth)).div_ceil(8));
                let image: Vec<u8> = (0..3 * rows)
                    .map(|i| if i % 5 == 0 { 0 } else { (i % 2) as u8 })
                    .collect();
                let mut header = [7u32.to_be_bytes(), 9u32.to_be_bytes()].concat();
                header.extend([depth, colour, 0, 0, interlaced]);
                let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                std::io::Write::write_all(&mut zlib, &image).unwrap();
                let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
                file.extend(png_chunk(b"IHDR", &header));
                if colour == 3 {
                    file.extend(png_chunk(b"PLTE", &[9; 6]));
                    file.extend(png_chunk(b"tRNS", &[128]));
                }
                file.extend(png_chunk(b"IDAT", &zlib.finish().unwrap()));
                file.extend(png_chunk(b"IEND", &[]));
                files.push(file);
            }
        }
    }
    files
}

#[test]
fn damaged_images_panic_nowhere() {
    let picture: Vec<u8> = (0..17 * 23 * 3).map(|i| (i * 3 % 251) as u8).collect();
    let mut files = pngs();
    files.push(png(23, 17, png::ColorType::Rgb, &picture));
    let chunked = files.len();
    for progressive in [false, true] {
        files.push(jpeg(23, 17, jpeg_encoder::ColorType::Rgb, &picture, progressive));
        files.push(jpeg(
            23,
            17,
            jpeg_encoder::ColorType::Luma,
            &picture[..391],
            progressive,
        ));
        files.push(jpeg(11, 8, jpeg_encoder::ColorType::Cmyk, &picture[..352], progressive));
    }
    let folder = Folder::new();
    let limits = ImageLimits {
        max_pixels: 1 << 16,
        max_file_bytes: 1 << 20,
    };
    let decoded = AtomicU64::new(0);
    let panics = panics(|| {
        for case in 0..cases() {
            let mut draws = Draws(Key::new(1, 0, case), 0);
            let which = draws.below(files.len());
            let mut bytes = files[which].clone();
            if which < chunked && draws.below(4) > 0 {
                bytes = damage_png(&mut draws, &bytes);
            } else {
                draws.damage(&mut bytes);
            }
            let path = folder.file("image", &bytes);
            let result = panic::catch_unwind(|| decode_image(&path, 1 + 2 * (case as usize % 2), &limits));
            decoded.fetch_add(u64::from(matches!(result, Ok(Ok(_)))), Ordering::Relaxed);
        }
    });
    assert_eq!(panics, 0);
    let decoded = decoded.into_inner();
    assert!(
        decoded > 0 && decoded < u64::from(cases()),
        "{decoded} of {} decoded",
        cases()
    );
}

/// A palette that is no whole number of colours, which the decoder does not expect.
#[test]
fn palettes_are_whole() {
    let file = pngs().into_iter().find(|f| f.windows(4).any(|w| w == b"PLTE")).unwrap();
    let at = file.windows(4).position(|w| w == b"PLTE").unwrap() - 4;
    for length in [0usize, 1, 2, 4, 5, 767, 769] {
        let palette = png_chunk(b"PLTE", &vec![7; length]);
        let bytes = [&file[..at], &palette, &file[at + 12 + 6..]].concat();
        let folder = Folder::new();
        let path = folder.file("palette.png", &bytes);
        let count = panics(|| {
            let error = decode_image(&path, 3, &ImageLimits::default()).unwrap_err();
            assert!(error.to_string().contains("palette.png"), "{error}");
        });
        assert_eq!(count, 0, "{length}");
    }
}

fn read_all(dataset: &dyn Dataset<Sample = Sample>) {
    for i in 0..dataset.len() {
        let _ = dataset.get(i);
    }
}

#[test]
fn damaged_tables_panic_nowhere() {
    let record = |label: u8| [vec![label], vec![7; 3072]].concat();
    let cifar_file = [record(1), record(9), record(3)].concat();
    let idx = idx_u8(&[3, 4, 2], &[5; 24]);
    let text = "a,b,\"label\"\n1,2,\"cat\"\n3,4,\"d\"\"og\"\n5,-6e3,\"two\nlines\"\n7,8,cat\n".repeat(3);
    let files = [cifar_file, idx.clone(), gzip(&idx), text.into_bytes()];
    let folder = Folder::new();
    let panics = panics(|| {
        for case in 0..cases() {
            let mut draws = Draws(Key::new(2, 0, case), 0);
            let mut bytes = files[draws.below(files.len())].clone();
            draws.damage(&mut bytes);
            let path = folder.file("test_batch.bin", &bytes);
            let bad = [BadRecords::Skip, BadRecords::Refuse][case as usize % 2];
            let mut options = CsvOptions::new(Column::Index(2), LabelKind::Name);
            (options.bad, options.header) = (bad, case % 3 > 0);
            if let Ok(csv) = Csv::open(&path, &options) {
                read_all(&csv);
            }
            let _ = Idx::read(&path);
            if let Ok(images) = Cifar::Ten.test_folder(folder.path(), bad) {
                read_all(&images);
            }
        }
    });
    assert_eq!(panics, 0);
}
