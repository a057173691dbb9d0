//! The datasets that models are trained and evaluated on.

use crate::config::DataArgs;
use crate::error::{Error, Result};
use crate::output::thousands;
use kiln_data::{BadRecords, Dataset, LoaderOptions, Sample, Split, Subset, TextFile, Vocabulary, cifar, mnist};
use kiln_files::shown_path;
use kiln_models::{Batches, DataKind, InputKind, Model};
use std::path::Path;
use std::sync::Arc;

/// A training set and the set held back from it.
pub(crate) struct Data {
    pub(crate) train: Arc<dyn Dataset<Sample = Sample>>,
    pub(crate) test: Arc<dyn Dataset<Sample = Sample>>,
    /// A description in one line.
    pub(crate) description: String,
    /// The characters of a text; `None` for images.
    pub(crate) vocabulary: Option<Vocabulary>,
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

    /// Number of classes, or of characters of a text.
    pub(crate) fn classes(&self, model: Model) -> usize {
        self.vocabulary.as_ref().map_or(model.classes(), Vocabulary::len)
    }
}

fn first(data: Arc<dyn Dataset<Sample = Sample>>, samples: usize) -> Result<Arc<dyn Dataset<Sample = Sample>>> {
    let samples = samples.min(data.len());
    Ok(Arc::new(Subset::new(data, (0..samples).collect())?))
}

/// Bad records of a dataset that were left out.
pub(crate) fn skipped(data: &Arc<dyn Dataset<Sample = Sample>>) -> u64 {
    data.skipped().map_or(0, |s| s.count())
}

/// Reads the dataset of `model` that the command line asks for.
pub(crate) fn load(model: Model, args: &DataArgs, seed: u64) -> Result<Data> {
    let (source, bad) = (Source::of(model, args)?, policy(args));
    let mut vocabulary = None;
    let (train, test) = match &source {
        Source::Synthetic(n) => (synthetic(model, *n, 0, seed)?, synthetic(model, *n, 1, seed)?),
        Source::Mnist(dir) => both(mnist::folder(dir, bad)?),
        Source::Cifar(dir) => both(cifar::folder(dir, bad)?),
        Source::Digits => both(mnist::embedded()?),
        Source::Text(path, context) => {
            let file = TextFile::open(path)?;
            let characters = vocabulary.insert(file.vocabulary());
            both(file.split(characters, *context)?)
        }
    };
    check(model, &train, &source)?;
    check(model, &test, &source)?;
    let (n, held) = (thousands(train.len() as u64), thousands(test.len() as u64));
    let description = match &vocabulary {
        None => format!("{source}: {n} to train, {held} held back"),
        Some(characters) => format!(
            "{source}: {} different characters, {n} windows to train, {held} held back",
            characters.len()
        ),
    };
    Ok(Data {
        train,
        test,
        description,
        vocabulary,
    })
}

/// Reads the part of that dataset that is held back from training, and describes it. Files of the training part need not
/// exist; of a text, the end is held back. `vocabulary` is that of the trained model.
pub(crate) fn load_test(
    model: Model,
    args: &DataArgs,
    seed: u64,
    vocabulary: Option<&Vocabulary>,
) -> Result<(Arc<dyn Dataset<Sample = Sample>>, String)> {
    let (source, bad) = (Source::of(model, args)?, policy(args));
    let test: Arc<dyn Dataset<Sample = Sample>> = match &source {
        Source::Synthetic(n) => synthetic(model, *n, 1, seed)?,
        Source::Mnist(dir) => Arc::new(mnist::test_folder(dir, bad)?),
        Source::Cifar(dir) => Arc::new(cifar::test_folder(dir, bad)?),
        Source::Digits => Arc::new(mnist::embedded()?.test),
        Source::Text(path, context) => {
            let file = TextFile::open(path)?;
            let own = file.vocabulary();
            Arc::new(file.split(vocabulary.unwrap_or(&own), *context)?.test)
        }
    };
    check(model, &test, &source)?;
    let held_back = match source {
        Source::Text(..) => "the end that is held back",
        _ => "the images held back",
    };
    Ok((test, format!("{source}, {held_back}")))
}

/// The source of samples.
enum Source<'a> {
    /// This many synthetic images to train on.
    Synthetic(usize),
    Mnist(&'a Path),
    Cifar(&'a Path),
    /// The digits inside this program.
    Digits,
    /// A text file, in windows of this many characters.
    Text(&'a Path, usize),
}

impl<'a> Source<'a> {
    fn of(model: Model, args: &'a DataArgs) -> Result<Self> {
        Ok(match (&args.path, args.synthetic, model.recipe().data, model.input()) {
            (Some(path), None, _, InputKind::Tokens(context)) => Source::Text(path, context),
            (None, Some(_), _, InputKind::Tokens(_)) => {
                return Err(
                    Error::usage(format!("{model} reads text, and --synthetic makes up images"))
                        .help("pass any text of some thousand characters with --data FILE.txt"),
                );
            }
            (_, Some(n), _, _) => Source::Synthetic(n.get() as usize),
            (Some(dir), None, DataKind::Mnist, _) => Source::Mnist(dir),
            (Some(dir), None, _, _) => Source::Cifar(dir),
            (None, None, DataKind::Mnist, _) => Source::Digits,
            (None, None, DataKind::Cifar10, _) => {
                return Err(
                    Error::usage(format!("{model} needs CIFAR-10, which kiln does not ship")).help(
                        "download https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, unpack it and pass \
                     --data cifar-10-batches-bin; or try the model on made-up images with --synthetic",
                    ),
                );
            }
            (None, None, DataKind::Text, _) => {
                return Err(Error::usage(format!("{model} needs a text, which kiln does not ship"))
                    .help("pass any text of some thousand characters with --data FILE.txt"));
            }
        })
    }
}

impl std::fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Synthetic(_) => f.write_str("made-up images"),
            Source::Mnist(dir) => write!(f, "MNIST files of {}", shown_path(dir)),
            Source::Cifar(dir) => write!(f, "CIFAR-10 of {}", shown_path(dir)),
            Source::Digits => f.write_str("the MNIST digits inside kiln"),
            Source::Text(path, _) => write!(f, "the text {}", shown_path(path)),
        }
    }
}

fn policy(args: &DataArgs) -> BadRecords {
    match args.skip_bad.unwrap_or_default() {
        true => BadRecords::Skip,
        false => BadRecords::Refuse,
    }
}

fn both<D: Dataset<Sample = Sample> + 'static>(
    split: Split<D>,
) -> (Arc<dyn Dataset<Sample = Sample>>, Arc<dyn Dataset<Sample = Sample>>) {
    (Arc::new(split.train), Arc::new(split.test))
}

/// Synthetic images: `n` to train on as part 0, a fifth as many to evaluate on as part 1.
fn synthetic(model: Model, n: usize, part: u32, seed: u64) -> Result<Arc<dyn Dataset<Sample = Sample>>> {
    let count = if part == 0 { n } else { n.div_ceil(5) };
    Ok(model.input().made_up(count, model.classes().max(1), seed, part)?)
}

/// Refuses images whose shape is not that of the model's input.
fn check(model: Model, data: &Arc<dyn Dataset<Sample = Sample>>, source: &Source<'_>) -> Result<()> {
    match (data.shape(), model.input()) {
        (Some(shape), InputKind::Images(input)) if shape.dims() != input => Err(Error::failure(format!(
            "{source}: images are {shape:?}, {model} takes {input:?}"
        ))),
        _ => Ok(()),
    }
}

/// The names of the classes of the data that a model is trained on.
pub(crate) fn class_names(model: Model, data: &dyn Dataset<Sample = Sample>) -> Vec<String> {
    match data.class_names() {
        [] => (0..model.classes()).map(|c| c.to_string()).collect(),
        names => names.to_vec(),
    }
}

/// The names of the classes of a model's recipe.
pub(crate) fn names_of_recipe(model: Model) -> Vec<String> {
    match model.recipe().data {
        DataKind::Cifar10 => cifar::CLASS_NAMES.iter().map(|n| n.to_string()).collect(),
        DataKind::Mnist | DataKind::Text => (0..model.classes()).map(|c| c.to_string()).collect(),
    }
}

/// The samples of a pass without augmentation, in the order of the data.
pub(crate) fn in_order(
    model: Model,
    dataset: Arc<dyn Dataset<Sample = Sample>>,
    batch_size: usize,
    workers: usize,
) -> Result<Batches> {
    Ok(Batches {
        dataset,
        options: LoaderOptions {
            batch_size,
            workers,
            ..Default::default()
        },
        transform: model.transform(false)?,
    })
}
