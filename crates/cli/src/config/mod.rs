//! The settings of a training run: each is one field here, which is a flag, a key of `--config` files and of `--set`, and an entry
//! of the run's `config.json`.

mod common;
mod lora;
mod names;
mod non_finite;
mod optimizer;
mod placement;
mod precision;
mod run;
mod settings;
mod sources;
mod twin;
mod values;

pub(crate) use common::{DataArgs, DeviceArgs, model, named};
pub(crate) use lora::Lora;
pub(crate) use non_finite::OnNan;
pub(crate) use placement::Placement;
pub(crate) use precision::Precision;
pub(crate) use run::{ConfigArgs, RunConfig};
pub(crate) use settings::Settings;
pub(crate) use sources::{changed, combined, flat, read, record, set, write};
pub(crate) use values::{ImageSize, Positive, Rate, Share, Small, Whole};
