//! Loading saved weights into the model they belong to.

use crate::args::WeightsArgs;
use crate::error::{Error, Result};
use crate::models::ModelName;
use clap::ValueEnum;
use kiln_core::Backend;
use kiln_nn::weights::{LoadOptions, Metadata, WeightsError, read};
use kiln_nn::{Layer, Module};

/// The metadata entry that names the model.
const MODEL: &str = "model";

/// What weight files of `model` carry. One entry: the order of several is not fixed, and equal runs give equal files.
pub(crate) fn metadata(model: ModelName) -> Metadata {
    Metadata::from([(MODEL.to_string(), model.name().to_string())])
}

/// Reads the weights and builds the model that they belong to.
pub(crate) fn load<B: Backend>(args: &WeightsArgs, backend: &B) -> Result<(ModelName, Box<dyn Layer<B>>)> {
    let (dict, metadata) = read(&args.weights, backend).map_err(failed)?;
    let named = metadata.get(MODEL).map(String::as_str);
    let model = match (args.model, named.map(|n| ModelName::from_str(n, false))) {
        (Some(model), _) | (None, Some(Ok(model))) => model,
        (None, found) => {
            let found = match found {
                Some(_) => format!(
                    "belong to `{}`, which this kiln does not know",
                    named.unwrap_or_default()
                ),
                None => "do not say which model they belong to".to_string(),
            };
            return Err(Error::usage(format!("{}: the weights {found}", args.weights.display()))
                .help("name the model with --model mnist-cnn or --model lenet"));
        }
    };
    let mut net = model.build(backend, 0)?;
    net.load_state_dict(&dict, LoadOptions::strict())
        .map_err(|e| failed(e).context(format!("{} into {model}", args.weights.display())))?;
    net.eval();
    Ok((model, net))
}

fn failed(error: WeightsError) -> Error {
    let help = match error.root() {
        WeightsError::Misfit(_) => Some("was it saved by another model? name that one with --model"),
        WeightsError::Format { .. } => Some("a run saves best.safetensors and last.safetensors in its folder"),
        _ => None,
    };
    let failure = Error::failure(error.to_string());
    match help {
        Some(help) => failure.help(help),
        None => failure,
    }
}
