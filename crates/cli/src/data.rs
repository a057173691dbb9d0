//! Finding the samples a model is trained and measured on.

use crate::args::DataArgs;
use crate::error::{Error, Result};
use crate::models::ModelName;
use crate::output::thousands;
use kiln_data::{BadRecords, ByteImages, Compose, Dataset, Normalise, Split, Synthetic, ToFloat, cifar, mnist};
use std::sync::Arc;

/// A training set and the set held back from it.
pub(crate) struct Data {
    pub(crate) train: Arc<dyn Dataset>,
    pub(crate) test: Arc<dyn Dataset>,
    /// What it is, for people.
    pub(crate) about: String,
}

impl Data {
    fn of(split: Split<ByteImages>, about: String) -> Self {
        Data {
            train: Arc::new(split.train),
            test: Arc::new(split.test),
            about,
        }
    }

    /// Bad records that were left out.
    pub(crate) fn skipped(&self) -> u64 {
        let count = |d: &Arc<dyn Dataset>| d.skipped().map_or(0, |s| s.count());
        count(&self.train) + count(&self.test)
    }
}

/// Reads the dataset of `model` that the command line asks for.
pub(crate) fn load(model: ModelName, args: &DataArgs, seed: u64) -> Result<Data> {
    let bad = match args.skip_bad {
        true => BadRecords::Skip,
        false => BadRecords::Refuse,
    };
    let data = match (&args.data, args.synthetic, model) {
        (_, Some(n), _) => synthetic(model, n as usize, seed)?,
        (Some(dir), _, ModelName::MnistCnn) => {
            Data::of(mnist::folder(dir, bad)?, format!("MNIST files of {}", dir.display()))
        }
        (Some(dir), _, ModelName::Lenet) => {
            Data::of(cifar::folder(dir, bad)?, format!("CIFAR-10 of {}", dir.display()))
        }
        (None, None, ModelName::MnistCnn) => Data::of(mnist::embedded()?, "the MNIST digits inside kiln".to_string()),
        (None, None, ModelName::Lenet) => {
            return Err(Error::usage("lenet needs CIFAR-10, which kiln does not ship").help(
                "download https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, unpack it and pass \
                 --data cifar-10-batches-bin; or try the model on made-up images with --synthetic",
            ));
        }
    };
    check(model, &data)?;
    Ok(Data {
        about: format!(
            "{}: {} to train, {} held back",
            data.about,
            thousands(data.train.len() as u64),
            thousands(data.test.len() as u64)
        ),
        ..data
    })
}

fn synthetic(model: ModelName, n: usize, seed: u64) -> Result<Data> {
    let spec = model.spec();
    let part = |count: usize, part: u32| -> Result<Arc<dyn Dataset>> {
        Ok(Arc::new(
            Synthetic::images(count, &spec.input, spec.classes, seed)?.part(part),
        ))
    };
    Ok(Data {
        train: part(n, 0)?,
        test: part(n.div_ceil(5), 1)?,
        about: "made-up images".to_string(),
    })
}

/// Refuses images that the model does not take.
fn check(model: ModelName, data: &Data) -> Result<()> {
    let spec = model.spec();
    for set in [&data.train, &data.test] {
        if let Some(shape) = set.shape()
            && shape.dims() != spec.input
        {
            return Err(Error::failure(format!(
                "{}: images are {shape:?}, {model} takes {:?}",
                data.about, spec.input
            )));
        }
    }
    Ok(())
}

/// What turns raw pixels into the model's input.
pub(crate) fn transform(model: ModelName) -> Result<Compose> {
    let scaled = Compose::new().then(ToFloat);
    Ok(match model.spec().normalise {
        Some((mean, deviation)) => scaled.then(Normalise::new(&[mean], &[deviation])?),
        None => scaled,
    })
}
