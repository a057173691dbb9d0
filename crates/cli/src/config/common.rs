//! Settings that several commands have, and names on the command line.

use super::values::{Bytes, ImageSize, Small, Whole};
use crate::device::{Arithmetic, DeviceChoice, DeviceOptions};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kiln_data::{DataKind, TokenizerChoice};
use kiln_models::Model;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The source of the samples.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DataArgs {
    /// Folder or file with the dataset, such as cifar-10-batches-bin, a folder of images, FILE.csv or FILE.txt; see `kiln datasets`
    /// [default: for digits the 10,000 inside this program]
    #[arg(id = "data", long = "data", value_name = "DIR|FILE", conflicts_with = "synthetic")]
    pub(crate) path: Option<PathBuf>,

    /// Format of the dataset [default: the first that looks like it]
    #[arg(long = "data-format", value_name = "FORMAT", value_parser = format())]
    pub(crate) format: Option<DataKind>,

    /// Column of a table to predict; the others are its features
    #[arg(long, value_name = "COLUMN")]
    pub(crate) target: Option<String>,

    /// Tokens of a text: characters, bpe:N (GPT-2's) or wordpiece:N (BERT's) learned from the part that is trained on, or a
    /// tokenizer.json [default: characters]
    #[arg(long, value_name = "FILE|bpe:N|wordpiece:N|characters")]
    pub(crate) tokenizer: Option<TokenizerChoice>,

    /// Size of images, to which those of files are scaled: the side of squares in colour, or 64x64x1 in grey; of networks that are built for
    /// several [default: that of the first image if there is such a network, else the network's own]
    #[arg(long, value_name = "SIDE")]
    pub(crate) image_size: Option<ImageSize>,

    /// Made-up samples instead of a dataset: N to train on (default 2000) and N/5 to evaluate on
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "2000")]
    pub(crate) synthetic: Option<Small>,

    /// Leave out broken records of an otherwise valid file, and count them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(crate) skip_bad: Option<bool>,
}

/// The device to compute on.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DeviceArgs {
    /// Device to compute on: auto, cpu, cuda or cuda:N; see `kiln devices` [default: auto]
    #[arg(id = "device", long = "device", value_name = "DEVICE")]
    pub(crate) name: Option<DeviceChoice>,

    /// Threads to compute on [default: all cores]; results do not depend on it
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<Whole<1, 1024>>,

    /// Memory for tensors on the processor, such as 8G; beyond it a run ends with an error [default: as much as there is]
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory: Option<Bytes>,

    /// Compute convolutions as plain sums of products, without Winograd's algorithm; slower
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(crate) exact: Option<bool>,
}

impl DeviceArgs {
    /// These arguments as the options of [`with_device`](crate::device::with_device).
    pub(crate) fn options(&self) -> DeviceOptions {
        DeviceOptions {
            choice: self.name.unwrap_or_default(),
            threads: self.threads.map(|n| n.get() as usize),
            memory: self
                .memory
                .map(|bytes| usize::try_from(bytes.get()).unwrap_or(usize::MAX)),
            memory_is_default: false,
            arithmetic: Arithmetic {
                exact: self.exact.unwrap_or_default(),
                tf32: false,
            },
        }
    }
}

/// Reads the name of a model.
pub(crate) fn model() -> impl TypedValueParser<Value = Model> {
    let value = |m: Model| PossibleValue::new(m.name()).help(m.card().description);
    PossibleValuesParser::new(Model::ALL.map(value)).try_map(|name| name.parse::<Model>())
}

/// Reads the name of a dataset.
fn format() -> impl TypedValueParser<Value = DataKind> {
    let value = |kind: DataKind| PossibleValue::new(kind.name()).help(kind.card().description);
    PossibleValuesParser::new(DataKind::ALL.map(value)).try_map(|name| name.parse::<DataKind>())
}

/// Reads one of `names`, which are those of a `T`.
pub(crate) fn named<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}
