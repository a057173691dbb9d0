//! A running sum on the device.

use kiln_core::{Backend, Result};
use kiln_nn::Tensor;

/// Batches after which the sum is read, so that counts in f32 stay exact: below 2²⁴ for batches of up to 16,384.
const READ_AFTER: u32 = 1024;

/// Adds tensors of one shape on the device; now and then the sum moves to the host in f64.
pub(crate) struct DeviceSum<B: Backend> {
    running: Option<Tensor<B>>,
    terms: u32,
    host: Vec<f64>,
}

impl<B: Backend> Default for DeviceSum<B> {
    fn default() -> Self {
        DeviceSum {
            running: None,
            terms: 0,
            host: Vec::new(),
        }
    }
}

impl<B: Backend> DeviceSum<B> {
    pub(crate) fn add(&mut self, term: Tensor<B>) -> Result<()> {
        self.running = Some(match self.running.take() {
            Some(sum) => sum.add(&term)?,
            None => term,
        });
        self.terms += 1;
        if self.terms == READ_AFTER {
            self.move_to_host()
        } else {
            Ok(())
        }
    }

    fn move_to_host(&mut self) -> Result<()> {
        self.terms = 0;
        let Some(sum) = self.running.take() else { return Ok(()) };
        let values = sum.to_f64()?;
        self.host.resize(values.len(), 0.0);
        for (total, value) in self.host.iter_mut().zip(values) {
            *total += value;
        }
        Ok(())
    }

    /// The sum, row-major, and back to nothing; empty if nothing was added.
    pub(crate) fn take(&mut self) -> Result<Vec<f64>> {
        self.move_to_host()?;
        Ok(std::mem::take(&mut self.host))
    }
}
