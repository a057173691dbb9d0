//! Loading of saved weights into the model that they belong to.

use crate::args::WeightsArgs;
use crate::error::{Error, Result};
use kiln_core::Backend;
use kiln_data::Vocabulary;
use kiln_files::{open_regular, shown, shown_path};
use kiln_models::{Model, Net, OutputKind};
use kiln_nn::Module;
use kiln_nn::weights::{LoadOptions, Metadata, WeightsError, WeightsFile};
use kiln_train::RunFolder;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The entry with the model's name, in a weight file's metadata and in `config.json`.
const MODEL: &str = "model";

/// The entry of `config.json` with the characters of a language model's vocabulary, in order.
pub(crate) const VOCABULARY: &str = "vocabulary";

/// The metadata of weight files of `model`. It has only one entry, because the order of several is not fixed and equal
/// runs must give equal files.
pub(crate) fn metadata(model: Model) -> Metadata {
    Metadata::from([(MODEL.to_string(), model.name().to_string())])
}

/// A model with its saved weights.
pub(crate) struct Saved<B: Backend> {
    /// The file that they were read from.
    pub(crate) path: PathBuf,
    pub(crate) model: Model,
    /// The network, in evaluation mode.
    pub(crate) net: Net<B>,
    /// The vocabulary of a language model.
    pub(crate) text: Option<Vocabulary>,
}

/// Reads the weights and builds the model that they belong to.
pub(crate) fn load<B: Backend>(args: &WeightsArgs, backend: &B) -> Result<Saved<B>> {
    let path = file(&args.weights)?;
    path.parent().map(RunFolder::tidy);
    let mut weights = WeightsFile::open(&path).map_err(failed)?;
    let model = match args.model {
        Some(model) => model,
        None => belongs_to(&path, weights.metadata())?,
    };
    let text = match model.card().output {
        OutputKind::Characters(_) => Some(vocabulary(&path, model)?),
        OutputKind::Classes(_) | OutputKind::Images => None,
    };
    let classes = text.as_ref().map_or(model.classes(), Vocabulary::len);
    let mut net = model.build_for(backend, 0, classes)?;
    weights
        .load_into(&mut net, LoadOptions::strict())
        .map_err(|e| failed(e).context(format!("loading {model}")))?;
    net.eval();
    Ok(Saved { path, model, net, text })
}

/// The vocabulary of the language model whose weights are at `path`, from `config.json` beside them.
pub(crate) fn vocabulary(path: &Path, model: Model) -> Result<Vocabulary> {
    let config = path.with_file_name(RunFolder::CONFIG);
    let refused = |why: String| {
        Error::failure(format!(
            "{}: {model} needs the characters that it was trained on, and {why}",
            shown_path(path)
        ))
        .help("name the folder of the run that trained it")
    };
    let found = entry(&config, VOCABULARY).map_err(refused)?;
    let vocabulary = Vocabulary::of(found.as_deref().unwrap_or_default());
    match vocabulary.is_empty() {
        true => Err(refused(format!(
            "there is no {} beside it that lists them",
            RunFolder::CONFIG
        ))),
        false => Ok(vocabulary),
    }
}

/// The weights file for a path: for the folder of a run its best weights, or the last ones if there are no best.
pub(crate) fn file(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let files = [RunFolder::BEST, RunFolder::LAST].map(|name| path.join(name));
    let found = files.into_iter().find(|file| file.symlink_metadata().is_ok());
    found.ok_or_else(|| {
        let (folder, best, last) = (shown_path(path), RunFolder::BEST, RunFolder::LAST);
        Error::failure(format!(
            "{folder}: a folder without {best} and {last}, so no run has saved its weights there"
        ))
        .help("name a weights file, or the folder that `kiln train` shows as `run folder`")
    })
}

/// The model that `config.json` beside a weights file names, or the file's metadata if `config.json` does not.
pub(crate) fn belongs_to(path: &Path, metadata: &Metadata) -> Result<Model> {
    let refused = |found: String| {
        Err(Error::usage(format!("{}: the weights {found}", shown_path(path)))
            .help(format!("name the model with --model, one of {}", names())))
    };
    let config = entry(&path.with_file_name(RunFolder::CONFIG), MODEL);
    let named = metadata.get(MODEL);
    let name = match (&config, named) {
        (Ok(Some(config)), Some(named)) if config != named => {
            let (config, named) = (shown(config), shown(named));
            return refused(format!(
                "say that they belong to `{named}`, the {} beside them to `{config}`",
                RunFolder::CONFIG
            ));
        }
        (Ok(Some(name)), _) | (_, Some(name)) => name,
        (Ok(None), None) => return refused("do not say which model they belong to".to_string()),
        (Err(reason), None) => return refused(format!("do not say which model they belong to, and {reason}")),
    };
    match Model::from_name(name) {
        Some(model) => Ok(model),
        None => refused(format!("belong to `{}`, which this kiln does not know", shown(name))),
    }
}

/// The names of all models, separated by commas.
fn names() -> String {
    Model::ALL.map(Model::name).join(", ")
}

/// A string entry of a run's `config.json`; `None` if the file or the entry does not exist.
pub(crate) fn entry(path: &Path, name: &str) -> Result<Option<String>, String> {
    /// The largest size that is read: far more than a run writes.
    const MAX_BYTES: u64 = 1 << 20;
    let failed = |e: &dyn std::fmt::Display| format!("{} cannot be read: {e}", shown_path(path));
    let (file, size) = match open_regular(path) {
        Ok(opened) => opened,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(&e)),
    };
    if size > MAX_BYTES {
        return Err(failed(&format!("{size} bytes are no run's configuration")));
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text).map_err(|e| failed(&e))?;
    let config: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| failed(&shown(&e.to_string()).sentence()))?;
    Ok(config.get(name).and_then(|text| text.as_str()).map(str::to_string))
}

fn failed(error: WeightsError) -> Error {
    let help = match error.root() {
        WeightsError::Misfit(_) => Some("was it saved by another model? name that one with --model"),
        WeightsError::Format { .. } => Some("a run saves best.safetensors and last.safetensors in its folder"),
        WeightsError::NonFinite { .. } => {
            Some("kiln saves finite weights alone: was the file changed or made elsewhere?")
        }
        _ => None,
    };
    let failure = Error::failure(error.to_string());
    match help {
        Some(help) => failure.help(help),
        None => failure,
    }
}
