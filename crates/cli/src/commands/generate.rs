//! `kiln generate`: text from the language model of a run.

use crate::args::GenerateArgs;
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::output;
use crate::weights::{self, Saved};
use kiln_core::Backend;
use kiln_data::Vocabulary;
use kiln_files::shown_path;
use kiln_models::{LanguageModel, Sampler};

struct Generate<'a>(&'a GenerateArgs);

impl Task for Generate<'_> {
    type Output = ();

    fn run<B: Backend>(self, backend: &B) -> Result<()> {
        let args = self.0;
        let Saved { path, model, net, text } = weights::load(&args.weights(), backend)?;
        let (Some(gpt), Some(vocabulary)) = (net.language_model(), text) else {
            return Err(Error::usage(format!(
                "{}: {model} is no language model, so there is no text to generate",
                shown_path(&path)
            ))
            .help("name the run of a gpt-mini; `kiln predict` classifies images"));
        };
        let mut sampler = Sampler::new(args.seed).temperature(args.temperature.get())?;
        if let Some(k) = args.top_k {
            sampler = sampler.top_k(k as usize)?;
        }
        let tokens = prompt(args.prompt.as_deref(), &vocabulary)?;
        stream(gpt, &vocabulary, sampler, tokens, args)
    }
}

/// The tokens to continue: those of the prompt; without one a line break, or token 0 if the vocabulary has no line break.
fn prompt(prompt: Option<&str>, vocabulary: &Vocabulary) -> Result<Vec<i32>> {
    let Some(prompt) = prompt else {
        return Ok(vec![vocabulary.id('\n').unwrap_or(0)]);
    };
    if prompt.is_empty() {
        return Err(Error::usage("the prompt is empty").help("give it a character, or leave --prompt out"));
    }
    vocabulary.encode(prompt).map_err(|unknown| {
        let known: String = vocabulary.characters().iter().flat_map(|c| c.escape_debug()).collect();
        Error::usage(format!(
            "the prompt has the character `{}`, which was not in the text that the model was trained on",
            unknown.escape_debug()
        ))
        .help(format!("it knows {known}"))
    })
}

/// Writes the prompt and the model's continuation, character by character.
fn stream<B: Backend>(
    gpt: &dyn LanguageModel<B>,
    vocabulary: &Vocabulary,
    mut sampler: Sampler,
    mut tokens: Vec<i32>,
    args: &GenerateArgs,
) -> Result<()> {
    output::text(args.prompt.as_deref().unwrap_or_default());
    for _ in 0..args.tokens {
        let token = sampler.draw(&gpt.next_logits(&tokens)?)?;
        output::text(vocabulary.character(token).unwrap_or_default().encode_utf8(&mut [0; 4]));
        tokens.push(token as i32);
        // Tokens older than the context are not needed again.
        if tokens.len() > 2 * gpt.context() {
            tokens.drain(..gpt.context());
        }
    }
    output::text("\n");
    Ok(())
}

pub(crate) fn run(args: GenerateArgs) -> Result<u8> {
    with_device(&args.device.options(), Generate(&args))?;
    Ok(0)
}
