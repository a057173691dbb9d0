//! Loading of saved weights into the model that they belong to.

use crate::args::WeightsArgs;
use crate::config::Settings;
use crate::error::{Error, Result};
use kiln_core::Backend;
use kiln_data::{DataKind, Fact, Facts, Sizes, Tokens};
use kiln_files::{open_regular, shown, shown_path};
use kiln_models::{Model, Net, published};
use kiln_nn::lora::{self, LoraOptions};
use kiln_nn::weights::{Layout, LoadOptions, LoadReport, Metadata, WeightsError, WeightsFile};
use kiln_nn::{Init, Module, Shape};
use kiln_train::RunFolder;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The entry with the model's name, in a weight file's metadata and in `config.json`.
const MODEL: &str = "model";

/// The entry of `config.json` with the facts about the data that a network was trained on.
pub(crate) const FACTS: &str = "facts";

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
    /// The dataset that it was trained on.
    pub(crate) data: DataKind,
    /// Facts about the data that it was trained on.
    pub(crate) facts: Facts,
}

impl<B: Backend> Saved<B> {
    /// The tokens of the text that it was trained on, of which a tokenizer is read from the file beside the weights; `None` for
    /// networks of other data.
    pub(crate) fn tokens(&self) -> Result<Option<Tokens>> {
        if !self.facts.has(Facts::VOCABULARY) {
            return Ok(None);
        }
        let read = Tokens::of_facts(&self.facts, &tokenizer_file(&self.path));
        read.map(Some).map_err(|e| {
            Error::from(e)
                .context(format!("the tokens of {}", shown_path(&self.path)))
                .help(format!(
                    "{TOKENIZER} lies in the folder of the run that trained it; keep the two files together"
                ))
        })
    }

    /// As [`tokens`](Saved::tokens), for networks of texts.
    pub(crate) fn text_tokens(&self) -> Result<Tokens> {
        self.tokens()?.ok_or_else(|| {
            Error::failure(format!(
                "{}: the tokens of its texts are not known",
                shown_path(&self.path)
            ))
        })
    }
}

/// The tokenizer in the folder of a run on the tokens of a text.
pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// The tokenizer of the network whose weights are at `path`.
pub(crate) fn tokenizer_file(path: &Path) -> PathBuf {
    path.with_file_name(TOKENIZER)
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
    let mut facts = facts_for(&path, model)?;
    let mut net = match additions(&path)? {
        None => model.build_for(backend, 0, facts.sizes())?,
        Some((base, lora)) => adapted(&base, model, &lora, 0, backend)
            .map_err(|e| e.context(format!("{}, which adapts other weights", shown_path(&path))))?,
    };
    if let Err(e) = fill(&mut weights, &mut net, backend) {
        let other = match misfit(&e).is_some() && !facts.has(Facts::IMAGE) {
            true => of_another_size(&mut weights, model, &facts, backend)?,
            false => None,
        };
        let fits = other.ok_or_else(|| failed(e).context(format!("loading {model}")))?;
        (net, facts) = fits;
    }
    lora::remove(&mut net)?;
    net.eval();
    Ok(Saved {
        data: dataset(&path, model),
        path,
        model,
        net,
        facts,
    })
}

/// The model built for images of another size than its own, with the weights of a file that has no `config.json` beside it to tell the size,
/// and the facts with this size; `None` if they fit no size.
fn of_another_size<B: Backend>(
    file: &mut WeightsFile<File>,
    model: Model,
    facts: &Facts,
    backend: &B,
) -> Result<Option<(Net<B>, Facts)>> {
    for shape in model.input().other_shapes() {
        let facts = facts.clone().with_image(&shape);
        let mut net = model.build_for(backend, 0, facts.sizes())?;
        match fill(file, &mut net, backend) {
            Ok(()) => return Ok(Some((net, facts))),
            Err(e) if misfit(&e).is_some() => (),
            Err(e) => return Err(failed(e).context(format!("loading {model}"))),
        }
    }
    Ok(None)
}

/// Loads a file of all weights of a net, in Kiln's layout or PyTorch's and by the names of published weights too, or of its additions and
/// what trains beside them.
pub(crate) fn fill<B: Backend>(
    file: &mut WeightsFile<File>,
    net: &mut Net<B>,
    backend: &B,
) -> Result<(), WeightsError> {
    if lora::is_adapted(net) {
        return lora::load_state_dict(net, &file.state_dict(backend)?, LoadOptions::strict());
    }
    // PyTorch's libraries say that a file is theirs.
    let layouts = match file.metadata().get("format").map(String::as_str) {
        Some("pt") => [Layout::Torch, Layout::Kiln],
        _ => [Layout::Kiln, Layout::Torch],
    };
    let strict = |layout| LoadOptions::strict().layout(layout);
    match file.load_into(net, strict(layouts[0])) {
        Err(own) if misfit(&own).is_some() && is_foreign(file.metadata()) => {}
        read => return read.map(|_| ()),
    }
    let dict = published(&file.state_dict(backend)?, net.state_dict().names());
    // The layout with fewer other shapes is the file's.
    let others = |e: &WeightsError| misfit(e).map_or(0, |report| report.mismatched.len());
    let mut read = |layout| net.load_state_dict(&dict, strict(layout)).map(|_| ());
    match read(layouts[0]) {
        Err(one) if others(&one) > 0 => {
            read(layouts[1]).map_err(|other| if others(&other) < others(&one) { other } else { one })
        }
        read => read,
    }
}

fn misfit(error: &WeightsError) -> Option<&LoadReport> {
    match error.root() {
        WeightsError::Misfit(report) => Some(report),
        _ => None,
    }
}

/// True if weights may be of another program: a run's file names its model.
fn is_foreign(metadata: &Metadata) -> bool {
    !metadata.contains_key(MODEL)
}

/// The network that a run starts with: of random weights, of those of `--init-from` if it `begins` with them, with additions if it
/// trains these.
pub(crate) fn begin<B: Backend>(settings: &Settings, sizes: Sizes, begins: bool, backend: &B) -> Result<Net<B>> {
    let model = settings.model;
    let Some(base) = settings.init_from.as_ref().filter(|_| begins) else {
        return Ok(model.build_for(backend, settings.seed, sizes)?);
    };
    if let Some(lora) = &settings.lora {
        return adapted(base, model, &lora.options(), settings.seed, backend);
    }
    let mut net = model.build_for(backend, settings.seed, sizes)?;
    if !is_of(base, model)? {
        take(&mut net, model, base, backend)?;
        return Ok(net);
    }
    let saved = of(base, model, backend)?;
    let weights = saved.net.state_dict();
    let fits = net.load_state_dict(&weights, LoadOptions::strict());
    fits.map_err(|e| failed(e).context(format!("starting from {}", shown_path(&saved.path))))?;
    Ok(net)
}

/// The network of other weights with additions that are 0.
fn adapted<B: Backend>(base: &Path, model: Model, options: &LoraOptions, seed: u64, backend: &B) -> Result<Net<B>> {
    /// Additions draw other numbers than the network that they are for.
    const OF_ADDITIONS: u64 = 0x6c6f_7261;
    let mut net = of(base, model, backend)?.net;
    net.train();
    options.adapt(&mut Init::new(backend, seed ^ OF_ADDITIONS), &mut net)?;
    Ok(net)
}

/// True if the weights of a file or a run say that they belong to this model.
fn is_of(path: &Path, model: Model) -> Result<bool> {
    let path = file(path)?;
    let weights = WeightsFile::open(&path).map_err(failed)?;
    Ok(belongs_to(&path, weights.metadata()).is_ok_and(|its| its == model))
}

/// Takes the weights of another model's file or run, or of a file of PyTorch's, into a new network, as far as it has parameters of their
/// names. Of networks of images the heads of other numbers of classes stay as they are.
fn take<B: Backend>(net: &mut Net<B>, model: Model, path: &Path, backend: &B) -> Result<()> {
    let path = file(path)?;
    let mut weights = WeightsFile::open(&path).map_err(failed)?;
    let foreign = is_foreign(weights.metadata());
    let mut dict = weights.state_dict(backend).map_err(failed)?;
    if foreign {
        dict = published(&dict, net.state_dict().names());
    }
    let options = LoadOptions::partial();
    let mut report = net.load_state_dict(&dict, options).map_err(failed)?;
    if foreign && !report.mismatched.is_empty() {
        report = net
            .load_state_dict(&dict, options.layout(Layout::Torch))
            .map_err(failed)?;
    }
    let shown = shown_path(&path);
    let shapes: HashMap<String, Shape> = net
        .named_parameters()
        .into_iter()
        .map(|(n, p)| (n, *p.shape()))
        .collect();
    let inputs = |shape: &Shape| {
        let mut inputs = shape.get(1..).unwrap_or_default().to_vec();
        inputs.sort_unstable();
        inputs
    };
    let is_head = |name: &String| match (dict.get(name), shapes.get(name)) {
        (Some(its), Some(own)) => model.input().image().is_some() && inputs(its.shape()) == inputs(own),
        _ => false,
    };
    if let Some(other) = report.mismatched.iter().find(|other| !is_head(&other.name)) {
        return Err(Error::failure(format!(
            "{shown}: `{}` has another shape than in the network",
            other.name
        ))
        .help("start from weights of a network of the same sizes; of texts, of the same tokenizer"));
    }
    if report.loaded.is_empty() {
        let none = Error::failure(format!("{shown}: there is nothing in it that the network has"));
        return Err(none.help("`kiln summary MODEL` lists the names of its parameters"));
    }
    Ok(())
}

/// The saved network of `model` at a path.
fn of<B: Backend>(path: &Path, model: Model, backend: &B) -> Result<Saved<B>> {
    let args = WeightsArgs {
        weights: path.to_path_buf(),
        model: Some(model),
    };
    load(&args, backend)
}

/// The weights and the additions to them that `config.json` beside a weights file says that the file is of.
fn additions(path: &Path) -> Result<Option<(PathBuf, LoraOptions)>> {
    let config = path.with_file_name(RunFolder::CONFIG);
    // One that cannot be read is told of where something in it is needed.
    let Ok(Some(found)) = read_config(&config) else {
        return Ok(None);
    };
    let Some(text) = found.get("lora").and_then(Value::as_str) else {
        return Ok(None);
    };
    let wrong = |why: &str| Error::failure(format!("{}: `lora`: {}", shown_path(&config), shown(why)));
    let lora: crate::config::Lora = text.parse().map_err(|why: String| wrong(&why))?;
    let base = found.get("init_from").and_then(Value::as_str);
    let base = base.ok_or_else(|| wrong("there is no `init_from`, the weights that are adapted"))?;
    Ok(Some((PathBuf::from(base), lora.options())))
}

/// The facts about the data of the network at a path, if it is of this model, and its tokenizer, if they are beside it.
pub(crate) fn known_data(path: &Path, model: Model) -> Result<(Option<Facts>, Option<PathBuf>)> {
    let file = file(path)?;
    let facts = match is_of(path, model)? {
        true => facts(&file.with_file_name(RunFolder::CONFIG)).map_err(Error::failure)?,
        false => Facts::default(),
    };
    let tokenizer = file.with_file_name(TOKENIZER);
    let is_there = tokenizer.symlink_metadata().is_ok();
    Ok(((!facts.is_empty()).then_some(facts), is_there.then_some(tokenizer)))
}

/// Reads the best weights of the run of `model` in a folder.
pub(crate) fn best_of<B: Backend>(folder: &Path, model: Model, backend: &B) -> Result<Saved<B>> {
    of(folder, model, backend)
}

/// Facts about the data that the network whose weights are at `path` was trained on, from `config.json` beside them.
pub(crate) fn facts_for(path: &Path, model: Model) -> Result<Facts> {
    let refused = |what: &str, why: String| {
        Error::failure(format!(
            "{}: {model} needs the {what} of the data that it was trained on, and {why}",
            shown_path(path)
        ))
        .help("name the folder of the run that trained it")
    };
    let needed = model.recipe().data.card().facts;
    let what = needed.join(" and ");
    let found = facts(&path.with_file_name(RunFolder::CONFIG));
    let beside = tokenizer_file(path);
    let facts = match (found, needed.is_empty()) {
        // Weights of other programs have their tokenizer beside them.
        (Ok(facts), _) if facts.is_empty() && needed == [Facts::VOCABULARY] && beside.is_file() => {
            Tokens::open(&beside)?.facts()
        }
        (Ok(facts), _) => facts,
        (Err(_), true) => Facts::default(),
        (Err(why), false) => return Err(refused(&what, why)),
    };
    match needed.iter().all(|name| facts.has(name)) {
        true => Ok(facts),
        false => Err(refused(
            &what,
            format!(
                "there is no {} beside it that lists them, nor {TOKENIZER}",
                RunFolder::CONFIG
            ),
        )),
    }
}

/// The facts in a run's `config.json`; none if there is no such file or entry.
pub(crate) fn facts(config: &Path) -> Result<Facts, String> {
    let Some(mut config) = read_config(config)? else {
        return Ok(Facts::default());
    };
    // Runs of earlier versions have the characters of a text as an entry of its own.
    if let Some(characters) = config.get(Facts::VOCABULARY).and_then(Value::as_str) {
        return Ok(Facts::default().with(Facts::VOCABULARY, Fact::Text(characters.to_string())));
    }
    match config.get_mut(FACTS).map(Value::take) {
        Some(found) => serde_json::from_value(found).map_err(|e| format!("its `{FACTS}` cannot be read: {e}")),
        None => Ok(Facts::default()),
    }
}

/// The dataset that the network whose weights are at `path` was trained on: that in `config.json` beside them, if its samples are the
/// network's, else that of the recipe.
fn dataset(path: &Path, model: Model) -> DataKind {
    let config = read_config(&path.with_file_name(RunFolder::CONFIG)).ok().flatten();
    let named = config.as_ref().and_then(|config| config["data"]["format"].as_str());
    let trained = named.and_then(DataKind::from_name);
    trained
        .filter(|kind| kind.card().samples == model.input().kind)
        .unwrap_or(model.recipe().data)
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
fn entry(path: &Path, name: &str) -> Result<Option<String>, String> {
    let config = read_config(path)?;
    let text = config.as_ref().and_then(|config| config.get(name)?.as_str());
    Ok(text.map(str::to_string))
}

/// A run's `config.json`; `None` if there is no such file.
fn read_config(path: &Path) -> Result<Option<Value>, String> {
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
    let config = serde_json::from_slice(&text).map_err(|e| failed(&shown(&e.to_string()).sentence()))?;
    Ok(Some(config))
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
