//! The modelled time of what was measured, from the launches that the device layer logs.

use kiln_cuda::Cuda;
use kiln_forecast::published::EXPONENTS;
use kiln_forecast::{Cards, Gpu, Step, Table, Time, last_capture, time};
use std::path::PathBuf;

/// The model of the card that the benches run on.
pub(crate) struct Model {
    gpu: Gpu,
    table: Table,
    /// The launch log of this process.
    log: PathBuf,
}

impl Model {
    /// The model of a device, or why there is none: it needs the launch log, and a card of the table of `kiln forecast`.
    pub(crate) fn new(cuda: &Cuda) -> Result<Model, String> {
        let log = std::env::var_os("KILN_LAUNCH_LOG").filter(|path| !path.is_empty());
        let log = log.ok_or("KILN_LAUNCH_LOG names no file for the launches")?;
        let info = cuda.context().info();
        let (major, minor) = info.compute_capability;
        let cards = Cards::known().map_err(|e| e.to_string())?;
        let gpu = cards
            .device(&info.name, 10 * major + minor, info.multiprocessors, info.memory as u64)
            .ok_or_else(|| {
                let sms = info.multiprocessors;
                format!(
                    "{} with {sms} multiprocessors is none of the cards of `kiln forecast`",
                    info.name
                )
            })?;
        Ok(Model {
            gpu,
            table: Table::known()?,
            log: log.into(),
        })
    }

    /// The name of the card in the table of cards.
    pub(crate) fn card(&self) -> &str {
        &self.gpu.card.name
    }

    /// The modelled time of the launches of the last capture; `None` without any.
    pub(crate) fn last(&self) -> Option<Time> {
        let log = std::fs::read_to_string(&self.log).ok()?;
        let launches = last_capture(&log).ok().filter(|launches| !launches.is_empty())?;
        let step = Step {
            launches,
            ..Step::default()
        };
        Some(time(&step, &self.gpu, &self.table, &EXPONENTS))
    }
}
