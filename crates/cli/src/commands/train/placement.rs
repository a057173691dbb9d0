//! Images of a run that lie on its device.

use crate::config::{Placement, Settings};
use crate::data::Data;
use crate::device::list_devices;
use crate::error::{Error, Result};
use kiln_core::Backend;
use kiln_core::Runtime;
use kiln_cpu::Cpu;
use kiln_data::{Dataset, DeviceImages, Shared};
use kiln_models::OutputKind;
use kiln_train::StopHandle;
use std::sync::Arc;

/// The part of a GPU's memory that images take at most where nothing is said: one of this many.
const PART: u64 = 4;

/// The bytes of the images that are to lie on the device; `None` if they stay where they are.
pub(super) fn decide(settings: &Settings, data: &Data, device: &str) -> Result<Option<u64>> {
    let model = settings.model;
    let labelled = matches!(model.card().output, OutputKind::Classes(_));
    let image = match model.input().image() {
        Some([h, w, c]) if labelled => (h * w * c) as u64,
        _ if settings.data_on_device == Placement::On => {
            return Err(Error::usage(format!(
                "{model} takes no labelled images, and others are not kept on a device"
            ))
            .help("leave out --data-on-device"));
        }
        _ => return Ok(None),
    };
    if data.train.shape().is_none() || data.test.shape().is_none() {
        return match settings.data_on_device {
            Placement::On => Err(Error::usage(format!(
                "the images of {model} have sizes of their own, and such are not kept on a device"
            ))
            .help("leave out --data-on-device")),
            _ => Ok(None),
        };
    }
    let same = Arc::ptr_eq(&data.train, &data.test);
    let images = data.train.len() + if same { 0 } else { data.test.len() };
    let bytes = (images as u64).saturating_mul(image);
    Ok(match settings.data_on_device {
        Placement::Off => None,
        Placement::On => Some(bytes),
        Placement::Auto if device == Cpu::new().name() => None,
        Placement::Auto => Some(bytes).filter(|&bytes| bytes <= memory(device) / PART),
    })
}

/// The memory of a GPU; 0 if it is not known.
fn memory(device: &str) -> u64 {
    let found = list_devices().into_iter().find(|entry| entry.name == device);
    found
        .and_then(|entry| entry.details.get("memory")?.as_u64())
        .unwrap_or(0)
}

/// The data with its images on the device. Those of a run that is asked to stop meanwhile, which ends at once, stay where they are.
pub(super) fn place<B: Backend>(backend: &B, data: Data, stop: &StopHandle) -> Result<Data> {
    let workers = rayon::current_num_threads().min(kiln_data::Loader::MAX_WORKERS);
    let read = |images: &Shared| -> Result<Shared> {
        let read = DeviceImages::read(backend, images.clone(), workers, &mut |_| !stop.is_requested());
        let read = read.map_err(|e| Error::from(e).help("keep the images on the host: --data-on-device off"))?;
        Ok(read.map_or_else(|| images.clone(), |there| Arc::new(there) as _))
    };
    let train = read(&data.train)?;
    let test = match Arc::ptr_eq(&data.train, &data.test) {
        true => train.clone(),
        false => read(&data.test)?,
    };
    Ok(Data { train, test, ..data })
}
