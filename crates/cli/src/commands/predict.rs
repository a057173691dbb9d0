//! `kiln predict`: the answers of a network about files: classes, reconstructions, numbers, texts.

use super::answers;
use super::asked::{self, Asked};
use super::boxes;
use super::fill;
use super::generate::{Drawn, draw};
use super::tags;
use super::transcribe::{self, Decoder};
use crate::args::PredictArgs;
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::finite;
use crate::output::{self, counted, line, passed_over, percent};
use crate::picture::Picture;
use crate::sheet::{Told, sheet};
use crate::{data, weights};
use kiln_core::Backend;
use kiln_data::{CLIPS, DataKind, Facts, IMAGES, OBJECTS, PAIRS, TAGGED, TEXTS, Tokens, UTTERANCES};
use kiln_files::{shown_path, write_atomic};
use kiln_models::{Model, Net, OutputKind};
use kiln_nn::{Tensor, no_grad};
use kiln_profile::Profiled;
use serde_json::{Map, json};
use std::path::Path;

struct Predict<'a>(&'a PredictArgs);

impl Task for Predict<'_> {
    /// The exit code.
    type Output = u8;

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<u8> {
        let args = self.0;
        let saved = weights::load(&args.weights, backend)?;
        let (model, net) = (saved.model, &saved.net);
        let output = model.card().output;
        if args.question.is_some() && output != OutputKind::Spans {
            return Err(Error::usage(format!(
                "--question is for networks that answer questions about texts, and {model} is none"
            ))
            .help("leave it out"));
        }
        if args.beam.is_some() && !matches!(output, OutputKind::Translation(_)) {
            return Err(Error::usage(format!(
                "--beam is for networks that write texts for texts, and {model} is none"
            ))
            .help("leave it out"));
        }
        let drawn = match output {
            OutputKind::Images | OutputKind::Boxes(_) => true,
            OutputKind::Classes(_) => model.input().image().is_some() || model.input().clip().is_some(),
            _ => false,
        };
        if args.out.is_some() && !drawn {
            return Err(Error::usage(format!(
                "--out names a picture, and {model} tells nothing that is drawn"
            ))
            .help("leave it out: answers go to standard output"));
        }
        // These read a text in ways of their own.
        match output {
            OutputKind::Spans => return answers::all(backend, &saved, args),
            OutputKind::Tokens(_) | OutputKind::Vocabulary(_) if net.language_model().is_none() => {
                return fill::all(backend, &saved, args);
            }
            _ => {}
        }
        let Some(read) = saved.data.card().file else {
            return Err(Error::usage(format!(
                "{}: {model} reads {}, and is asked about no files",
                shown_path(&saved.path),
                saved.data.card().title
            ))
            .help("`kiln generate RUN_FOLDER` goes on with a text"));
        };
        let asked = Asked {
            args,
            files: asked::files(&args.files, saved.data)?,
            saved: &saved,
            read,
            transform: model.transform(None)?,
        };
        match (output, asked.files.is_empty()) {
            (OutputKind::Images, true) => {
                let drawn = Drawn {
                    out: args.out.clone(),
                    json: args.json,
                    ..Drawn::default()
                };
                draw(net, backend, model, &saved.path, &drawn)?;
                Ok(0)
            }
            (_, true) => Err(Error::usage("<FILE> is missing").help(format!("name {}", kinds_of_files(saved.data)))),
            (OutputKind::Images, false) => reconstruct(backend, &asked),
            (OutputKind::Numbers(_), false) => numbers(backend, &asked),
            (OutputKind::Boxes(_), false) => boxes::all(backend, &asked),
            (OutputKind::Tags(_), false) => tags::all(backend, &asked),
            (OutputKind::Letters(_), false) => {
                transcribe::all(backend, &saved, &asked.files, |_| Ok(Decoder::default()), args.json)
            }
            (OutputKind::Translation(_), false) => translate(&asked),
            (
                OutputKind::Classes(_)
                | OutputKind::Characters(_)
                | OutputKind::Tokens(_)
                | OutputKind::Spans
                | OutputKind::Vocabulary(_),
                false,
            ) => classes(backend, &asked),
        }
    }
}

/// The files that a network for a dataset is asked about.
fn kinds_of_files(data: DataKind) -> &'static str {
    match data.card().samples {
        images if images == &IMAGES || images == &OBJECTS => "PNG or JPEG files, or folders of them",
        clips if clips == &CLIPS => "GIF or Y4M files, or folders of frames",
        speech if speech == &UTTERANCES => "WAV, FLAC or Ogg Vorbis files",
        pairs if pairs == &PAIRS => "text files, or - for standard input",
        texts if texts == &TEXTS => "files with a text each, or - for standard input",
        tagged if tagged == &TAGGED => "files with a sentence in each line, or - for standard input",
        _ => "files like those that it was trained on",
    }
}

/// Prints what is written for every line of every file. Lines of one file come as they are made.
fn translate<B: Backend>(asked: &Asked<'_, B>) -> Result<u8> {
    let args = asked.args;
    let tokens = asked.saved.text_tokens()?;
    let beams = args.beam.map_or(1, |beams| beams as usize);
    let mut exit = 0;
    for path in &asked.files {
        let samples = match asked.samples(path) {
            Ok(samples) => samples,
            Err(error) => {
                exit = passed_over(&error);
                continue;
            }
        };
        let (mut number, mut source, mut text) = (1, String::new(), String::new());
        for sample in &samples {
            let (part, behind) = (characters(&sample.input), characters(&sample.targets));
            if !part.is_empty() {
                text.push_str(&written(&asked.saved.net, &tokens, &part, beams)?);
            }
            source.push_str(&part);
            if behind != "\n" {
                source.push_str(&behind);
                text.push_str(&behind);
                continue;
            }
            match args.json {
                true => output::json(&json!({
                    "file": path.display().to_string(),
                    "line": number,
                    "model": asked.saved.model.name(),
                    "source": source,
                    "text": text,
                })),
                false => line(&text),
            }
            number += 1;
            source.clear();
            text.clear();
        }
    }
    Ok(exit)
}

/// The text of code points.
fn characters(code_points: &[f32]) -> String {
    let character = |&value: &f32| char::from_u32(value as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
    code_points.iter().map(character).collect()
}

/// The text that a network writes for another.
fn written<B: Backend>(net: &Net<B>, tokens: &Tokens, source: &str, beams: usize) -> Result<String> {
    let ids = tokens.encode(source)?;
    let (mut stream, mut text) = (tokens.stream(), String::new());
    for id in net.translate(&ids, beams).unwrap_or_else(|| Ok(ids.clone()))? {
        // The tokens of beginning and end are none of a text's.
        if (id as usize) < tokens.len() {
            text.push_str(&stream.push(id)?);
        }
    }
    Ok(text + &stream.finish())
}

/// Prints the classes of every image, clip or text, and writes the sheet of `--out`.
fn classes<B: Backend>(backend: &B, asked: &Asked<'_, B>) -> Result<u8> {
    let (args, model) = (asked.args, asked.saved.model);
    let names = data::names_of(asked.saved);
    let (mut exit, mut all) = (0, Vec::new());
    let answer = |path: &Path| {
        let samples = asked.samples(path)?;
        let picture = args.out.as_ref().and(samples.first()).map(Picture::of_sample);
        let inputs = asked.inputs_of(samples, path, backend)?;
        Ok((picture.transpose()?, classify(&asked.saved.net, &inputs, path)?))
    };
    // If an image cannot be read, the others are still classified.
    for path in &asked.files {
        match answer(path) {
            Ok((picture, shares)) => {
                let mut classes: Vec<_> = (0..).zip(names.iter().cloned()).zip(shares).collect();
                classes.sort_by(|a, b| b.1.total_cmp(&a.1));
                classes.truncate(usize::from(args.top));
                let classes: Vec<_> = classes.into_iter().map(|((n, name), share)| (n, name, share)).collect();
                show(path, model, &classes, args.json);
                all.extend(picture.map(|picture| Told::new(picture, classes)).transpose()?);
            }
            Err(error) => exit = passed_over(&error),
        }
    }
    if let Some(file) = args.out.as_ref().filter(|_| !all.is_empty()) {
        write_atomic(file, &sheet(&all)?.png()?)?;
        if !args.json {
            line(&format!("saved: {}", shown_path(file)));
        }
    }
    Ok(exit)
}

/// Prints the numbers that are predicted for every row of every file, in the units of the data.
fn numbers<B: Backend>(backend: &B, asked: &Asked<'_, B>) -> Result<u8> {
    let (args, saved) = (asked.args, asked.saved);
    let names = saved.facts.names(Facts::TARGETS).unwrap_or_default();
    let mut exit = 0;
    for path in &asked.files {
        let predicted = asked
            .inputs(path, backend)
            .and_then(|inputs| regress(&saved.net, &inputs, path));
        let mut predicted = match predicted {
            Ok(predicted) => predicted,
            Err(error) => {
                exit = passed_over(&error);
                continue;
            }
        };
        for (row, numbers) in predicted.chunks_mut(names.len().max(1)).enumerate() {
            saved.facts.in_units(numbers);
            let named = || names.iter().zip(numbers.iter());
            if args.json {
                output::json(&json!({
                    "file": path.display().to_string(),
                    "row": row + 1,
                    "model": saved.model.name(),
                    "values": named().map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>(),
                }));
            } else {
                let each: Vec<String> = named().map(|(name, value)| format!("{name} {value:.6}")).collect();
                line(&format!("{}: row {}: {}", shown_path(path), row + 1, each.join(", ")));
            }
        }
    }
    Ok(exit)
}

/// The numbers `[N, targets]` for inputs, at the scale of training.
fn regress<B: Backend>(net: &Net<B>, inputs: &Tensor<B>, path: &Path) -> Result<Vec<f64>> {
    let predicted = || net.regress(inputs).unwrap_or_else(|| Ok(inputs.clone()));
    let numbers = no_grad(|| predicted()?.to_f64())?;
    match numbers.iter().all(|number| number.is_finite()) {
        true => Ok(numbers),
        false => Err(finite::overflow(
            predicted,
            &format!("{}: the numbers", shown_path(path)),
        )?),
    }
}

/// Writes a picture of the images and what the network keeps of them.
fn reconstruct<B: Backend>(backend: &B, asked: &Asked<'_, B>) -> Result<u8> {
    /// Images in a row of the picture, each with its reconstruction.
    const COLUMNS: usize = 5;
    let (model, mut exit, mut read) = (asked.saved.model, 0, Vec::new());
    for path in &asked.files {
        match asked.inputs(path, backend) {
            Ok(image) => read.push(image),
            Err(error) => exit = passed_over(&error),
        }
    }
    let count = read.len();
    if count == 0 {
        return Ok(exit);
    }
    let images = Tensor::concat(&read.iter().collect::<Vec<_>>(), 0)?;
    let Some(made) = no_grad(|| asked.saved.net.reconstruct(&images)) else {
        return Err(Error::usage(format!("{model} makes images of nothing, and takes none"))
            .help("`kiln generate RUN_FOLDER` writes a picture of new ones"));
    };
    let picture = Picture::pairs(&images, &made?, 2 * COLUMNS.min(count))?;
    let beside = || asked.saved.path.with_file_name("reconstructions.png");
    let file = asked.args.out.clone().unwrap_or_else(beside);
    write_atomic(&file, &picture.png()?)?;
    match asked.args.json {
        true => output::json(&json!({
            "model": model.name(),
            "images": count,
            "file": file.display().to_string(),
        })),
        false => line(&format!(
            "saved: {}, {} beside what {} makes of them",
            shown_path(&file),
            counted(count as u64, "image"),
            model
        )),
    }
    Ok(exit)
}

/// The probability of every class.
fn classify<B: Backend>(net: &Net<B>, image: &Tensor<B>, path: &Path) -> Result<Vec<f64>> {
    let logits = || net.classify(image).unwrap_or_else(|| Ok(image.clone()));
    let shares = no_grad(|| logits()?.softmax(-1)?.to_f64())?;
    if shares.iter().all(|share| share.is_finite()) {
        return Ok(shares);
    }
    let what = format!("{}: the probabilities", shown_path(path));
    Err(finite::overflow(logits, &what)?)
}

/// Prints the classes of one file, the most probable first.
fn show(path: &Path, model: Model, classes: &[(usize, String, f64)], json: bool) {
    if json {
        let each: Vec<_> = classes
            .iter()
            .map(|(_, name, share)| json!({"class": name, "probability": share}))
            .collect();
        let sample = if model.input().clip().is_some() {
            "clip"
        } else {
            "image"
        };
        let text = json!({
            sample: path.display().to_string(),
            "model": model.name(),
            "class": classes.first().map(|(_, name, _)| name),
            "probability": classes.first().map(|(_, _, share)| share),
            "top": each,
        });
        output::json(&text);
    } else {
        let each: Vec<String> = classes.iter().map(|(_, n, s)| format!("{n} {}", percent(*s))).collect();
        line(&format!("{}: {}", shown_path(path), each.join(", ")));
    }
}

pub(crate) fn run(args: PredictArgs) -> Result<u8> {
    with_device(&args.device.options(), Predict(&args))
}
