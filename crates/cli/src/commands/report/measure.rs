//! The parts of a report that are computed on a device.

use super::classes::Classes;
use super::pictures::Pictures;
use crate::commands::profile;
use crate::config::Settings;
use crate::device::Task;
use crate::error::Result;
use kiln_core::Backend;
use kiln_models::OutputKind;
use kiln_profile::Profiled;
use std::path::Path;

/// The computed parts of a report, or the reason why one is absent.
pub(super) struct Measured {
    /// `None` for a model without classes.
    pub(super) classes: Option<Result<Classes>>,
    /// `None` for a model that makes no images.
    pub(super) pictures: Option<Result<Pictures>>,
    pub(super) layers: Result<profile::Report>,
}

/// The computation of them for the run in a folder.
pub(super) struct Measure<'a> {
    pub(super) folder: &'a Path,
    pub(super) settings: &'a Settings,
}

impl Task for Measure<'_> {
    type Output = Measured;

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<Measured> {
        let Measure { folder, settings } = self;
        let model = settings.model;
        Ok(Measured {
            classes: match model.card().output {
                OutputKind::Classes(_) => Some(Classes::measure(folder, settings, backend)),
                _ => None,
            },
            pictures: match model.card().output {
                OutputKind::Images => Some(Pictures::measure(folder, settings, backend)),
                _ => None,
            },
            layers: profile::training(settings, backend),
        })
    }
}
