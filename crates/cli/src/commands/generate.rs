//! `kiln generate`: text or images from the network of a run.

use crate::args::{GenerateArgs, WeightDtype};
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::output::{self, counted, line};
use crate::picture::Picture;
use crate::weights::{self, Saved};
use kiln_core::Backend;
use kiln_data::{DataError, Tokens};
use kiln_files::{shown_path, write_atomic};
use kiln_models::{Generator, LanguageModel, Model, Net, OutputKind, Sampler};
use kiln_nn::{Module, no_grad};
use kiln_profile::Profiled;
use serde_json::json;
use std::path::{Path, PathBuf};

struct Generate<'a>(&'a GenerateArgs);

impl Task for Generate<'_> {
    type Output = ();

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<()> {
        let args = self.0;
        let mut saved = weights::load(&args.weights(), backend)?;
        let model = &saved.model;
        if model.card().output == OutputKind::Images {
            let of_text = [
                ("--prompt", args.prompt.is_some()),
                ("--top-k", args.top_k.is_some()),
                ("--top-p", args.top_p.is_some()),
                ("--repetition-penalty", args.repetition_penalty.is_some()),
                ("--dtype", args.dtype != WeightDtype::F32),
            ];
            if let Some((flag, _)) = of_text.into_iter().find(|(_, given)| *given) {
                return Err(Error::usage(format!("{model} makes images, and goes on with no text"))
                    .help(format!("leave {flag} out")));
            }
            let drawn = Drawn {
                count: args.count as usize,
                walks: args.walks,
                seed: args.seed,
                out: args.out.clone(),
                json: false,
            };
            return draw(&saved.net, backend, *model, &saved.path, &drawn);
        }
        if args.walks {
            return Err(Error::usage(format!("{model} makes no images to walk between")).help("leave --walks out"));
        }
        saved.net.to_dtype(args.dtype.dtype())?;
        let Saved { path, model, net, .. } = &saved;
        let (Some(gpt), Some(text_tokens)) = (net.language_model(), saved.tokens()?) else {
            return Err(Error::usage(format!(
                "{}: {model} is no language model, so there is no text to generate",
                shown_path(path)
            ))
            .help("name the run of a gpt-mini; `kiln predict` classifies images"));
        };
        let mut sampler = Sampler::new(args.seed).temperature(args.temperature.get())?;
        if let Some(k) = args.top_k {
            sampler = sampler.top_k(k as usize)?;
        }
        if let Some(p) = args.top_p {
            sampler = sampler.top_p(p.get())?;
        }
        if let Some(penalty) = args.repetition_penalty {
            sampler = sampler.repetition_penalty(penalty.get())?;
        }
        let start = prompt(args.prompt.as_deref(), &text_tokens)?;
        output::text(args.prompt.as_deref().unwrap_or_default());
        go_on(
            gpt,
            &text_tokens,
            sampler,
            &start,
            args.tokens as usize,
            &mut output::text,
        )?;
        output::text("\n");
        Ok(())
    }
}

/// New images that are asked for.
pub(super) struct Drawn {
    pub(super) count: usize,
    /// True for rows that lead from one image to another.
    pub(super) walks: bool,
    pub(super) seed: u64,
    /// The file; by default one beside the weights.
    pub(super) out: Option<PathBuf>,
    pub(super) json: bool,
}

impl Default for Drawn {
    fn default() -> Self {
        Drawn {
            count: 64,
            walks: false,
            seed: 0,
            out: None,
            json: false,
        }
    }
}

/// Images of a walk from one to another.
const STEPS: usize = 8;

/// Writes a picture of new images.
pub(super) fn draw<B: Backend>(net: &Net<B>, backend: &B, model: Model, weights: &Path, drawn: &Drawn) -> Result<()> {
    let walks = drawn.count.div_ceil(STEPS);
    let images = no_grad(|| match drawn.walks {
        true => net.walk_between(backend, walks, STEPS, drawn.seed),
        false => net.draw(backend, drawn.count, drawn.seed),
    });
    let Some(images) = images else {
        let what = if drawn.walks {
            "images of latent vectors"
        } else {
            "images"
        };
        return Err(Error::usage(format!("{model} makes no {what}")));
    };
    let (count, columns, name) = match drawn.walks {
        true => (walks * STEPS, STEPS, "walks.png"),
        // As many columns as rows, or a little more.
        false => (drawn.count, (drawn.count as f64).sqrt().ceil() as usize, "samples.png"),
    };
    let picture = Picture::grid(&Picture::of_images(&images?)?, columns)?;
    let file = drawn.out.clone().unwrap_or_else(|| weights.with_file_name(name));
    write_atomic(&file, &picture.png()?)?;
    let count = count as u64;
    match drawn.json {
        true => output::json(&json!({
            "model": model.name(),
            "images": count,
            "seed": drawn.seed,
            "file": file.display().to_string(),
        })),
        false => line(&format!(
            "saved: {}, {}",
            shown_path(&file),
            counted(count, "new image")
        )),
    }
    Ok(())
}

/// The tokens to continue: those of the prompt; without one those of a line break, or token 0 if there are none.
pub(super) fn prompt(prompt: Option<&str>, tokens: &Tokens) -> Result<Vec<i32>> {
    let Some(prompt) = prompt else {
        let line_break = tokens.encode("\n").unwrap_or_default();
        return Ok(if line_break.is_empty() { vec![0] } else { line_break });
    };
    if prompt.is_empty() {
        return Err(Error::usage("the prompt is empty").help("give it a character, or leave --prompt out"));
    }
    let start = tokens.encode(prompt).map_err(|error| match (&error, tokens) {
        (DataError::UnknownCharacter { character, .. }, Tokens::Characters(vocabulary)) => {
            let known: String = vocabulary.characters().iter().flat_map(|c| c.escape_debug()).collect();
            Error::usage(format!(
                "the prompt has the character `{}`, which was not in the text that the model was trained on",
                character.escape_debug()
            ))
            .help(format!("it knows {known}"))
        }
        _ => Error::from(error).context("the prompt"),
    })?;
    match start.is_empty() {
        true => Err(Error::usage("the prompt has no tokens").help("give it a word, or leave --prompt out")),
        false => Ok(start),
    }
}

/// Goes on with `prompt` by so many tokens; `tell` is told the text that each completes when it is drawn.
pub(super) fn go_on<B: Backend>(
    gpt: &dyn LanguageModel<B>,
    tokens: &Tokens,
    sampler: Sampler,
    prompt: &[i32],
    count: usize,
    tell: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut text = tokens.stream();
    // The text of a token may depend on that before it.
    for &token in prompt {
        text.push(token)?;
    }
    let drawn = Generator::new(gpt, sampler, prompt)?.vocabulary(tokens.len());
    for token in drawn.take(count) {
        tell(&text.push(token?)?);
    }
    tell(&text.finish());
    Ok(())
}

pub(crate) fn run(args: GenerateArgs) -> Result<u8> {
    with_device(&args.device.options(), Generate(&args))?;
    Ok(0)
}
