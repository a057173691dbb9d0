//! The tokens that stand for `[MASK]` in lines of text, by a network that fills them in.

use crate::args::PredictArgs;
use crate::error::{Error, Result};
use crate::finite;
use crate::output::{self, line, passed_over, percent};
use crate::weights::Saved;
use kiln_core::Backend;
use kiln_data::{SpecialTokens, TextFile, TextTokenizer};
use kiln_files::{shown, shown_path};
use kiln_nn::{Tensor, no_grad};
use serde_json::json;
use std::path::Path;

/// The tokenizer of a network, and what hides a token in its texts.
struct Reader<'a> {
    tokenizer: &'a TextTokenizer,
    special: SpecialTokens,
    /// The text of the mask: `[MASK]`.
    mask: &'a str,
    /// The most tokens that the network reads.
    most: usize,
}

/// The tokens that may stand for a mask, the likeliest first, each with how likely it is.
type Choices = Vec<(String, f64)>;

/// Prints every line of every file with the likeliest tokens in the place of its masks. A file that cannot be read is passed over, and the
/// exit code says so.
pub(super) fn all<B: Backend>(backend: &B, saved: &Saved<B>, args: &PredictArgs) -> Result<u8> {
    if args.files.is_empty() {
        return Err(
            Error::usage("<FILE> is missing").help("name files with [MASK] in each line, or - for standard input")
        );
    }
    let tokens = saved.text_tokens()?;
    let refused = || {
        Error::usage(format!(
            "{} was trained on texts without [MASK], [CLS] and [SEP]",
            shown_path(&saved.path)
        ))
        .help("train it by tokens that have them: --tokenizer wordpiece:N")
    };
    let tokenizer = tokens.tokenizer().ok_or_else(refused)?;
    let special = tokenizer.special().ok_or_else(refused)?;
    let reader = Reader {
        tokenizer,
        special,
        mask: tokenizer.tokenizer().token(special.mask as u32).unwrap_or_default(),
        most: saved.model.input().shape[0],
    };
    let mut exit = 0;
    for path in &args.files {
        if let Err(error) = fill(backend, saved, &reader, args, path) {
            exit = passed_over(&error);
        }
    }
    Ok(exit)
}

/// Prints the lines of a file, without those that have nothing in them.
fn fill<B: Backend>(backend: &B, saved: &Saved<B>, reader: &Reader<'_>, args: &PredictArgs, path: &Path) -> Result<()> {
    let file = TextFile::open_or_stdin(path)?;
    for (number, source) in (1..)
        .zip(file.text().lines())
        .filter(|(_, text)| !text.trim().is_empty())
    {
        let place = format!("{}: line {number}", shown_path(path));
        let masks = choices(backend, saved, reader, usize::from(args.top), source, &place)?;
        let text = filled(source, reader.mask, &masks);
        if args.json {
            let each = |choices: &Choices| -> Vec<_> {
                let of = |(token, share): &(String, f64)| json!({"token": token, "probability": share});
                choices.iter().map(of).collect()
            };
            output::json(&json!({
                "file": path.display().to_string(),
                "line": number,
                "model": saved.model.name(),
                "source": source,
                "text": text,
                "masks": masks.iter().map(each).collect::<Vec<_>>(),
            }));
            continue;
        }
        line(&shown(&text).to_string());
        for choices in masks.iter().filter(|_| args.top > 1) {
            let each: Vec<String> = choices
                .iter()
                .map(|(token, share)| format!("{} {}", shown(token), percent(*share)))
                .collect();
            line(&format!("  {}", each.join(", ")));
        }
    }
    Ok(())
}

/// The likeliest tokens of each mask of a line.
fn choices<B: Backend>(
    backend: &B,
    saved: &Saved<B>,
    reader: &Reader<'_>,
    top: usize,
    source: &str,
    place: &str,
) -> Result<Vec<Choices>> {
    let encoded = reader
        .tokenizer
        .tokenizer()
        .encode(source)
        .map_err(|e| Error::failure(format!("{place}: {e}")))?;
    let ids = encoded.ids.iter().map(|&id| id as i32);
    let ids: Vec<i32> = [reader.special.cls]
        .into_iter()
        .chain(ids)
        .chain([reader.special.sep])
        .collect();
    let at: Vec<usize> = (0..ids.len()).filter(|&i| ids[i] == reader.special.mask).collect();
    if at.is_empty() || at.len() != source.matches(reader.mask).count() {
        return Err(
            Error::failure(format!("{place}: no {} in it", reader.mask)).help("put one where a word is to be found")
        );
    }
    if ids.len() > reader.most {
        let most = reader.most - 2;
        return Err(Error::failure(format!(
            "{place}: {} tokens, and the network reads {most}",
            ids.len() - 2
        )));
    }
    let values: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
    let text = Tensor::from_slice(backend, &values, &[1, values.len()])?;
    let logits = || {
        let of_tokens = saved.net.of_tokens(&text);
        of_tokens.unwrap_or_else(|| text.reshape(&[1, values.len(), 1]))
    };
    let found = no_grad(logits)?;
    let mut all = Vec::new();
    for at in at {
        let shares = no_grad(|| found.narrow(1, at, 1)?.softmax(-1)?.to_f64())?;
        if shares.iter().any(|share| !share.is_finite()) {
            return Err(finite::overflow(
                logits,
                &format!("{place}: the probabilities of tokens"),
            )?);
        }
        let mut order: Vec<usize> = (0..shares.len()).collect();
        order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
        let token = |id: usize| {
            reader
                .tokenizer
                .tokenizer()
                .token(id as u32)
                .unwrap_or_default()
                .to_string()
        };
        all.push(order.into_iter().take(top).map(|id| (token(id), shares[id])).collect());
    }
    Ok(all)
}

/// A line with the likeliest token in the place of each mask; one that goes on with a word, `##ing`, stands right behind it.
fn filled(source: &str, mask: &str, masks: &[Choices]) -> String {
    let mut parts = source.split(mask);
    let mut text = parts.next().unwrap_or_default().to_string();
    for (part, choices) in parts.zip(masks) {
        let token = choices.first().map_or("", |(token, _)| token);
        match token.strip_prefix("##") {
            Some(goes_on) => {
                text.truncate(text.trim_end().len());
                text.push_str(goes_on);
            }
            None => text.push_str(token),
        }
        text.push_str(part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_tokens_stand_for_masks() {
        let choices = |token: &str| vec![(token.to_string(), 0.5), ("other".to_string(), 0.2)];
        let masks = [choices("whale"), choices("##s")];
        assert_eq!(filled("A [MASK] [MASK], far.", "[MASK]", &masks), "A whales, far.");
        assert_eq!(filled("[MASK]", "[MASK]", &masks[..1]), "whale");
    }
}
