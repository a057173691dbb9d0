//! Finding the samples a model is trained and measured on.

use crate::args::DataArgs;
use crate::error::{Error, Result};
use crate::models::ModelName;
use crate::output::thousands;
use kiln_data::{BadRecords, ByteImages, Compose, Dataset, Normalise, Split, Synthetic, ToFloat, cifar, mnist};
use kiln_files::shown_path;
use std::path::Path;
use std::sync::Arc;

/// A training set and the set held back from it.
pub(crate) struct Data {
    pub(crate) train: Arc<dyn Dataset>,
    pub(crate) test: Arc<dyn Dataset>,
    /// What it is, for people.
    pub(crate) about: String,
}

impl Data {
    /// Bad records that were left out.
    pub(crate) fn skipped(&self) -> u64 {
        skipped(&self.train) + skipped(&self.test)
    }
}

/// Bad records of a dataset that were left out.
pub(crate) fn skipped(data: &Arc<dyn Dataset>) -> u64 {
    data.skipped().map_or(0, |s| s.count())
}

/// Reads the dataset of `model` that the command line asks for.
pub(crate) fn load(model: ModelName, args: &DataArgs, seed: u64) -> Result<Data> {
    let (source, bad) = (Source::of(model, args)?, policy(args));
    let (train, test) = match &source {
        Source::Synthetic(n) => (synthetic(model, *n, 0, seed)?, synthetic(model, *n, 1, seed)?),
        Source::Mnist(dir) => both(mnist::folder(dir, bad)?),
        Source::Cifar(dir) => both(cifar::folder(dir, bad)?),
        Source::Digits => both(mnist::embedded()?),
    };
    check(model, &train, &source)?;
    check(model, &test, &source)?;
    let (n, held) = (thousands(train.len() as u64), thousands(test.len() as u64));
    Ok(Data {
        train,
        test,
        about: format!("{source}: {n} to train, {held} held back"),
    })
}

/// Reads the half of that dataset that is held back from training, and says what it is. The other half need not exist.
pub(crate) fn load_test(model: ModelName, args: &DataArgs, seed: u64) -> Result<(Arc<dyn Dataset>, String)> {
    let (source, bad) = (Source::of(model, args)?, policy(args));
    let test: Arc<dyn Dataset> = match &source {
        Source::Synthetic(n) => synthetic(model, *n, 1, seed)?,
        Source::Mnist(dir) => Arc::new(mnist::test_folder(dir, bad)?),
        Source::Cifar(dir) => Arc::new(cifar::test_folder(dir, bad)?),
        Source::Digits => Arc::new(mnist::embedded()?.test),
    };
    check(model, &test, &source)?;
    Ok((test, format!("{source}, the images held back")))
}

/// Where samples come from.
enum Source<'a> {
    /// That many made-up images to train on.
    Synthetic(usize),
    Mnist(&'a Path),
    Cifar(&'a Path),
    /// The digits inside this program.
    Digits,
}

impl<'a> Source<'a> {
    fn of(model: ModelName, args: &'a DataArgs) -> Result<Self> {
        Ok(match (&args.data, args.synthetic, model) {
            (_, Some(n), _) => Source::Synthetic(n as usize),
            (Some(dir), None, ModelName::MnistCnn) => Source::Mnist(dir),
            (Some(dir), None, ModelName::Lenet) => Source::Cifar(dir),
            (None, None, ModelName::MnistCnn) => Source::Digits,
            (None, None, ModelName::Lenet) => {
                return Err(Error::usage("lenet needs CIFAR-10, which kiln does not ship").help(
                    "download https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, unpack it and pass \
                     --data cifar-10-batches-bin; or try the model on made-up images with --synthetic",
                ));
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
        }
    }
}

fn policy(args: &DataArgs) -> BadRecords {
    match args.skip_bad {
        true => BadRecords::Skip,
        false => BadRecords::Refuse,
    }
}

fn both(split: Split<ByteImages>) -> (Arc<dyn Dataset>, Arc<dyn Dataset>) {
    (Arc::new(split.train), Arc::new(split.test))
}

/// Made-up images: `n` to train on as part 0, a fifth as many to measure on as part 1.
fn synthetic(model: ModelName, n: usize, part: u32, seed: u64) -> Result<Arc<dyn Dataset>> {
    let spec = model.spec();
    let count = if part == 0 { n } else { n.div_ceil(5) };
    Ok(Arc::new(
        Synthetic::images(count, &spec.input, spec.classes, seed)?.part(part),
    ))
}

/// Refuses images that the model does not take.
fn check(model: ModelName, data: &Arc<dyn Dataset>, source: &Source<'_>) -> Result<()> {
    let spec = model.spec();
    match data.shape() {
        Some(shape) if shape.dims() != spec.input => Err(Error::failure(format!(
            "{source}: images are {shape:?}, {model} takes {:?}",
            spec.input
        ))),
        _ => Ok(()),
    }
}

/// What turns raw pixels into the model's input.
pub(crate) fn transform(model: ModelName) -> Result<Compose> {
    let scaled = Compose::new().then(ToFloat);
    Ok(match model.spec().normalise {
        Some((mean, deviation)) => scaled.then(Normalise::new(&[mean], &[deviation])?),
        None => scaled,
    })
}
