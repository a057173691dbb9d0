//! PNG and JPEG files, image folders, resizing.

use crate::common::{Folder, jpeg, png, png_chunk};
use jpeg_encoder::ColorType as Jpeg;
use kiln_data::{
    BadRecords, DataError, Dataset, Decoded, ImageFolder, ImageFolderOptions, ImageLimits, Place, decode_image,
    resize_bilinear,
};
use png::ColorType as Png;
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::{Duration, Instant};

fn decode(bytes: &[u8], channels: usize) -> Result<Decoded, DataError> {
    let folder = Folder::new();
    decode_image(folder.file("image", bytes), channels, &ImageLimits::default())
}

fn error(bytes: &[u8]) -> DataError {
    decode(bytes, 3).unwrap_err()
}

/// A smooth picture, so that JPEG keeps it nearly as it is.
fn smooth(h: usize, w: usize, c: usize) -> Vec<u8> {
    (0..h * w * c)
        .map(|i| (i / c % w * 3 + i / c / w * 2 + i % c * 40) as u8)
        .collect()
}

fn luma(p: &[u8]) -> f64 {
    0.299 * f64::from(p[0]) + 0.587 * f64::from(p[1]) + 0.114 * f64::from(p[2])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn png_round_trip(h in 1..9usize, w in 1..34usize, kind in 0..4usize, seed in any::<u8>()) {
        let (colour, c) = [(Png::Grayscale, 1), (Png::GrayscaleAlpha, 2), (Png::Rgb, 3), (Png::Rgba, 4)][kind];
        let data: Vec<u8> = (0..h * w * c).map(|i| (i * 37) as u8 ^ seed).collect();
        let bytes = png(w as u32, h as u32, colour, &data);
        let rgb = decode(&bytes, 3).unwrap();
        prop_assert_eq!((rgb.height, rgb.width, rgb.channels), (h, w, 3));
        let whole = decode(&bytes, 4).unwrap();
        for (i, (pixel, rgb)) in data.chunks_exact(c).zip(rgb.pixels.chunks_exact(3)).enumerate() {
            let alpha = if c % 2 == 0 { pixel[c - 1] } else { 255 };
            prop_assert_eq!(&whole.pixels[4 * i..4 * i + 3], rgb);
            prop_assert_eq!(whole.pixels[4 * i + 3], alpha);
        }
        let grey = decode(&bytes, 1).unwrap();
        for (i, pixel) in data.chunks_exact(c).enumerate() {
            let want = if c < 3 { [pixel[0]; 3] } else { [pixel[0], pixel[1], pixel[2]] };
            prop_assert_eq!(&rgb.pixels[i * 3..i * 3 + 3], &want);
            prop_assert!((f64::from(grey.pixels[i]) - luma(&want)).abs() <= 0.501);
        }
    }

    /// Between the ground and the colour, in proportion to alpha.
    #[test]
    fn transparent_pixels_show_the_ground(pixel in any::<[u8; 4]>(), ground in any::<[u8; 3]>()) {
        let image = Decoded { height: 1, width: 1, channels: 4, pixels: pixel.to_vec() };
        let on = image.on_ground(ground);
        prop_assert_eq!((on.channels, on.pixels.len()), (3, 3));
        for c in 0..3 {
            let share = f64::from(pixel[3]) / 255.0;
            let want = f64::from(pixel[c]) * share + f64::from(ground[c]) * (1.0 - share);
            prop_assert!((f64::from(on.pixels[c]) - want).abs() <= 0.501);
        }
        prop_assert_eq!(on.clone().on_ground([0; 3]), on);
    }

    /// Changed bytes give an image or an error, never a panic.
    #[test]
    fn noise_is_harmless(at in vec((0.0..1.0f64, any::<u8>()), 1..8), format in 0..3usize) {
        let picture = smooth(17, 23, 3);
        let mut bytes = match format {
            0 => png(23, 17, Png::Rgb, &picture),
            1 => jpeg(23, 17, Jpeg::Rgb, &picture, false),
            _ => jpeg(23, 17, Jpeg::Rgb, &picture, true),
        };
        for (place, value) in at {
            let i = (bytes.len() as f64 * place) as usize;
            bytes[i] = value;
        }
        let _ = decode(&bytes, 3);
    }

    /// Against the definition: an average weighted by a triangle as wide as the scale, in f64.
    #[test]
    fn resize_is_a_triangle_filter(h in 1..20usize, w in 1..20usize, th in 1..20usize, tw in 1..20usize, c in 1..4usize) {
        let pixels: Vec<u8> = (0..h * w * c).map(|i| (i * i * 31 + i * 7) as u8).collect();
        let image = Decoded { height: h, width: w, channels: c, pixels };
        let out = resize_bilinear(&image, th, tw).unwrap();
        let weight = |from: usize, to: usize, i: usize, j: usize| {
            let scale = from as f64 / to as f64;
            let distance = (j as f64 + 0.5 - (i as f64 + 0.5) * scale) / scale.max(1.0);
            (1.0 - distance.abs()).max(0.0)
        };
        for (i, &got) in out.pixels.iter().enumerate() {
            let (y, x, channel) = (i / c / tw, i / c % tw, i % c);
            let (mut sum, mut total) = (0.0, 0.0);
            for sy in 0..h {
                for sx in 0..w {
                    let k = weight(h, th, y, sy) * weight(w, tw, x, sx);
                    sum += k * f64::from(image.pixels[(sy * w + sx) * c + channel]);
                    total += k;
                }
            }
            prop_assert!((f64::from(got) - sum / total).abs() <= 0.501, "{} {}", got, sum / total);
        }
    }
}

#[test]
fn any_cut_is_an_error() {
    let picture = smooth(13, 21, 3);
    let mut files = vec![png(21, 13, Png::Rgb, &picture)];
    files.extend([false, true].map(|progressive| jpeg(21, 13, Jpeg::Rgb, &picture, progressive)));
    for bytes in files {
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut], 3).is_err(), "{cut} of {}", bytes.len());
        }
    }
}

#[test]
fn jpegs_are_close() {
    for progressive in [false, true] {
        let picture = smooth(29, 37, 3);
        let image = decode(&jpeg(37, 29, Jpeg::Rgb, &picture, progressive), 3).unwrap();
        assert_eq!((image.height, image.width), (29, 37));
        let far = image
            .pixels
            .iter()
            .zip(&picture)
            .map(|(a, b)| a.abs_diff(*b))
            .max()
            .unwrap();
        assert!(far <= 16, "{far}");
        let grey = smooth(29, 37, 1);
        let bytes = jpeg(37, 29, Jpeg::Luma, &grey, progressive);
        let one = decode(&bytes, 1).unwrap();
        assert!(one.pixels.iter().zip(&grey).all(|(a, b)| a.abs_diff(*b) <= 8));
        let three = decode(&bytes, 3).unwrap();
        assert!(three.pixels.chunks_exact(3).zip(&one.pixels).all(|(p, &g)| p == [g; 3]));
    }
}

/// Pictures of one colour are the smallest for their size: none of them is taken for a lie.
#[test]
fn the_emptiest_pictures_decode() {
    for progressive in [false, true] {
        let white = decode(&jpeg(1500, 1100, Jpeg::Luma, &vec![255; 1500 * 1100], progressive), 1).unwrap();
        assert!(white.pixels.iter().all(|&p| p == 255));
    }
    let black = decode(&png(1500, 1100, Png::Rgb, &vec![0; 1500 * 1100 * 3]), 3).unwrap();
    assert!(black.pixels.iter().all(|&p| p == 0));
}

/// A PNG of the given size with hardly any data.
fn hollow(width: u32, height: u32) -> Vec<u8> {
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, 2, 0, 0, 0]);
    let empty_zlib = [0x78, 0x9c, 3, 0, 0, 0, 0, 1];
    [
        b"\x89PNG\r\n\x1a\n".to_vec(),
        png_chunk(b"IHDR", &header),
        png_chunk(b"IDAT", &empty_zlib),
        png_chunk(b"IEND", &[]),
    ]
    .concat()
}

#[test]
fn bombs_are_refused_before_allocation() {
    let started = Instant::now();
    assert!(matches!(
        error(&hollow(60_000, 60_000)),
        DataError::TooLarge {
            place: Place::Byte(16),
            found: 3_600_000_000,
            limit: 67_108_864,
            ..
        }
    ));
    assert!(matches!(error(&hollow(u32::MAX, u32::MAX)), DataError::TooLarge { .. }));
    // Within the limit, yet more than so small a file can unpack to.
    assert!(matches!(
        error(&hollow(8000, 8000)),
        DataError::Truncated {
            expected: 192_000_000,
            ..
        }
    ));
    let mut big = jpeg(16, 16, Jpeg::Rgb, &smooth(16, 16, 3), false);
    let sof = big.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
    big[sof + 5..sof + 9].copy_from_slice(&[0xea, 0x60, 0xea, 0x60]);
    assert!(matches!(
        error(&big),
        DataError::TooLarge {
            found: 3_600_000_000,
            ..
        }
    ));
    big[sof + 5..sof + 9].copy_from_slice(&[0x1f, 0x40, 0x1f, 0x40]);
    assert!(matches!(
        error(&big),
        DataError::Truncated {
            expected: 64_000_000,
            ..
        }
    ));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());

    let folder = Folder::new();
    let path = folder.file("a.png", &png(4, 4, Png::Grayscale, &[0; 16]));
    let limits = ImageLimits {
        max_file_bytes: 20,
        ..Default::default()
    };
    assert!(matches!(
        decode_image(&path, 3, &limits),
        Err(DataError::TooLarge { place: Place::File, .. })
    ));
    let limits = ImageLimits {
        max_pixels: 15,
        ..Default::default()
    };
    assert!(matches!(
        decode_image(&path, 3, &limits),
        Err(DataError::TooLarge {
            found: 16,
            limit: 15,
            ..
        })
    ));
}

#[test]
fn broken_images() {
    assert!(matches!(error(b""), DataError::Magic { found, .. } if found.is_empty()));
    assert!(matches!(error(b"GIF89a.."), DataError::Magic { .. }));
    assert!(matches!(error(&hollow(2, 2)), DataError::Decode { format: "PNG", .. }));
    assert!(matches!(error(&hollow(0, 2)), DataError::Decode { format: "PNG", .. }));
    let mut good = png(5, 5, Png::Rgb, &smooth(5, 5, 3));
    assert!(matches!(
        error(&good[..20]),
        DataError::Truncated {
            found: 12,
            expected: 25,
            ..
        }
    ));
    good[45] ^= 0x55;
    assert!(matches!(error(&good), DataError::Decode { format: "PNG", .. }));
    assert!(matches!(
        error(&[0xff, 0xd8, 0xff, 0xe0]),
        DataError::Decode { format: "JPEG", .. }
    ));
    // A scan that names a table nobody defined: the place is the decoder's.
    let mut scan = jpeg(16, 16, Jpeg::Rgb, &smooth(16, 16, 3), false);
    let sos = scan.windows(2).position(|w| w == [0xff, 0xda]).unwrap();
    scan[sos + 6] = 0x33;
    let error = error(&scan);
    assert!(
        matches!(&error, DataError::Decode { format: "JPEG", place: Place::Byte(at), .. } if *at > sos as u64),
        "{error}"
    );
    assert!(matches!(
        decode(&good, 2),
        Err(DataError::InvalidArgument {
            argument: "channels",
            ..
        })
    ));
}

/// Two classes, written in an order that is not theirs.
fn pets() -> Folder {
    let folder = Folder::new();
    folder.file("dog/b.JPEG", &jpeg(16, 8, Jpeg::Rgb, &smooth(8, 16, 3), false));
    folder.file("dog/a.png", &png(4, 6, Png::Grayscale, &smooth(6, 4, 1)));
    folder.file("cat/1.png", &png(3, 3, Png::Rgb, &smooth(3, 3, 3)));
    folder.file("cat/notes.txt", b"not an image");
    folder.file(".cache/x.png", b"");
    folder.file("README", b"not a class");
    folder
}

#[test]
fn folders_are_read_in_sorted_order() {
    let folder = pets();
    let images = ImageFolder::open(folder.path(), ImageFolderOptions::default()).unwrap();
    assert_eq!(images.class_names(), ["cat", "dog"]);
    let seen: Vec<_> = (0..images.len())
        .map(|i| {
            let sample = images.get(i).unwrap();
            (
                images.path(i).unwrap().file_name().unwrap().to_str().unwrap(),
                sample.label,
                sample.shape.to_vec(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("1.png", 0, vec![3, 3, 3]),
            ("a.png", 1, vec![6, 4, 3]),
            ("b.JPEG", 1, vec![8, 16, 3])
        ]
    );
    let cat = images.get(0).unwrap();
    assert!(cat.input.iter().zip(smooth(3, 3, 3)).all(|(&a, b)| a == f32::from(b)));
    assert_eq!(images.shape(), None);

    let options = ImageFolderOptions {
        resize: Some((5, 7)),
        channels: 1,
        ..Default::default()
    };
    let images = ImageFolder::open(folder.path(), options).unwrap();
    assert_eq!(images.shape().unwrap().dims(), [5, 7, 1]);
    assert!((0..3).all(|i| images.get(i).unwrap().shape.dims() == [5, 7, 1]));
}

#[test]
fn bad_images_are_named_or_skipped() {
    let folder = pets();
    let cut = png(9, 9, Png::Rgb, &smooth(9, 9, 3));
    let bad = folder.file("cat/0.png", &cut[..cut.len() / 2]);
    folder.file("dog/bomb.png", &hollow(60_000, 60_000));
    let refuse = ImageFolder::open(folder.path(), ImageFolderOptions::default()).unwrap();
    assert_eq!(refuse.len(), 5);
    let error = refuse.get(0).unwrap_err();
    assert!(
        matches!(&error, DataError::Decode { path, format: "PNG", .. } if *path == bad),
        "{error}"
    );

    let skip = ImageFolderOptions {
        bad: BadRecords::Skip,
        ..Default::default()
    };
    let images = ImageFolder::open(folder.path(), skip.clone()).unwrap();
    assert_eq!(images.len(), 3);
    let skipped = images.skipped().unwrap();
    assert_eq!(skipped.count(), 2);
    assert!(skipped.reasons()[0].to_string().contains("0.png"));
    assert!(matches!(skipped.reasons()[1], DataError::TooLarge { .. }));

    // A class keeps its number when none of its images decodes; a folder without images is an error.
    std::fs::remove_file(folder.path().join("cat/1.png")).unwrap();
    let images = ImageFolder::open(folder.path(), skip.clone()).unwrap();
    assert_eq!((images.classes(), images.get(0).unwrap().label), (Some(2), 1));
    std::fs::remove_file(&bad).unwrap();
    let error = ImageFolder::open(folder.path(), skip.clone()).unwrap_err();
    assert!(matches!(&error, DataError::Empty { path, .. } if path.ends_with("cat")));
    let error = ImageFolder::open(Folder::new().path(), skip).unwrap_err();
    assert!(matches!(error, DataError::Empty { .. }));
}

#[test]
fn options_are_checked() {
    let folder = pets();
    for options in [
        ImageFolderOptions {
            channels: 4,
            ..Default::default()
        },
        ImageFolderOptions {
            resize: Some((0, 4)),
            ..Default::default()
        },
    ] {
        let error = ImageFolder::open(folder.path(), options).unwrap_err();
        assert!(matches!(error, DataError::InvalidArgument { .. }));
    }
    let huge = ImageFolderOptions {
        resize: Some((usize::MAX, usize::MAX)),
        ..Default::default()
    };
    assert!(matches!(
        ImageFolder::open(folder.path(), huge),
        Err(DataError::Tensor(_))
    ));
    let missing = ImageFolder::open(folder.path().join("none"), ImageFolderOptions::default());
    assert!(matches!(missing, Err(DataError::Io { action: "list", .. })));
    let lying = Decoded {
        height: 4,
        width: 4,
        channels: 3,
        pixels: vec![0; 5],
    };
    assert!(matches!(
        resize_bilinear(&lying, 2, 2),
        Err(DataError::InvalidArgument { .. })
    ));
    let pixel = Decoded {
        height: 1,
        width: 1,
        channels: 1,
        pixels: vec![7],
    };
    assert!(matches!(
        resize_bilinear(&pixel, 0, 2),
        Err(DataError::InvalidArgument { .. })
    ));
    assert!(resize_bilinear(&pixel, usize::MAX, usize::MAX).is_err());
    assert_eq!(resize_bilinear(&pixel, 3, 2).unwrap().pixels, [7; 6]);
}
