//! Captures of streams: their work becomes a graph.

use crate::capture::Capture;
use crate::capture_mode::CaptureMode;
use crate::error::Result;
use crate::ffi::call;
use crate::graph::Graph;
use crate::launch_log;
use crate::stream::Stream;

impl Stream {
    /// Begins a capture: work goes into a graph instead of the device, until [`end_capture`](Self::end_capture) on the same
    /// thread. [`capture`](Self::capture) also ends it when something fails.
    ///
    /// # Errors
    /// The driver's.
    pub fn begin_capture(&self) -> Result<()> {
        self.begin_capture_with(CaptureMode::ThreadLocal)
    }

    /// As [`begin_capture`](Self::begin_capture), with a choice of the calls that are forbidden meanwhile.
    ///
    /// # Errors
    /// The driver's.
    pub fn begin_capture_with(&self, mode: CaptureMode) -> Result<()> {
        let mut capture = self.turn();
        self.context().bind()?;
        let begun = Capture::begin();
        // SAFETY: the stream is alive as long as `self`.
        unsafe { call!(cuStreamBeginCapture_v2(self.handle(), mode as i32))? };
        *capture = Some(begun);
        launch_log::begin();
        Ok(())
    }

    /// Ends a capture and returns the captured graph.
    ///
    /// # Errors
    /// [`Error::Capture`](crate::Error::Capture) if something in it could not be captured or a branch was not joined.
    pub fn end_capture(&self) -> Result<Graph> {
        let mut capture = self.turn();
        self.context().bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the stream is alive as long as `self`; `raw` is a place for the handle that the function writes.
        let ended = unsafe { call!(cuStreamEndCapture(self.handle(), &mut raw)) };
        let kept = capture.take().map(|capture| capture.kept()).unwrap_or_default();
        ended?;
        Graph::of_capture(raw, self.context(), kept)
    }

    /// Captures the work that `f` gives to this stream. The capture ends when `f` does, whatever it returns.
    ///
    /// # Errors
    /// Those of `f`, of the driver, and those of [`end_capture`](Self::end_capture).
    pub fn capture<E: From<crate::Error>>(&self, f: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        struct End<'a>(Option<&'a Stream>);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                // After an error or a panic of `f` the part captured so far is of no use.
                let _ = self.0.map(Stream::end_capture);
            }
        }
        self.begin_capture()?;
        let mut end = End(Some(self));
        f()?;
        end.0 = None;
        Ok(self.end_capture()?)
    }
}
