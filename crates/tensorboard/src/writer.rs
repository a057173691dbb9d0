//! [`SummaryWriter`]: a folder's newest event file.

use crate::event::{What, encode};
use crate::histogram::Histogram;
use crate::{Pixel, Result, image, record};
use kiln_files::{FileError, Folder};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The seconds between two writes to the disk, and the bytes that are held back at most.
const FLUSH_SECONDS: f64 = 120.0;
const FLUSH_BYTES: usize = 1 << 20;

/// The beginning of the names of event files.
const NAME: &str = "events.out.tfevents.";

/// Writes scalars, histograms, images and text into a new event file of a folder, as PyTorch's `SummaryWriter` does.
///
/// Events reach the disk with [`flush`](SummaryWriter::flush), with the drop of the writer, and every two minutes.
#[derive(Debug)]
pub struct SummaryWriter {
    folder: Folder,
    name: OsString,
    file: File,
    /// The size of the file so far.
    size: u64,
    pending: Vec<u8>,
    flushed: f64,
    wall_time: Option<f64>,
}

/// The options of a [`SummaryWriter`].
#[derive(Debug, Clone)]
pub struct SummaryWriterBuilder {
    folder: PathBuf,
    purge_step: Option<u64>,
    suffix: String,
    wall_time: Option<f64>,
}

impl SummaryWriterBuilder {
    /// Hides the events of this step and later ones that other files of the folder have: for a run that was stopped and goes on.
    pub fn purge_step(mut self, step: u64) -> Self {
        self.purge_step = Some(step);
        self
    }

    /// Sets the end of the file's name.
    pub fn filename_suffix(mut self, suffix: &str) -> Self {
        self.suffix = suffix.to_string();
        self
    }

    /// Sets the time of all events, in seconds since 1970, instead of that of the clock.
    pub fn wall_time(mut self, seconds: f64) -> Self {
        self.wall_time = Some(seconds);
        self
    }

    /// Creates the folder, if it does not exist, and a new event file in it.
    ///
    /// # Errors
    /// [`TensorBoardError::File`](crate::TensorBoardError::File).
    pub fn create(self) -> Result<SummaryWriter> {
        let path = &self.folder;
        std::fs::create_dir_all(path).map_err(FileError::io(path, "create the folder"))?;
        let folder = Folder::open(path)?;
        let now = self.wall_time.unwrap_or_else(now);
        let (name, file) = new_file(&folder, now as u64, &self.suffix)?;
        let mut writer = SummaryWriter {
            folder,
            name,
            file,
            size: 0,
            pending: Vec::new(),
            flushed: now,
            wall_time: self.wall_time,
        };
        writer.add(
            0,
            &What::Version {
                writer: "kiln-tensorboard",
            },
        )?;
        if let Some(step) = self.purge_step {
            writer.add(step, &What::Restart)?;
            writer.add(step, &What::Session)?;
        }
        writer.flush()?;
        Ok(writer)
    }
}

/// The seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// Creates an event file whose name comes after those in the folder: TensorBoard reads them in the order of their names.
fn new_file(folder: &Folder, now: u64, suffix: &str) -> Result<(OsString, File)> {
    let seconds = |name: &OsString| {
        let rest = name.to_str()?.strip_prefix(NAME)?;
        rest.split('.').next()?.parse::<u64>().ok()
    };
    let latest = folder.names()?.iter().filter_map(seconds).max();
    let first = latest.map_or(now, |latest| now.max(latest.saturating_add(1)));
    let host = rustix::system::uname().nodename().to_string_lossy().replace('/', "_");
    let pid = std::process::id();
    // Another process may create a file of the same second.
    for number in 0u64.. {
        let name = OsString::from(format!("{NAME}{first:010}.{host}.{pid}.{number}{suffix}"));
        if let Some(file) = folder.create_file(&name)? {
            return Ok((name, file));
        }
    }
    unreachable!("a folder has fewer than 2⁶⁴ entries")
}

impl SummaryWriter {
    /// Creates `folder`, if it does not exist, and a new event file in it.
    ///
    /// # Errors
    /// [`TensorBoardError::File`](crate::TensorBoardError::File).
    pub fn new(folder: impl AsRef<Path>) -> Result<Self> {
        SummaryWriter::builder(folder).create()
    }

    /// Options for an event file in `folder`.
    pub fn builder(folder: impl AsRef<Path>) -> SummaryWriterBuilder {
        SummaryWriterBuilder {
            folder: folder.as_ref().to_path_buf(),
            purge_step: None,
            suffix: String::new(),
            wall_time: None,
        }
    }

    /// The path of the event file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Adds a number, as f32. Names with a slash are shown in groups: `loss/train` and `loss/valid` together.
    ///
    /// # Errors
    /// [`TensorBoardError::File`](crate::TensorBoardError::File).
    pub fn add_scalar(&mut self, tag: &str, value: f64, step: u64) -> Result<()> {
        self.add(step, &What::Scalar { tag, value })
    }

    /// Adds a histogram of values, over TensorBoard's buckets of a tenth more each.
    ///
    /// # Errors
    /// No values, or one that is not finite; [`TensorBoardError::File`](crate::TensorBoardError::File).
    pub fn add_histogram(&mut self, tag: &str, values: &[f32], step: u64) -> Result<()> {
        let histogram = &Histogram::of(tag, values)?;
        self.add(step, &What::Histogram { tag, histogram })
    }

    /// Adds an image of `[height, width, channels]` with 1, 3 or 4 channels: of `f32` from 0 to 1, or of bytes.
    ///
    /// # Errors
    /// Another shape than that of the values; [`TensorBoardError::File`](crate::TensorBoardError::File).
    pub fn add_image<T: Pixel>(&mut self, tag: &str, pixels: &[T], shape: [usize; 3], step: u64) -> Result<()> {
        let png = &image::png(tag, pixels, shape)?;
        self.add(step, &What::Image { tag, shape, png })
    }

    /// Adds a text, which TensorBoard shows as Markdown.
    ///
    /// # Errors
    /// [`TensorBoardError::File`](crate::TensorBoardError::File).
    pub fn add_text(&mut self, tag: &str, text: &str, step: u64) -> Result<()> {
        self.add(step, &What::Text { tag, text })
    }

    fn add(&mut self, step: u64, what: &What<'_>) -> Result<()> {
        let now = self.wall_time.unwrap_or_else(now);
        record::append(&mut self.pending, &encode(now, step, what));
        match now - self.flushed >= FLUSH_SECONDS || self.pending.len() >= FLUSH_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes all events to the disk.
    ///
    /// # Errors
    /// [`TensorBoardError::File`](crate::TensorBoardError::File); then the file ends with a whole event.
    pub fn flush(&mut self) -> Result<()> {
        self.flushed = self.wall_time.unwrap_or_else(now);
        if self.pending.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.pending);
        self.folder.append(&self.name, &mut self.file, self.size, &bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for SummaryWriter {
    fn drop(&mut self) {
        // An error that matters is one of `flush`.
        let _ = self.flush();
    }
}
