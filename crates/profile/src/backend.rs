//! The profiling backend: memory and execution.

use crate::record::{Detail, Mark, Recorder, Timeline};
use kiln_core::ops::Op;
use kiln_core::{Backend, Buffer, Cost, DType, Interrupt, MemoryStats, Observer, Result, Runtime, checks};
use std::fmt;
use std::sync::Arc;

/// A backend that runs the ops of another one and records when each began and ended. Clones share their record.
pub struct Profiled<B: Backend> {
    inner: B,
    recorder: Arc<Recorder>,
}

impl<B: Backend> Clone for Profiled<B> {
    fn clone(&self) -> Self {
        Profiled {
            inner: self.inner.clone(),
            recorder: self.recorder.clone(),
        }
    }
}

impl<B: Backend> fmt::Debug for Profiled<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Profiled({})", self.inner.name())
    }
}

impl<B: Backend> Profiled<B> {
    /// A profiling backend around `inner`.
    pub fn new(inner: &B) -> Self {
        Profiled {
            inner: inner.clone(),
            recorder: Arc::new(Recorder::new()),
        }
    }

    /// The backend that does the work.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Profiles one step, which must run on this thread. A step that fails is not kept, and the ops of a graph that was captured
    /// before are not seen.
    ///
    /// # Errors
    /// Those of `step`, and of waiting for the device before and after it.
    pub fn step<R, E: From<kiln_core::Error>>(&self, step: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        self.inner.sync()?;
        self.recorder.begin();
        let result = step().and_then(|r| Ok(self.inner.sync().map(|()| r)?));
        self.recorder.end(result.is_ok());
        result
    }

    /// Runs `part` as a named part of the step. Its row has the ops that run in it outside of any layer, and the
    /// gradients of the ops that were recorded there.
    pub fn part<R>(&self, name: &str, part: impl FnOnce() -> R) -> R {
        if !self.is_recording() {
            return part();
        }
        self.recorder.enter_part(name);
        let result = part();
        self.recorder.leave(None);
        result
    }

    /// Everything that has been recorded so far.
    pub fn timeline(&self) -> Timeline {
        self.recorder.timeline()
    }

    /// True while a step is profiled.
    pub(crate) fn is_recording(&self) -> bool {
        self.recorder.is_on()
    }

    /// Runs an op of a profiled step and waits for it.
    pub(crate) fn op(
        &self,
        name: &'static str,
        cost: Cost,
        detail: Detail,
        op: impl FnOnce(&B) -> Result<()>,
    ) -> Result<()> {
        let start = self.recorder.now();
        op(&self.inner)?;
        self.inner.sync()?;
        let end = self.recorder.now();
        self.recorder.op(Mark::Op {
            start,
            end,
            name,
            cost,
            detail,
        });
        Ok(())
    }
}

/// Returns the result of an op of the backend inside unless a step is being profiled, so that nothing is checked twice or counted
/// where nobody asks.
macro_rules! unless_recording {
    ($profiled:ident, $op:ident($($operand:expr),*)) => {
        if !$profiled.is_recording() {
            return $profiled.inner().$op($($operand),*);
        }
    };
}
pub(crate) use unless_recording;

/// Bytes of a buffer.
pub(crate) fn bytes<Buf: Buffer>(buffer: &Buf) -> u64 {
    buffer.len() as u64 * buffer.dtype().size() as u64
}

fn moved(bytes: u64) -> Cost {
    Cost { flops: 0, bytes }
}

impl<B: Backend> Runtime for Profiled<B> {
    type Buffer = B::Buffer;
    type Graph = B::Graph;

    fn name(&self) -> String {
        self.inner.name()
    }

    fn supports_dtype(&self, dtype: DType) -> bool {
        self.inner.supports_dtype(dtype)
    }

    fn supports(&self, op: Op, dtype: DType) -> bool {
        self.inner.supports(op, dtype)
    }

    fn owns(&self, buffer: &Self::Buffer) -> bool {
        self.inner.owns(buffer)
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer> {
        self.inner.alloc(dtype, len)
    }

    fn upload_bytes(&self, src: &[u8], dst: &mut Self::Buffer) -> Result<()> {
        unless_recording!(self, upload_bytes(src, dst));
        checks::upload_bytes(self, src, dst)?;
        let (n, cost) = (dst.len() as u64, moved(2 * src.len() as u64));
        self.op("upload", cost, Detail::Elements(n), |b| b.upload_bytes(src, dst))
    }

    fn upload_part(&self, src: &[u8], dst: &mut Self::Buffer, offset: usize) -> Result<()> {
        unless_recording!(self, upload_part(src, dst, offset));
        checks::upload_part(self, src, dst, offset)?;
        let cost = moved(2 * src.len() as u64);
        let n = (src.len() / dst.dtype().size()) as u64;
        self.op("upload", cost, Detail::Elements(n), |b| b.upload_part(src, dst, offset))
    }

    fn download_bytes(&self, src: &Self::Buffer, dst: &mut [u8]) -> Result<()> {
        unless_recording!(self, download_bytes(src, dst));
        checks::download_bytes(self, src, dst)?;
        let (n, cost) = (src.len() as u64, moved(2 * dst.len() as u64));
        self.op("download", cost, Detail::Elements(n), |b| b.download_bytes(src, dst))
    }

    fn copy(&self, src: &Self::Buffer, dst: &mut Self::Buffer) -> Result<()> {
        unless_recording!(self, copy(src, dst));
        checks::copy(self, src, dst)?;
        let (n, cost) = (src.len() as u64, moved(2 * bytes(src)));
        self.op("copy", cost, Detail::Elements(n), |b| b.copy(src, dst))
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    const CAPTURES: bool = B::CAPTURES;

    fn interruptible(&self, interrupt: &Interrupt, body: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.inner.interruptible(interrupt, body)
    }

    /// A step that is profiled runs op by op, so nothing is captured.
    fn capture(&self, body: &mut dyn FnMut() -> Result<()>) -> Result<Option<Self::Graph>> {
        match self.is_recording() {
            true => body().map(|()| None),
            false => self.inner.capture(body),
        }
    }

    fn replay(&self, graph: &mut Self::Graph) -> Result<()> {
        self.inner.replay(graph)
    }

    fn launches(&self, graph: &Self::Graph) -> usize {
        self.inner.launches(graph)
    }

    fn memory(&self) -> MemoryStats {
        self.inner.memory()
    }

    /// In order while a step is profiled, because its ops are recorded one after the other.
    fn each(&self, n: usize, f: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
        match self.is_recording() {
            true => (0..n).try_for_each(f),
            false => self.inner.each(n, f),
        }
    }

    fn observer(&self) -> Option<&dyn Observer> {
        match self.is_recording() {
            true => Some(&*self.recorder),
            false => self.inner.observer(),
        }
    }
}
