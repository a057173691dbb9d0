//! The datasets that models are trained and evaluated on, by the table of datasets.

use crate::config::{DataArgs, ImageSize, Settings, Small};
use crate::error::{Error, Result};
use crate::output::{counted, thousands};
use crate::weights;
use kiln_core::Backend;
use kiln_data::{
    BadRecords, DataKind, Dataset, DatasetCard, Draw, Facts, LoaderOptions, MadeUp, Opened, Request, Sample, Shared,
    Sizes, Subset, TokenizerChoice, Tokens, Transform,
};
use kiln_files::shown_path;
use kiln_models::{Batches, Model, OutputKind};
use kiln_nn::Tensor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A training set and the set held back from it.
pub(crate) struct Data {
    pub(crate) train: Shared,
    pub(crate) test: Shared,
    /// The dataset's row of the table; `None` for samples that are made up.
    pub(crate) kind: Option<DataKind>,
    /// Facts that a network is built and asked with.
    pub(crate) facts: Facts,
    /// A description in one line.
    pub(crate) description: String,
}

impl Data {
    /// Bad records that were left out.
    pub(crate) fn skipped(&self) -> u64 {
        skipped(&self.train) + skipped(&self.test)
    }

    /// The first `train` samples to train on, and the first `test` of those held back.
    pub(crate) fn first(mut self, train: usize, test: usize) -> Result<Self> {
        self.train = first(self.train, train)?;
        self.test = first(self.test, test)?;
        Ok(self)
    }

    /// The first `samples` samples, to train on and to measure on.
    pub(crate) fn overfitted(mut self, samples: usize) -> Result<Self> {
        self.train = first(self.train, samples)?;
        self.test = self.train.clone();
        Ok(self)
    }

    /// The tokens of a text; `None` for other data.
    pub(crate) fn tokens(&self) -> Option<&Tokens> {
        self.train.tokens()
    }

    /// The sizes of a network for it.
    pub(crate) fn sizes(&self) -> Sizes {
        self.facts.sizes()
    }
}

/// The first samples of a dataset, at most so many.
pub(crate) fn first(data: Shared, samples: usize) -> Result<Shared> {
    let samples = samples.min(data.len());
    Ok(Arc::new(Subset::new(data, (0..samples).collect())?))
}

/// Bad records of a dataset that were left out.
pub(crate) fn skipped(data: &Shared) -> u64 {
    data.skipped().map_or(0, |s| s.count())
}

/// Reads the dataset of `model` that the command line asks for.
pub(crate) fn load(model: Model, args: &DataArgs, seed: u64) -> Result<Data> {
    load_known(model, args, seed, None, None)
}

/// As [`load`], for a run of these settings: by the characters or the tokens of the network that it starts from, if it starts from one,
/// and if it goes on, by the tokenizer that it began with, in the file `tokenizer`.
pub(crate) fn load_again(settings: &Settings, tokenizer: Option<PathBuf>) -> Result<Data> {
    let (args, seed) = (&settings.data, settings.seed);
    let Some(path) = &settings.init_from else {
        return load_known(settings.model, args, seed, tokenizer, None);
    };
    let (facts, its) = weights::known_data(path, settings.model)?;
    let tokenizer = tokenizer.or(its.filter(|_| args.tokenizer.is_none()));
    load_known(settings.model, args, seed, tokenizer, facts.as_ref())
}

fn load_known(
    model: Model,
    args: &DataArgs,
    seed: u64,
    tokenizer: Option<PathBuf>,
    facts: Option<&Facts>,
) -> Result<Data> {
    let tokenizer = tokenizer.map(TokenizerChoice::File);
    let tokenizer = tokenizer.as_ref().or(args.tokenizer.as_ref());
    let (source, mut opened) = match args.synthetic {
        Some(count) => (Source::MadeUp(model), made_up(model, args, count, seed, facts)?),
        None => {
            let kind = kind(model, args)?;
            let image = Image::of(model, args, Some(kind), facts)?;
            let opened = (kind.card().open)(&request(model, args, kind, tokenizer, &image, facts)?)?;
            (Source::Files(kind, args), opened)
        }
    };
    for part in [&opened.train, &opened.test] {
        check(model, part, &opened.facts, &source)?;
    }
    if let (Some(shape), Some(own)) = (opened.train.shape(), model.input().image())
        && shape.dims() != own
    {
        opened.facts = opened.facts.with_image(shape.dims());
    }
    let noun = model.input().noun();
    let about = match opened.facts.described() {
        about if about.is_empty() => about,
        about => format!("{about}, "),
    };
    let (train, held) = (
        counted(opened.train.len() as u64, noun),
        thousands(opened.test.len() as u64),
    );
    Ok(Data {
        description: format!("{source}: {about}{train} to train, {held} held back"),
        kind: source.kind(),
        train: opened.train,
        test: opened.test,
        facts: opened.facts,
    })
}

/// Reads the part of that dataset that is held back from training, and describes it. Files of the training part need not
/// exist. `facts` are those of the trained model, whose weights are at `weights`.
pub(crate) fn load_test(
    model: Model,
    args: &DataArgs,
    seed: u64,
    facts: &Facts,
    weights: &Path,
) -> Result<(Shared, String)> {
    let (source, test) = match args.synthetic {
        Some(count) => (
            Source::MadeUp(model),
            made_up(model, args, count, seed, Some(facts))?.test,
        ),
        None => {
            let kind = kind(model, args)?;
            let known = (!facts.is_empty()).then_some(facts);
            let own = facts
                .tokens()
                .map(|_| TokenizerChoice::File(weights::tokenizer_file(weights)));
            let tokenizer = match &args.tokenizer {
                None => own.as_ref(),
                Some(TokenizerChoice::File(_)) => args.tokenizer.as_ref(),
                Some(TokenizerChoice::Characters) if own.is_none() => args.tokenizer.as_ref(),
                Some(choice) if known.is_some() => {
                    let its = if own.is_some() {
                        "the tokens of its tokenizer"
                    } else {
                        "characters"
                    };
                    let help = "leave it out: what was learned from the text lies beside the weights";
                    return Err(Error::usage(format!("--tokenizer {choice}: the network reads {its}")).help(help));
                }
                learned => learned.as_ref(),
            };
            let image = Image::of(model, args, Some(kind), Some(facts))?;
            let test = (kind.card().held_back)(&request(model, args, kind, tokenizer, &image, known)?)?;
            (Source::Files(kind, args), test)
        }
    };
    check(model, &test, facts, &source)?;
    Ok((test, format!("{source}, the {}s held back", model.input().noun())))
}

/// The source of samples.
enum Source<'a> {
    MadeUp(Model),
    Files(DataKind, &'a DataArgs),
}

impl Source<'_> {
    fn kind(&self) -> Option<DataKind> {
        match self {
            Source::MadeUp(_) => None,
            Source::Files(kind, _) => Some(*kind),
        }
    }
}

impl std::fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::MadeUp(model) => write!(f, "made-up {}s", model.input().noun()),
            Source::Files(kind, args) => match &args.path {
                Some(path) => write!(f, "{} {}", kind.card().files, shown_path(path)),
                None => f.write_str(kind.card().ships.unwrap_or(kind.card().title)),
            },
        }
    }
}

/// Samples that are made up: so many to train on, and a fifth as many that are held back. `trained` are the facts of the data that the
/// network was trained on.
fn made_up(model: Model, args: &DataArgs, count: Small, seed: u64, trained: Option<&Facts>) -> Result<Opened> {
    let image = Image::of(model, args, None, trained)?;
    let input = model.input();
    Ok((input.kind.synthetic)(&MadeUp {
        shape: &image.shape,
        ..input.made_up(count.get() as usize, model.outputs().max(1), seed)
    })?)
}

/// The dataset that the command line means: the one that it names, else the first that looks like the path, the model's own before
/// others.
pub(crate) fn kind(model: Model, args: &DataArgs) -> Result<DataKind> {
    let (own, wanted) = (model.recipe().data, model.input().kind);
    let fits = || DataKind::of(wanted);
    match (args.format, &args.path) {
        (Some(kind), _) if kind.card().samples != wanted => {
            let names: Vec<&str> = fits().map(DataKind::name).collect();
            Err(Error::usage(format!(
                "{model} takes {}, and {} gives {}s",
                model.input(),
                kind.name(),
                kind.card().samples.noun
            ))
            .help(format!("its formats are {}; see `kiln datasets`", names.join(", "))))
        }
        (Some(kind), _) => Ok(kind),
        (None, None) => Ok(own),
        (None, Some(path)) => {
            let mut all = std::iter::once(own).chain(fits());
            Ok(all.find(|kind| (kind.card().recognises)(path)).unwrap_or(own))
        }
    }
}

/// The arguments that name files of a dataset: `FILE.csv --target COLUMN`.
pub(crate) fn example(card: &DatasetCard) -> String {
    match card.has_target {
        true => format!("{} --target COLUMN", card.example),
        false => card.example.to_string(),
    }
}

/// The shape of the samples that a network takes, and the sides of squares that it can be built for too.
struct Image {
    shape: Vec<usize>,
    sides: &'static [usize],
}

impl Image {
    /// That of the command line, else that of the network that was trained on data of these facts, else the network's own or the data's.
    fn of(model: Model, args: &DataArgs, kind: Option<DataKind>, trained: Option<&Facts>) -> Result<Self> {
        let input = model.input();
        let one = |shape: &[usize]| Image {
            shape: shape.to_vec(),
            sides: &[],
        };
        let Some(size) = args.image_size.map(ImageSize::shape) else {
            return Ok(match trained {
                Some(facts) => one(facts.sizes().image.as_ref().map_or(input.shape, |image| &image[..])),
                None => Image {
                    shape: input.shape.to_vec(),
                    sides: input.sides,
                },
            });
        };
        let asked = format!("--image-size {}x{}x{}", size[0], size[1], size[2]);
        if input.sides.is_empty() {
            return Err(Error::usage(format!("{asked}: {model} takes {input}, of no other size")).help("leave it out"));
        }
        if let Some(kind) = kind.filter(|kind| kind.card().shape.is_some()) {
            let title = kind.card().title;
            return Err(Error::usage(format!("{asked}: the images of {title} are of one size")).help("leave it out"));
        }
        if !input.fits(&size) {
            let sides: Vec<String> = input.sides.iter().map(usize::to_string).collect();
            return Err(Error::usage(format!(
                "{asked}: {model} is built for squares of {} pixels",
                sides.join(", ")
            ))
            .help("choose one of them; images are scaled to it"));
        }
        Ok(one(&size))
    }
}

/// The files of a dataset, which have to be named unless it ships with kiln.
fn request<'a>(
    model: Model,
    args: &'a DataArgs,
    kind: DataKind,
    tokenizer: Option<&'a TokenizerChoice>,
    image: &'a Image,
    facts: Option<&'a Facts>,
) -> Result<Request<'a>> {
    let card = kind.card();
    if tokenizer.is_some() && !card.facts.contains(&Facts::VOCABULARY) {
        return Err(
            Error::usage(format!("{} has no texts to cut into tokens", card.title)).help("leave --tokenizer out")
        );
    }
    if args.path.is_none() && card.ships.is_none() {
        return Err(
            Error::usage(format!("{model} needs {}, which kiln does not ship", card.title)).help(format!(
                "{} and pass it with --data {}; or try the model on made-up {}s with --synthetic",
                card.obtain,
                example(card),
                card.samples.noun
            )),
        );
    }
    if card.has_target && args.target.is_none() && facts.is_none() {
        return Err(
            Error::usage(format!("{} needs the name of the column to predict", card.title))
                .help("name it with --target COLUMN"),
        );
    }
    if !card.has_target && args.target.is_some() {
        return Err(
            Error::usage(format!("{} has no columns to name one with --target", card.title)).help("leave it out"),
        );
    }
    Ok(Request {
        path: args.path.as_deref(),
        shape: &image.shape,
        sides: image.sides,
        own_size: model.recipe().crops_own_sizes(),
        target: args.target.as_deref(),
        tokenizer,
        bad: match args.skip_bad.unwrap_or_default() {
            true => BadRecords::Skip,
            false => BadRecords::Refuse,
        },
        facts,
    })
}

/// Refuses images whose shape is not that of the model's input, which is that of its data, else one that it can be built for; and those
/// of more classes than a network for data of these facts has, clips as well.
fn check(model: Model, data: &Shared, facts: &Facts, source: &Source<'_>) -> Result<()> {
    if let Some(input) = model.input().image() {
        let input = facts.sizes().image.unwrap_or(input);
        let fits = |dims: &[usize]| dims == input || (!facts.has(Facts::IMAGE) && model.input().fits(dims));
        if let Some(shape) = data.shape().filter(|shape| !fits(shape.dims())) {
            return Err(Error::failure(format!(
                "{source}: images are {shape:?}, {model} takes {input:?}"
            )));
        }
    } else if model.input().clip().is_none() {
        return Ok(());
    }
    let outputs = facts.sizes().outputs.unwrap_or(model.outputs());
    if !matches!(model.card().output, OutputKind::Classes(_)) {
        return Ok(());
    }
    match data.classes() {
        None => Err(Error::failure(format!(
            "{source}: they have no classes, and {model} tells classes apart"
        ))
        .help("put the images of each class into a folder of its own")),
        Some(classes) if classes > outputs => Err(Error::failure(format!(
            "{source}: there are {classes} classes, and the network tells {outputs} apart"
        ))),
        Some(_) => Ok(()),
    }
}

/// The names of the classes of the data that a model is trained on.
pub(crate) fn class_names(model: Model, data: &dyn Dataset<Sample = Sample>) -> Vec<String> {
    match data.class_names() {
        [] => (0..data.classes().unwrap_or(model.outputs()))
            .map(|c| c.to_string())
            .collect(),
        names => names.to_vec(),
    }
}

/// The names of the classes of a trained model: those of its facts, else those of its dataset, else their numbers.
pub(crate) fn names_of<B: Backend>(saved: &weights::Saved<B>) -> Vec<String> {
    let outputs = saved.facts.sizes().outputs.unwrap_or(saved.model.outputs());
    match (saved.facts.names(Facts::CLASSES), saved.data.card().classes) {
        (Some(names), _) => names.to_vec(),
        (None, []) => (0..outputs).map(|class| class.to_string()).collect(),
        (None, names) => names.iter().map(|name| name.to_string()).collect(),
    }
}

/// The samples of a pass without augmentation, in the order of the data.
pub(crate) fn in_order(model: Model, dataset: Shared, batch_size: usize, workers: usize) -> Result<Batches> {
    Ok(Batches {
        dataset,
        options: LoaderOptions {
            batch_size,
            workers,
            ..Default::default()
        },
        transform: model.transform(None)?,
    })
}

/// The first `count` samples as the input `[N, H, W, C]` of a model of images.
pub(crate) fn images<B: Backend>(
    backend: &B,
    model: Model,
    dataset: &dyn Dataset<Sample = Sample>,
    count: usize,
) -> Result<Tensor<B>> {
    let transform = model.transform(None)?;
    let count = count.min(dataset.len());
    let (mut values, mut shape) = (Vec::new(), vec![count]);
    for index in 0..count {
        let mut sample = dataset.get(index)?;
        transform.apply(&mut sample, &Draw::new(0, 0, index))?;
        shape.truncate(1);
        shape.extend(sample.shape.iter());
        values.extend(sample.input);
    }
    Ok(Tensor::from_slice(backend, &values, &shape)?)
}
