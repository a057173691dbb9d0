//! Targets that read files: weights and datasets.

use super::scratch::Scratch;
use crate::Bytes;
use kiln_cpu::Cpu;
use kiln_data::{
    BadRecords, Cifar, ClipOptions, Dataset, ImageFolder, ImageFolderOptions, ImageLimits, TextFile, decode_clip,
    decode_image,
};
use kiln_data::{csv as csv_file, idx as idx_file};
use kiln_nn::weights;

pub(super) fn weights(input: &[u8]) {
    let _ = weights::decode(input, &Cpu::new());
}

pub(super) fn weight_seeds() -> Vec<Vec<u8>> {
    let file = |header: &str, data: &[u8]| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    };
    vec![
        file("{}", &[]),
        file(
            r#"{"a.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}}"#,
            &[7; 26],
        ),
        file(
            r#"{"__metadata__":{"format":"pt","model":"lenet"},"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"x":{"dtype":"U8","shape":[3,1],"data_offsets":[8,11]}}"#,
            &[1; 11],
        ),
    ]
}

/// The treatment of bad records, chosen by the next byte.
pub(super) fn bad(choices: &mut Bytes<'_>) -> BadRecords {
    choices.one_of(&[BadRecords::Refuse, BadRecords::Skip])
}

pub(super) fn idx(input: &[u8]) {
    let _ = idx_file::Idx::from_bytes("fuzz.idx", input);
}

pub(super) fn idx_seeds() -> Vec<Vec<u8>> {
    let mut images = vec![0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];
    images.extend(0..24);
    let labels = vec![0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 9];
    let floats = vec![0, 0, 13, 1, 0, 0, 0, 1, 0x3f, 0x80, 0, 0];
    // The labels as a stored (uncompressed) block, within gzip's header and trailer.
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1, 11, 0, 0xf4, 0xff];
    packed.extend(&labels);
    packed.extend([0xba, 0x2a, 0x4a, 0x0e, 11, 0, 0, 0]);
    vec![images, labels, floats, packed]
}

pub(super) fn cifar(input: &[u8]) {
    let mut choices = Bytes::new(input);
    let bad = bad(&mut choices);
    let Some(scratch) = Scratch::new() else { return };
    if scratch.file("test_batch.bin", input).is_some() {
        let _ = Cifar::Ten.test_folder(scratch.path(), bad);
    }
    if scratch.file("test.bin", input).is_some() {
        let _ = Cifar::Hundred.test_folder(scratch.path(), bad);
    }
}

pub(super) fn cifar_seeds() -> Vec<Vec<u8>> {
    vec![vec![3; 2 * 3073], vec![0; 3073], vec![1; 3072]]
}

pub(super) fn csv(input: &[u8]) {
    let mut choices = Bytes::new(input);
    let kinds = [
        csv_file::LabelKind::Class { classes: 3 },
        csv_file::LabelKind::Name,
        csv_file::LabelKind::Number,
    ];
    let kind = kinds[choices.below(kinds.len())];
    let mut options = match choices.below(2) {
        0 => csv_file::CsvOptions::new(choices.below(4), kind),
        _ => csv_file::CsvOptions::new("label", kind),
    };
    options.bad = bad(&mut choices);
    options.header = choices.below(2) == 0;
    let Some(scratch) = Scratch::new() else { return };
    if let Some(path) = scratch.file("a.csv", input.get(4..).unwrap_or_default()) {
        let _ = csv_file::Csv::open(path, &options);
    }
}

pub(super) fn csv_seeds() -> Vec<Vec<u8>> {
    [
        &b"\x00\x00\x00\x01a,b,label\n1,2,0\n3,4.5,2\n"[..],
        b"\x01\x01\x01\x00a,label\n\"x\"\"y\",one\r\n2,two\n",
        b"\x02\x01\x00\x00label,a,b\n0.5,1e300,-1\n\n,,\n",
        b"\x01\x01\x01\x00label\n\"open,1\n2\n3\n",
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}

pub(super) fn text(input: &[u8]) {
    let mut choices = Bytes::new(input);
    let context = choices.below(6);
    let Ok(file) = TextFile::from_bytes("fuzz.txt", input.get(1..).unwrap_or_default().to_vec()) else {
        return;
    };
    let vocabulary = file.vocabulary();
    let Ok(split) = file.split(&vocabulary, context) else {
        return;
    };
    for part in [&split.train, &split.test] {
        for i in 0..=part.len() {
            let _ = part.get(i);
        }
    }
}

pub(super) fn text_seeds() -> Vec<Vec<u8>> {
    [
        "\u{2}to be, or not to be\n",
        "\u{1}\u{feff}one\r\ntwo\r\n",
        "\u{5}naïve β \u{1f600}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(super) fn image(input: &[u8]) {
    let limits = ImageLimits {
        max_pixels: 1 << 16,
        max_file_bytes: 1 << 17,
    };
    let Some(scratch) = Scratch::new() else { return };
    let Some(path) = scratch.file("a.png", input) else {
        return;
    };
    for channels in [1, 3] {
        let _ = decode_image(&path, channels, &limits);
    }
}

pub(super) fn clip(input: &[u8]) {
    let options = ClipOptions {
        frames: 1,
        size: (3, 2),
        channels: 3,
        limits: ImageLimits {
            max_pixels: 1 << 12,
            max_file_bytes: 1 << 17,
        },
    };
    let Some(scratch) = Scratch::new() else { return };
    let Some(path) = scratch.file("a.gif", input) else {
        return;
    };
    if let Ok(clip) = decode_clip(&path, &options) {
        assert_eq!(clip.pixels.len(), clip.frames * 3 * 2 * 3);
    }
}

pub(super) fn clip_seeds() -> Vec<Vec<u8>> {
    // Two frames of one pixel on a canvas of 2×1, the second of them transparent and cleared behind it.
    let gif = b"GIF89a\x02\0\x01\0\x80\0\0\0\0\0\xff\xff\xff\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0\
                \x21\xf9\x04\x09\0\0\x01\0\x2c\x01\0\0\0\x01\0\x01\0\0\x02\x02\x4c\x01\0\x3b";
    vec![
        gif.to_vec(),
        b"YUV4MPEG2 W3 H2 F25:1 C420jpeg\nFRAME\nabcdefuuvvFRAME Ip\nghijkluuvv".to_vec(),
        b"YUV4MPEG2 H1 W2 Cmono XCOLORRANGE=FULL\nFRAME\nab".to_vec(),
    ]
}

/// The CRC-32 of a PNG chunk.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &b| {
        (0..8).fold(crc ^ u32::from(b), |c, _| {
            if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 }
        })
    })
}

/// A PNG file of these chunks.
fn png(chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in chunks {
        let named = [&kind[..], data].concat();
        file.extend((data.len() as u32).to_be_bytes());
        file.extend(&named);
        file.extend(crc(&named).to_be_bytes());
    }
    file
}

/// A zlib stream that holds `raw` in a stored block.
fn stored(raw: &[u8]) -> Vec<u8> {
    let len = raw.len() as u16;
    let mut out = vec![0x78, 1, 1];
    out.extend(len.to_le_bytes());
    out.extend((!len).to_le_bytes());
    out.extend(raw);
    let (a, b) = raw.iter().fold((1u32, 0u32), |(a, b), &v| {
        let a = (a + u32::from(v)) % 65521;
        (a, (b + a) % 65521)
    });
    out.extend((b << 16 | a).to_be_bytes());
    out
}

pub(super) fn image_seeds() -> Vec<Vec<u8>> {
    let head = |width: u32, height: u32, depth: u8, colour: u8| {
        let mut data = [width, height].map(u32::to_be_bytes).concat();
        data.extend([depth, colour, 0, 0, 0]);
        data
    };
    let grey = [
        (b"IHDR", head(2, 2, 8, 0)),
        (b"IDAT", stored(&[0, 1, 2, 0, 3, 4])),
        (b"IEND", vec![]),
    ];
    let palette = [
        (b"IHDR", head(2, 1, 1, 3)),
        (b"PLTE", vec![1, 2, 3, 4, 5, 6]),
        (b"tRNS", vec![0]),
        (b"IDAT", stored(&[0, 0x40])),
        (b"IEND", vec![]),
    ];
    let broken = [
        (b"IHDR", head(2, 1, 1, 3)),
        (b"PLTE", vec![1, 2, 3, 4]),
        (b"IDAT", stored(&[0, 0x40])),
        (b"IEND", vec![]),
    ];
    let jpeg =
        b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xc0\0\x0b\x08\0\x08\0\x08\x01\x01\x11\0\xff\xd9";
    vec![png(&grey), png(&palette), png(&broken), jpeg.to_vec()]
}

pub(super) fn image_folder(input: &[u8]) {
    let mut choices = Bytes::new(input);
    let bad = bad(&mut choices);
    let Some(scratch) = Scratch::new() else { return };
    let seeds = image_seeds();
    let mut names = input.get(1..).unwrap_or_default().split(|&b| b == b'\n');
    for (i, name) in names.by_ref().take(16).enumerate() {
        // The path must stay within the scratch folder.
        let name = String::from_utf8_lossy(name).replace('\0', "_");
        let parts: Vec<&str> = name
            .split('/')
            .filter(|part| !matches!(*part, "" | "." | ".."))
            .collect();
        let path = scratch.path().join(parts.join("/"));
        match path.parent() {
            Some(parent) if name.contains('.') => {
                let _ = std::fs::create_dir_all(parent);
                let _ = std::fs::write(&path, &seeds[i % seeds.len()]);
            }
            _ => drop(std::fs::create_dir_all(&path)),
        }
    }
    let options = ImageFolderOptions {
        bad,
        ..Default::default()
    };
    if let Ok(folder) = ImageFolder::open(scratch.path(), options) {
        for i in 0..folder.len().min(4) {
            let _ = folder.path(i);
        }
    }
}

pub(super) fn image_folder_seeds() -> Vec<Vec<u8>> {
    [
        &b"\0cat/a.png\ncat/b.PNG\ndog/deep/c.png\n"[..],
        b"\x01a/x.png\nb/y.jpg\nempty\n",
        b"\0\xffa\x1b[2J/z.jpeg\n",
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}
