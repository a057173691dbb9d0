//! The clips that ship as folders of frames, for `benches/peers/torch_video.py`.

use crate::Outcome;
use kiln_data::{BadRecords, DataKind, Dataset, Request, Sample, Shared};
use std::fs::{File, create_dir_all};
use std::path::Path;

/// Writes the clips that `kiln train` has for this shape of a network's input, as `train/CLASS/0000/00.png` and `test/…`.
pub(crate) fn write(folder: &str, shape: &[usize]) -> Outcome<()> {
    let request = Request {
        path: None,
        shape,
        sides: &[],
        own_size: false,
        target: None,
        tokenizer: None,
        bad: BadRecords::Refuse,
        facts: None,
    };
    let opened = (DataKind::Motions.card().open)(&request)?;
    part(&Path::new(folder).join("train"), &opened.train)?;
    part(&Path::new(folder).join("test"), &opened.test)
}

fn part(folder: &Path, clips: &Shared) -> Outcome<()> {
    let mut sample = Sample::default();
    for index in 0..clips.len() {
        clips.read(index, &mut sample)?;
        let [_, height, width, channels] = sample.frames("clips")?;
        let name = clips
            .class_names()
            .get(sample.label as usize)
            .ok_or("a class without a name")?;
        let folder = folder.join(name).join(format!("{index:04}"));
        create_dir_all(&folder)?;
        for (number, pixels) in sample.input.chunks_exact(height * width * channels).enumerate() {
            let bytes: Vec<u8> = pixels.iter().map(|&pixel| pixel as u8).collect();
            let file = File::create(folder.join(format!("{number:02}.png")))?;
            let mut encoder = png::Encoder::new(file, width as u32, height as u32);
            encoder.set_color(if channels == 1 {
                png::ColorType::Grayscale
            } else {
                png::ColorType::Rgb
            });
            encoder.write_header()?.write_image_data(&bytes)?;
        }
    }
    Ok(())
}
