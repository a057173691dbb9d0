//! Softmax cross-entropy: a launch for the losses and their mean, and one for their gradient.
//!
//! | classes   | kernel        | where a row is            |
//! |-----------|---------------|---------------------------|
//! | up to 32  | `…_rows1`     | a register for each lane  |
//! | up to 128 | `…_rows4`     | 4 registers               |
//! | up to 512 | `…_rows16`    | 16 registers              |
//! | more      | `…_blocks`    | read by a block           |
//!
//! CTC: a launch for the losses, with a block for each sequence; for the gradient one for the shares of states, with as many, and one for
//! the rows.

use super::instance;
use crate::buffer::maybe;
use crate::launch::blocks;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{CrossEntropyParams, CtcParams, LossOps};
use kiln_core::{Buffer, DType, Result, checks};
use kiln_device::Arg;
use kiln_kernels::{PerFloat, loss as kernels, loss_ctc};

/// The kernels of an op, each for more classes than the one before.
type ByClasses = [&'static PerFloat; 4];
const LOSS: ByClasses = [
    &kernels::CROSS_ENTROPY_ROWS1,
    &kernels::CROSS_ENTROPY_ROWS4,
    &kernels::CROSS_ENTROPY_ROWS16,
    &kernels::CROSS_ENTROPY_BLOCKS,
];
const GRAD: ByClasses = [
    &kernels::CROSS_ENTROPY_GRAD_ROWS1,
    &kernels::CROSS_ENTROPY_GRAD_ROWS4,
    &kernels::CROSS_ENTROPY_GRAD_ROWS16,
    &kernels::CROSS_ENTROPY_GRAD_BLOCKS,
];

impl Cuda {
    /// Launches the kernel for `p.classes` classes; `between` are the arguments between the logits and the smoothing factors.
    fn cross_entropy_by(
        &self,
        kernels: &ByClasses,
        p: &CrossEntropyParams,
        logits: &CudaBuffer,
        between: &[Arg<'_>],
    ) -> Result<()> {
        let (kernel, rows) = match p.classes {
            0..=32 => (kernels[0], 8),
            33..=128 => (kernels[1], 8),
            129..=512 => (kernels[2], 8),
            _ => (kernels[3], 1),
        };
        let hard = (1.0 - p.smoothing) as f32;
        let soft = (p.smoothing / p.classes as f64) as f32;
        let mut args = vec![Arg::value(p), logits.arg()];
        args.extend_from_slice(between);
        args.extend([Arg::value(&hard), Arg::value(&soft), self.fault()]);
        // The last block ends the mean, also of no rows.
        let geometry = blocks("cross_entropy", p.rows.div_ceil(rows).max(1))?;
        self.launch(instance(kernel, logits.dtype()), geometry, &args)
    }
}

impl LossOps for Cuda {
    fn cross_entropy(
        &self,
        p: &CrossEntropyParams,
        logits: &CudaBuffer,
        labels: &CudaBuffer,
        class_weights: Option<&CudaBuffer>,
        loss: &mut CudaBuffer,
        weight: &mut CudaBuffer,
    ) -> Result<()> {
        checks::cross_entropy(self, p, logits, labels, class_weights, loss, weight)?;
        let between = [
            labels.arg(),
            maybe(class_weights),
            loss.out(),
            weight.out(),
            maybe(None),
            maybe(None),
        ];
        self.cross_entropy_by(&LOSS, p, logits, &between)
    }

    fn cross_entropy_mean(
        &self,
        p: &CrossEntropyParams,
        logits: &CudaBuffer,
        labels: &CudaBuffer,
        class_weights: Option<&CudaBuffer>,
        loss: &mut CudaBuffer,
        total: &mut CudaBuffer,
    ) -> Result<()> {
        checks::cross_entropy_mean(self, p, logits, labels, class_weights, loss, total)?;
        let rows = p.rows as usize;
        let (mut losses, mut weights) = (self.scratch(DType::F32, rows)?, self.scratch(DType::F32, rows)?);
        let between = [
            labels.arg(),
            maybe(class_weights),
            losses.out(),
            weights.out(),
            loss.out(),
            total.out(),
        ];
        self.cross_entropy_by(&LOSS, p, logits, &between)
    }

    fn cross_entropy_grad(
        &self,
        p: &CrossEntropyParams,
        logits: &CudaBuffer,
        labels: &CudaBuffer,
        class_weights: Option<&CudaBuffer>,
        g: &CudaBuffer,
        total: Option<&CudaBuffer>,
        dlogits: &mut CudaBuffer,
    ) -> Result<()> {
        checks::cross_entropy_grad(self, p, logits, labels, class_weights, g, total, dlogits)?;
        let none = maybe(None);
        let between = [
            labels.arg(),
            maybe(class_weights),
            g.arg(),
            maybe(total),
            dlogits.out(),
            none,
            none,
        ];
        self.cross_entropy_by(&GRAD, p, logits, &between)
    }

    fn cross_entropy_grad_in_place(
        &self,
        p: &CrossEntropyParams,
        logits: &mut CudaBuffer,
        labels: &CudaBuffer,
        class_weights: Option<&CudaBuffer>,
        g: &CudaBuffer,
        total: Option<&CudaBuffer>,
    ) -> Result<()> {
        checks::cross_entropy_grad_in_place(self, p, logits, labels, class_weights, g, total)?;
        let (logits, none) = (&*logits, maybe(None));
        let between = [
            labels.arg(),
            maybe(class_weights),
            g.arg(),
            maybe(total),
            logits.arg(),
            none,
            none,
        ];
        self.cross_entropy_by(&GRAD, p, logits, &between)
    }

    fn cross_entropy_with_grad(
        &self,
        p: &CrossEntropyParams,
        logits: &mut CudaBuffer,
        labels: &CudaBuffer,
        class_weights: Option<&CudaBuffer>,
        loss: &mut CudaBuffer,
        weight: &mut CudaBuffer,
    ) -> Result<()> {
        checks::cross_entropy_with_grad(self, p, logits, labels, class_weights, loss, weight)?;
        let (logits, none) = (&*logits, maybe(None));
        let to = [logits.arg(), loss.out(), weight.out()];
        let between = [labels.arg(), maybe(class_weights), none, none, to[0], to[1], to[2]];
        self.cross_entropy_by(&GRAD, p, logits, &between)
    }

    fn ctc_loss(
        &self,
        p: &CtcParams,
        log_probs: &CudaBuffer,
        targets: &CudaBuffer,
        input_lengths: &CudaBuffer,
        target_lengths: &CudaBuffer,
        loss: &mut CudaBuffer,
        alpha: &mut CudaBuffer,
    ) -> Result<()> {
        checks::ctc_loss(self, p, log_probs, targets, input_lengths, target_lengths, loss, alpha)?;
        let args = [
            Arg::value(p),
            log_probs.arg(),
            targets.arg(),
            input_lengths.arg(),
            target_lengths.arg(),
            loss.out(),
            alpha.out(),
            self.fault(),
        ];
        let kernel = instance(&loss_ctc::CTC_LOSS, log_probs.dtype());
        self.launch(kernel, blocks("ctc_loss", p.batch)?, &args)
    }

    fn ctc_loss_grad(
        &self,
        p: &CtcParams,
        log_probs: &CudaBuffer,
        targets: &CudaBuffer,
        input_lengths: &CudaBuffer,
        target_lengths: &CudaBuffer,
        alpha: &CudaBuffer,
        g: &CudaBuffer,
        dlog_probs: &mut CudaBuffer,
    ) -> Result<()> {
        checks::ctc_loss_grad(
            self,
            p,
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            alpha,
            g,
            dlog_probs,
        )?;
        let mut shares = self.scratch(DType::F32, alpha.len())?;
        let mut beta = self.scratch(DType::F32, 2 * (p.batch * p.states()) as usize)?;
        let mut totals = self.scratch(DType::F32, p.batch as usize)?;
        let head = [
            Arg::value(p),
            log_probs.arg(),
            targets.arg(),
            input_lengths.arg(),
            target_lengths.arg(),
        ];
        let mut args = head.to_vec();
        args.extend([alpha.arg(), beta.out(), shares.out(), totals.out()]);
        let kernel = instance(&loss_ctc::CTC_SHARES, log_probs.dtype());
        self.launch(kernel, blocks("ctc_loss_grad", p.batch)?, &args)?;
        let mut args = head.to_vec();
        args.extend([shares.arg(), totals.arg(), g.arg(), dlog_probs.out()]);
        let rows = (p.time * p.batch).div_ceil(8);
        let kernel = instance(&loss_ctc::CTC_GRAD, log_probs.dtype());
        self.launch(kernel, blocks("ctc_loss_grad", rows)?, &args)
    }
}
