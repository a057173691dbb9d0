//! Weights as other programs publish them: entries that have other names there, and such as the networks here do without.

use kiln_core::Backend;
use kiln_nn::module::{StateDict, Value};
use std::collections::BTreeSet;

/// Ends of names, and those that the networks here have in their place.
const RENAMED: &[(&str, &str)] = &[
    // BERT's first checkpoints, which were written by TensorFlow.
    (".LayerNorm.gamma", ".LayerNorm.weight"),
    (".LayerNorm.beta", ".LayerNorm.bias"),
];

/// Beginnings of names that files of an encoder, or of GPT-2, lack.
const BEGINNINGS: &[&str] = &["transformer.", "bert."];

/// Names of entries that are copies of others where a head is tied to the embedding, with the names of those others here.
const TIED: &[(&str, &str)] = &[
    ("lm_head.weight", "transformer.wte.weight"),
    (
        "cls.predictions.decoder.weight",
        "bert.embeddings.word_embeddings.weight",
    ),
    ("cls.predictions.decoder.bias", "cls.predictions.bias"),
];

/// Ends of the names of entries that are constants, or of no use to the networks here.
const UNUSED: &[&str] = &[
    // transformers: numbers of positions, masks of causal attention.
    ".position_ids",
    ".attn.bias",
    ".attn.masked_bias",
    // BERT's prediction of the next sentence.
    "cls.seq_relationship.weight",
    "cls.seq_relationship.bias",
    // ultralytics: the bins of distances.
    ".dfl.conv.weight",
];

/// The entries of published weights by the names of a network that has entries named `own`, as far as it is known what others call them: of
/// `bert-base-uncased` and `gpt2` as Hugging Face's hub has them, and of ultralytics' YOLOv8. Entries of such files that no network needs
/// are left out, heads that are tied to an embedding if they have its values, and all others keep their names.
///
/// ```
/// use kiln_models::{Gpt2, Gpt2Config, published};
/// use kiln_nn::module::StateDict;
/// use kiln_nn::{Init, LoadOptions, Module};
///
/// let small = Gpt2Config { vocabulary: 9, context: 4, layers: 1, heads: 1, width: 4, dropout: 0.0 };
/// let mut gpt = Gpt2::new(Init::new(&kiln_cpu::Cpu::new(), 0), small)?;
/// // The files of GPT-2 are those of the network below its head.
/// let theirs: StateDict<_> = gpt.state_dict().part("transformer");
/// let names = gpt.state_dict();
/// let dict = published(&theirs, names.names());
/// assert!(gpt.load_state_dict(&dict, LoadOptions::strict())?.is_exact());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn published<'n, B: Backend>(dict: &StateDict<B>, own: impl IntoIterator<Item = &'n str>) -> StateDict<B> {
    let own: BTreeSet<&str> = own.into_iter().collect();
    let mut found = StateDict::new();
    let mut others = Vec::new();
    for (name, value) in dict.iter() {
        match name_of(name, &own) {
            Some(name) => found.insert(name, value.clone()),
            None if UNUSED.iter().any(|end| name.ends_with(end)) => {}
            None => others.push((name, value)),
        }
    }
    for (name, value) in others {
        if !is_tied(name, value, &found) {
            found.insert(name, value.clone());
        }
    }
    found
}

/// True if an entry has the values of the one that it is tied to.
fn is_tied<B: Backend>(name: &str, value: &Value<B>, found: &StateDict<B>) -> bool {
    let Some((_, other)) = TIED.iter().find(|(tied, _)| *tied == name) else {
        return false;
    };
    match (value, found.float(other)) {
        (Value::Float(copy), Some(own)) if copy.shape() == own.shape() => {
            matches!((copy.to_f64(), own.to_f64()), (Ok(copy), Ok(own)) if copy == own)
        }
        _ => false,
    }
}

/// The name of a network's entry for one of published weights.
fn name_of(name: &str, own: &BTreeSet<&str>) -> Option<String> {
    let renamed = RENAMED
        .iter()
        .find_map(|(theirs, ours)| Some(format!("{}{ours}", name.strip_suffix(theirs)?)));
    let name = renamed.unwrap_or_else(|| name.to_string());
    let longer = BEGINNINGS.iter().map(|beginning| format!("{beginning}{name}"));
    let mut names = std::iter::once(name.clone()).chain(longer);
    names.find(|name| own.contains(&name[..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bert, BertConfig};
    use kiln_cpu::Cpu;
    use kiln_nn::{Init, LoadOptions, Module, Tensor};

    #[test]
    fn the_names_of_published_berts_are_known() {
        let cpu = Cpu::new();
        let config = BertConfig {
            vocabulary: 11,
            context: 8,
            types: 2,
            layers: 1,
            heads: 1,
            width: 4,
            hidden: 8,
            dropout: 0.1,
        };
        let bert = Bert::new(Init::new(&cpu, 1), config).unwrap();
        let own = bert.state_dict();
        let mut theirs = StateDict::new();
        let mut renamed = 0;
        for (name, value) in own.iter() {
            let name = name
                .replace("LayerNorm.weight", "LayerNorm.gamma")
                .replace("LayerNorm.bias", "LayerNorm.beta");
            renamed += usize::from(own.get(&name).is_none());
            theirs.insert(name, value.clone());
        }
        assert_eq!(renamed, 2 * 4);
        let other = Tensor::from_slice(&cpu, &[1.0f32; 8], &[2, 4]).unwrap();
        theirs.insert("cls.seq_relationship.weight", Value::Float(other.clone()));
        let table = own.get("bert.embeddings.word_embeddings.weight").unwrap();
        theirs.insert("cls.predictions.decoder.weight", table.clone());
        let mut net = Bert::new(Init::new(&cpu, 2), config).unwrap();
        assert!(net.load_state_dict(&theirs, LoadOptions::strict()).is_err());
        let dict = published(&theirs, own.names());
        assert!(net.load_state_dict(&dict, LoadOptions::strict()).unwrap().is_exact());
        let values = |of: &StateDict<Cpu>| -> Vec<Vec<f64>> {
            of.names()
                .map(|name| of.float(name).map(|t| t.to_f64().unwrap()).unwrap_or_default())
                .collect()
        };
        assert_eq!(values(&net.state_dict()), values(&own));
        // An encoder by itself, and what nobody knows.
        let encoder = published(&theirs.part("bert"), own.names());
        assert!(encoder.len() > 10 && encoder.names().all(|name| own.get(name).is_some()));
        // A head of its own is not passed over.
        let mut untied = theirs.clone();
        untied.insert("cls.predictions.decoder.weight", Value::Float(other.clone()));
        let dict = published(&untied, own.names());
        assert!(net.load_state_dict(&dict, LoadOptions::strict()).is_err());
        theirs.insert("cls.other.weight", Value::Float(other));
        let dict = published(&theirs, own.names());
        assert!(net.load_state_dict(&dict, LoadOptions::strict()).is_err());
    }
}
