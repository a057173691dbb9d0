//! Clips: folders of frames, GIF and Y4M files, sound and broken; moving sprites; and the transforms of clips.

use crate::common::{Folder, gzip, png};
use gif::{DisposalMethod, Encoder, Frame};
use kiln_core::Shape;
use kiln_data::{
    BadRecords, CLIPS, ClipOptions, Compose, Crop, DataKind, Dataset, Draw, Facts, FileOptions, Flip, Frames,
    ImageLimits, MadeUp, Opened, Request, Sample, Transform, decode_clip,
};
use proptest::prelude::*;
use std::borrow::Cow;
use std::path::Path;

fn request<'a>(path: Option<&'a Path>, shape: &'a [usize]) -> Request<'a> {
    Request {
        path,
        shape,
        sides: &[],
        own_size: false,
        target: None,
        tokenizer: None,
        bad: BadRecords::Refuse,
        facts: None,
    }
}

/// Grey frames of 2×2, at least two.
const OPTIONS: ClipOptions = ClipOptions {
    frames: 2,
    size: (2, 2),
    channels: 1,
    limits: ImageLimits {
        max_pixels: 1 << 12,
        max_file_bytes: 1 << 16,
    },
};

fn shades(path: &Path) -> Vec<u8> {
    let clip = decode_clip(path, &OPTIONS).unwrap();
    assert_eq!((clip.height, clip.width, clip.channels), (2, 2, 1));
    clip.pixels.chunks_exact(4).map(|frame| frame[0]).collect()
}

fn refused(path: &Path) -> String {
    decode_clip(path, &OPTIONS).unwrap_err().to_string()
}

/// A grey image of 2×2.
fn grey(shade: u8) -> Vec<u8> {
    png(2, 2, png::ColorType::Grayscale, &[shade; 4])
}

#[test]
fn a_folder_of_frames_is_read_in_the_order_of_its_numbers() {
    let dir = Folder::new();
    for number in 0..12u8 {
        dir.file(&format!("clip/frame{number}.png"), &grey(10 * number));
    }
    dir.file("clip/notes.txt", b"no frame");
    let clip = dir.path().join("clip");
    assert_eq!(shades(&clip), (0..12).map(|n| 10 * n).collect::<Vec<u8>>());
    // More than sixteen are thinned, and what is left out is not decoded.
    for number in 12..20u8 {
        let bytes = if number % 2 == 0 {
            grey(10 * number)
        } else {
            b"broken".to_vec()
        };
        dir.file(&format!("clip/frame{number}.png"), &bytes);
    }
    assert_eq!(shades(&clip), (0..20).step_by(2).map(|n| 10 * n).collect::<Vec<u8>>());
    dir.file("clip/frame18.png", b"broken");
    assert!(refused(&clip).contains("frame18.png"));
    dir.file("short/1.png", &grey(0));
    let told = refused(&dir.path().join("short"));
    assert!(
        told.contains("short: number of frames") && told.contains("found 1, expected 2 or more"),
        "{told}"
    );
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    assert!(refused(&dir.path().join("empty")).contains("a frame of the clip"));
}

/// A frame of one colour of the palette black, white, red.
fn frame(colour: u8, [left, top, width, height]: [u16; 4], dispose: DisposalMethod) -> Frame<'static> {
    Frame {
        left,
        top,
        width,
        height,
        dispose,
        buffer: Cow::Owned(vec![colour; usize::from(width * height)]),
        ..Frame::default()
    }
}

fn gif_of(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 2, 2, &[0, 0, 0, 255, 255, 255, 255, 0, 0]).unwrap();
    for frame in frames {
        encoder.write_frame(frame).unwrap();
    }
    drop(encoder);
    file
}

#[test]
fn frames_of_a_gif_are_what_is_seen_when_it_plays() {
    use DisposalMethod::{Background, Keep, Previous};
    let dir = Folder::new();
    let (all, first, last) = ([0, 0, 2, 2], [0, 0, 1, 1], [1, 1, 1, 1]);
    let see_through = Frame {
        transparent: Some(1),
        ..frame(1, all, Keep)
    };
    let frames = [
        frame(0, all, Keep),
        frame(1, first, Previous),
        frame(1, last, Background),
        see_through,
        frame(2, first, Keep),
    ];
    let path = dir.file("a.gif", &gif_of(&frames));
    let clip = decode_clip(&path, &OPTIONS).unwrap();
    let red = 76;
    let expected = [
        [0, 0, 0, 0],
        [255, 0, 0, 0],
        [0, 0, 0, 255],
        // What was cleared is white, as the ground is.
        [0, 0, 0, 255],
        [red, 0, 0, 255],
    ];
    assert_eq!(clip.pixels, expected.concat());
    let told = refused(&dir.file("one.gif", &gif_of(&frames[..1])));
    assert!(told.contains("one.gif: number of frames"), "{told}");
    let whole = gif_of(&frames);
    for end in 0..whole.len() {
        let cut = dir.file("cut.gif", &whole[..end]);
        // Frames that are there may do; nothing panics, and errors name the file.
        if let Err(error) = decode_clip(&cut, &OPTIONS) {
            assert!(error.to_string().contains("cut.gif"), "{error}");
        }
    }
    let mut large = whole;
    large[6..10].copy_from_slice(&[255; 4]);
    assert!(refused(&dir.file("large.gif", &large)).contains("number of pixels"));
}

/// A Y4M file of frames of these planes.
fn y4m(fields: &str, frames: &[&[u8]]) -> Vec<u8> {
    let mut file = format!("YUV4MPEG2 {fields}\n").into_bytes();
    for planes in frames {
        file.extend(b"FRAME Ip\n");
        file.extend(*planes);
    }
    file
}

#[test]
fn y4m_is_read_in_all_layouts_of_its_chroma() {
    let dir = Folder::new();
    let (black, white) = ([16, 16, 16, 16], [235, 235, 235, 235]);
    let of = |planes: [u8; 4], chroma: usize| [&planes[..], &vec![128; chroma]].concat();
    for (field, chroma) in [
        ("C420jpeg", 2),
        ("C420", 2),
        ("", 2),
        ("C422", 4),
        ("C444", 8),
        ("Cmono", 0),
    ] {
        let fields = format!("W2 H2 F25:1 Ip A1:1 {field}");
        let file = y4m(&fields, &[&of(black, chroma), &of(white, chroma)]);
        assert_eq!(shades(&dir.file("a.y4m", &file)), [0, 255], "{field}");
        assert_eq!(shades(&dir.file("a.y4m.gz", &gzip(&file))), [0, 255], "{field}");
    }
    let full = y4m("W2 H2 Cmono XCOLORRANGE=FULL", &[&[16; 4], &[200; 4]]);
    assert_eq!(shades(&dir.file("full.y4m", &full)), [16, 200]);
    // A red frame of 3×1, whose chroma has two columns, and a blue one.
    let (red, blue) = ([81, 81, 81, 90, 90, 240, 240], [41, 41, 41, 240, 240, 110, 110]);
    let file = dir.file("colours.y4m", &y4m("W3 H1 C420", &[&red, &blue]));
    let options = ClipOptions {
        size: (1, 3),
        channels: 3,
        ..OPTIONS
    };
    let clip = decode_clip(&file, &options).unwrap();
    let expected = [[254, 0, 0]; 3].into_iter().chain([[0, 0, 255]; 3]);
    for (found, expected) in clip.pixels.chunks_exact(3).zip(expected) {
        assert!(
            found.iter().zip(expected).all(|(&a, b)| a.abs_diff(b) <= 1),
            "{found:?}, expected {expected:?}"
        );
    }
}

#[test]
fn what_is_wrong_in_a_clip_is_named() {
    let dir = Folder::new();
    let grey: &[u8] = &[0; 4];
    for (fields, part) in [
        ("H2 Cmono", "fields W and H"),
        ("W2 H0 Cmono", "height at line 1: found 0"),
        ("W2 H2 C420p10", "chroma at line 1: found 420p10"),
        ("W2 H99999999 Cmono", "height"),
        ("W60000 H2 Cmono", "number of pixels"),
    ] {
        let told = refused(&dir.file("a.y4m", &y4m(fields, &[grey, grey])));
        assert!(told.contains("a.y4m: ") && told.contains(part), "{fields}: {told}");
    }
    let mut file = y4m("W2 H2 Cmono", &[grey, grey]);
    let cut = dir.file("cut.y4m", &file[..file.len() - 1]);
    assert!(refused(&cut).contains("truncated"));
    file.extend(b"FRAMES\n");
    assert!(decode_clip(dir.file("b.y4m", &file), &OPTIONS).is_err());
    let other = y4m("W2 H2 Cmono", &[grey]);
    let told = refused(&dir.file("c.y4m", &[&other[..], b"frame\n"].concat()));
    assert!(told.contains("`frame` where a frame begins"), "{told}");
    let long = y4m(&"X".repeat(5000), &[]);
    assert!(refused(&dir.file("long.y4m", &long)).contains("more than 1024 bytes"));
    assert!(refused(&dir.file("a.gif", b"no clip")).contains("GIF"));
    assert!(refused(&dir.path().join("none.gif")).contains("none.gif"));
    for options in [
        ClipOptions { frames: 0, ..OPTIONS },
        ClipOptions { channels: 4, ..OPTIONS },
    ] {
        assert!(decode_clip(&cut, &options).is_err());
    }
}

#[test]
fn a_folder_for_each_class_has_clips_of_all_kinds() {
    let dir = Folder::new();
    let film = |shade: u8| y4m("W2 H2 Cmono", &[&[shade; 4], &[235; 4], &[235; 4]]);
    for (class, shade) in [("run", 16), ("jump", 235)] {
        for part in ["train", "val"] {
            dir.file(&format!("{part}/{class}/a.y4m"), &film(shade));
            dir.file(&format!("{part}/{class}/b/2.png"), &grey(1));
            dir.file(&format!("{part}/{class}/b/1.png"), &grey(0));
            dir.file(&format!("{part}/{class}/readme.txt"), b"no clip");
        }
    }
    let card = DataKind::ClipFolder.card();
    assert!((card.recognises)(dir.path()) && !(card.recognises)(&dir.path().join("train/run/b")));
    let shape = [2, 2, 2, 1];
    let Opened { train, test, facts } = (card.open)(&request(Some(dir.path()), &shape)).unwrap();
    assert_eq!(facts.names(Facts::CLASSES).unwrap(), ["jump", "run"]);
    assert_eq!((train.len(), test.len()), (4, 4));
    let sample = train.get(2).unwrap();
    assert_eq!((sample.label, sample.shape.dims()), (1, &[3, 2, 2, 1][..]));
    assert_eq!(sample.input, [[0.0; 4], [255.0; 4], [255.0; 4]].concat());
    assert_eq!(train.get(3).unwrap().input[..5], [0.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!((card.held_back)(&request(Some(dir.path()), &shape)).unwrap().len(), 4);
    // Without train/ a tenth is held back.
    let flat = dir.path().join("train");
    let Opened { train, test, .. } = (card.open)(&request(Some(&flat), &shape)).unwrap();
    assert_eq!((train.len(), test.len()), (3, 1));

    let files = FileOptions {
        shape: &shape,
        own_size: false,
        facts: &facts,
        tokenizer: None,
        invert: None,
    };
    let read = |path: &str| (card.file.unwrap())(&dir.path().join(path), &files);
    assert_eq!(read("val/run/a.y4m").unwrap()[0].shape.dims(), [3, 2, 2, 1]);
    assert_eq!(read("val/run/b").unwrap()[0].shape.dims(), [2, 2, 2, 1]);

    // A clip that is too short is an error, or is left out.
    dir.file("train/run/c/1.png", &grey(0));
    let three = request(Some(dir.path()), &shape);
    let error = (card.open)(&three).unwrap().train.get(4).unwrap_err().to_string();
    assert!(error.contains("run/c: number of frames"), "{error}");
    let skipping = Request {
        bad: BadRecords::Skip,
        ..three
    };
    let left = (card.open)(&skipping).unwrap().train;
    assert_eq!((left.len(), left.skipped().unwrap().count()), (4, 1));
    // With none left, the error says why.
    let longer = Request {
        shape: &[9, 2, 2, 1],
        ..skipping
    };
    let error = (card.open)(&longer).unwrap_err().to_string();
    for part in [
        "no records are left without 5 bad ones",
        "number of frames",
        "9 or more",
    ] {
        assert!(error.contains(part), "{error}");
    }
    dir.file("val/walk/a.y4m", &film(16));
    let error = (card.open)(&three).unwrap_err().to_string();
    assert!(error.contains("jump, run, walk"), "{error}");
    std::fs::create_dir(dir.path().join("train/walk")).unwrap();
    let error = (card.open)(&three).unwrap_err().to_string();
    assert!(error.contains("train/walk: no records"), "{error}");
    assert!((card.open)(&request(None, &shape)).is_err());
    assert!((card.open)(&request(Some(dir.path()), &[2, 2, 1])).is_err());
}

#[test]
fn moving_sprites_are_the_same_each_time_and_move_as_their_class_says() {
    let card = DataKind::Motions.card();
    let shape = [8, 32, 32, 3];
    let Opened { train, test, facts } = (card.open)(&request(None, &shape)).unwrap();
    assert_eq!((train.len(), test.len()), (1600, 400));
    assert_eq!(facts.names(Facts::CLASSES).unwrap(), card.classes);
    let (again, other) = (train.get(5).unwrap(), test.get(5).unwrap());
    assert_eq!(train.get(5).unwrap(), again);
    assert_ne!(other.input, again.input);
    assert_eq!(again.shape.dims(), [12, 32, 32, 3]);
    assert!(
        again
            .input
            .iter()
            .all(|&pixel| (0.0..=255.0).contains(&pixel) && pixel.fract() == 0.0)
    );
    for index in 0..32 {
        let clip = train.get(index).unwrap();
        assert_eq!(clip.label as usize, index % 8);
        // The centre of what differs from the ground, which is what most frames show at a place.
        let frame = 32 * 32 * 3;
        let ground: Vec<f32> = (0..frame)
            .map(|at| {
                let mut values: Vec<f32> = clip.input.iter().skip(at).step_by(frame).copied().collect();
                values.sort_by(f32::total_cmp);
                values[6]
            })
            .collect();
        let seen = |number: usize| {
            let (mut sum, mut y, mut x) = (0.0, 0.0, 0.0);
            for (at, (pixel, ground)) in clip.input[number * frame..].iter().zip(&ground).enumerate() {
                let ink = (pixel - ground).abs();
                sum += ink;
                y += ink * (at / 96) as f32;
                x += ink * (at / 3 % 32) as f32;
            }
            (y / sum, x / sum)
        };
        let (first, last) = (seen(0), seen(11));
        let moved = (last.0 - first.0, last.1 - first.1);
        match clip.label {
            0 => assert!(moved.1 < -3.0, "{index}: {moved:?}"),
            1 => assert!(moved.1 > 3.0, "{index}: {moved:?}"),
            2 => assert!(moved.0 < -3.0, "{index}: {moved:?}"),
            3 => assert!(moved.0 > 3.0, "{index}: {moved:?}"),
            _ => assert!(moved.0.abs() + moved.1.abs() < 8.0, "{index}: {moved:?}"),
        }
    }
    assert_eq!((card.held_back)(&request(None, &shape)).unwrap().get(5).unwrap(), other);
    assert!((card.open)(&request(None, &[8, 8, 8, 3])).is_err());
    let grey = (card.open)(&request(None, &[4, 20, 24, 1])).unwrap();
    assert_eq!(grey.train.get(4).unwrap().shape.dims(), [6, 20, 24, 1]);
}

/// A clip whose values are their places.
fn counted(dims: &[usize]) -> Sample {
    let mut sample = Sample::default();
    let shape = Shape::new(dims).unwrap();
    sample.fill(shape, (0..shape.size()).map(|at| at as f32)).unwrap();
    sample
}

proptest! {
    /// The frames that are taken lie at equal distances, and those of training begin anywhere.
    #[test]
    fn frames_are_taken_at_equal_distances(frames in 1usize..40, count in 1usize..12, seed: u64) {
        let mut clip = counted(&[frames, 1, 2, 1]);
        let taken = Frames::new(count).unwrap().jitter(true).apply(&mut clip, &Draw::new(seed, 0, 0));
        prop_assert_eq!(taken.is_ok(), frames >= count);
        if frames < count {
            return Ok(());
        }
        prop_assert_eq!(clip.shape.dims(), [count, 1, 2, 1]);
        let of: Vec<usize> = clip.input.chunks(2).map(|frame| frame[0] as usize / 2).collect();
        prop_assert!(of.windows(2).all(|two| two[1] - two[0] == frames / count));
        prop_assert!(*of.last().unwrap() < frames);
        let mut middle = counted(&[frames, 1, 2, 1]);
        Frames::new(count).unwrap().apply(&mut middle, &Draw::new(seed, 0, 0)).unwrap();
        let (before, behind) = (middle.input[0] as usize / 2, frames - 1 - middle.input[2 * count - 2] as usize / 2);
        prop_assert!(before == behind || before + 1 == behind);
    }

    /// Crops and mirror images of a clip are those of each of its frames.
    #[test]
    fn frames_of_a_clip_are_changed_alike(
        [frames, h, w, c] in [1usize..4, 1usize..5, 1usize..5, 1usize..3],
        padding in 0usize..3,
        seed: u64,
    ) {
        let changes = Compose::new().then(Crop::new(h, w, padding)).then(Flip::new(0.5).unwrap());
        let draw = Draw::new(seed, 1, 2);
        let mut clip = counted(&[frames, h, w, c]);
        let before = clip.clone();
        changes.apply(&mut clip, &draw).unwrap();
        prop_assert_eq!(clip.shape.dims(), [frames, h, w, c]);
        let size = h * w * c;
        for frame in 0..frames {
            let mut image = Sample::default();
            let values = before.input[frame * size..][..size].iter().copied();
            image.fill(Shape::new(&[h, w, c]).unwrap(), values).unwrap();
            changes.apply(&mut image, &draw).unwrap();
            prop_assert_eq!(&image.input[..], &clip.input[frame * size..][..size]);
        }
    }
}

#[test]
fn every_beginning_is_drawn_and_images_have_no_frames() {
    let first = |index: usize| {
        let mut clip = counted(&[7, 1, 1, 1]);
        Frames::new(3)
            .unwrap()
            .jitter(true)
            .apply(&mut clip, &Draw::new(0, 0, index))
            .unwrap();
        clip.input[0] as usize
    };
    let seen: std::collections::BTreeSet<usize> = (0..60).map(first).collect();
    assert_eq!(seen, (0..3).collect());
    assert!(Frames::new(0).is_err());
    let mut image = counted(&[3, 2, 1]);
    let error = Frames::new(1)
        .unwrap()
        .apply(&mut image, &Draw::new(0, 0, 0))
        .unwrap_err();
    assert!(error.to_string().contains("a clip [T, H, W, C] of 1 frames"), "{error}");
    assert!(
        Crop::new(1, 1, 0)
            .apply(&mut counted(&[4]), &Draw::new(0, 0, 0))
            .is_err()
    );
}

#[test]
fn clips_are_made_up_as_a_network_takes_them() {
    let made = MadeUp {
        shape: &[2, 3, 4, 3],
        outputs: 5,
        count: 10,
        seed: 1,
    };
    let opened = (CLIPS.synthetic)(&made).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (10, 2));
    assert_eq!(opened.train.get(0).unwrap().shape.dims(), [2, 3, 4, 3]);
    assert_eq!((CLIPS.describe)(made.shape), "clips 2x3x4x3");
    assert_eq!((CLIPS.samples)(&made).unwrap().classes(), Some(5));
}
