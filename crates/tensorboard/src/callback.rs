//! [`TensorBoard`]: the events of a run of the trainer.

use crate::{Result, SummaryWriter, TensorBoardError};
use kiln_core::{Backend, DType};
use kiln_nn::module::StateDict;
use kiln_nn::weights;
use kiln_train::{Callback, EpochRecord, Flow, Plan, RunFolder, StepInfo, TrainError, Values};
use std::path::{Path, PathBuf};

/// Reads the weights to show: their names and values.
type Read = Box<dyn FnMut() -> Result<Vec<(String, Vec<f32>)>>>;

/// Something to look at that is made after an epoch.
#[derive(Debug, Clone, PartialEq)]
pub enum View {
    /// An image of bytes `[height, width, channels]` with 1, 3 or 4 channels.
    Image {
        /// Its name.
        tag: String,
        /// Its bytes, row-major.
        pixels: Vec<u8>,
        /// Height, width, channels.
        shape: [usize; 3],
    },
    /// A text, which TensorBoard shows as Markdown.
    Text {
        /// Its name.
        tag: String,
        /// The text.
        text: String,
    },
}

/// Makes what there is to look at after an epoch.
type Show = Box<dyn FnMut(&EpochRecord) -> kiln_train::Result<Vec<View>>>;

/// A callback that writes an event file for TensorBoard.
///
/// | name | what it is |
/// |---|---|
/// | `loss/step`, … | the loss and its parts, whenever they are read ([`TrainOptions::log_every`](kiln_train::TrainOptions::log_every)) |
/// | `loss/train`, `loss/valid`, … | the loss, its parts and the metrics of each epoch |
/// | `lr`, `lr/PHASE` | the learning rate |
/// | `samples_per_second` | the throughput of each epoch |
/// | `waiting_share` | the share of each epoch in which the loop waited for batches |
/// | `machine/NAME` | what other callbacks have measured in each epoch, such as the power of the machine |
/// | `weights/NAME` | histograms of the weights after each epoch, with [`weights`](TensorBoard::weights) |
/// | any | images and texts after each epoch, with [`views`](TensorBoard::views) |
///
/// The horizontal axis is the number of updates. A run that is resumed goes on in a new file, which hides what the run had
/// reported after its checkpoint.
///
/// ```
/// use kiln_cpu::Cpu;
/// # use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic};
/// # use kiln_nn::{Init, Layer, optim::Adam, layers::{Flatten, Linear}, Sequential};
/// use kiln_tensorboard::TensorBoard;
/// use kiln_train::{RunFolder, TrainOptions, Trainer};
/// # use kiln_train::Output;
/// # use std::sync::Arc;
/// # let cpu = Cpu::new();
/// # let parent = std::env::temp_dir().join(format!("kiln-tensorboard-callback-{}", std::process::id()));
/// # let data = Loader::new(Arc::new(Synthetic::images(64, &[3, 3, 1], 2, 0)?), LoaderOptions::default())?;
/// # let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
/// #     Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
/// # };
/// # let mut net = Sequential::new().push(Flatten::default()).push(Linear::new(&mut Init::new(&cpu, 0), 9, 2)?);
///
/// let folder = RunFolder::create(parent.join("run"))?;
/// let board = TensorBoard::new(folder.file("tensorboard"))
///     .text("model", "a linear net")
///     .weights_in(&folder, RunFolder::LAST, &Cpu::new());
/// let options = TrainOptions { epochs: 2, ..Default::default() };
/// let mut trainer = Trainer::new(&cpu, options).folder(folder).callback(board);
/// trainer.fit(&mut net, &mut Adam::new(1e-3), step, &data, None)?;
/// # assert_eq!(std::fs::read_dir(parent.join("run/tensorboard"))?.count(), 1);
/// # std::fs::remove_dir_all(parent)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TensorBoard {
    folder: PathBuf,
    texts: Vec<(String, String)>,
    weights: Option<Read>,
    views: Option<Show>,
    writer: Option<SummaryWriter>,
}

impl TensorBoard {
    /// Creates a callback that writes into `folder`, which the start of the run makes.
    pub fn new(folder: impl AsRef<Path>) -> Self {
        TensorBoard {
            folder: folder.as_ref().to_path_buf(),
            texts: Vec::new(),
            weights: None,
            views: None,
            writer: None,
        }
    }

    /// Adds a text at the start of the run, such as its settings, which TensorBoard shows as Markdown.
    pub fn text(mut self, tag: &str, text: &str) -> Self {
        self.texts.push((tag.to_string(), text.to_string()));
        self
    }

    /// Adds histograms of the weights in a file, read by `backend` after each epoch. The trainer has saved
    /// [`RunFolder::LAST`](kiln_train::RunFolder::LAST) by then.
    pub fn weights<B: Backend>(mut self, file: impl AsRef<Path>, backend: &B) -> Self {
        let (file, backend) = (file.as_ref().to_path_buf(), backend.clone());
        self.weights = Some(Box::new(move || {
            let (dict, _) = weights::read(&file, &backend)?;
            floats(&dict)
        }));
        self
    }

    /// As [`weights`](TensorBoard::weights), for the file `name` in the folder of a run, which is found also after the folder has been
    /// moved.
    pub fn weights_in<B: Backend>(mut self, folder: &RunFolder, name: &str, backend: &B) -> Self {
        let (folder, name, backend) = (folder.clone(), name.to_string(), backend.clone());
        self.weights = Some(Box::new(move || {
            let bytes = folder.read(&name).map_err(TensorBoardError::Run)?;
            let (dict, _) = weights::decode(&bytes, &backend)?;
            floats(&dict)
        }));
        self
    }

    /// Adds images and texts that `make` makes after each epoch, such as what a network makes of the same images every time. The trainer
    /// has saved [`RunFolder::LAST`](kiln_train::RunFolder::LAST) by then. An error of `make` ends the run.
    ///
    /// ```
    /// use kiln_tensorboard::{TensorBoard, View};
    ///
    /// let board = TensorBoard::new("runs/digits/tensorboard").views(|epoch| {
    ///     let text = format!("epoch {} has ended", epoch.epoch);
    ///     Ok(vec![View::Text { tag: "note".to_string(), text }])
    /// });
    /// ```
    pub fn views(mut self, make: impl FnMut(&EpochRecord) -> kiln_train::Result<Vec<View>> + 'static) -> Self {
        self.views = Some(Box::new(make));
        self
    }

    fn start(&mut self, plan: &Plan) -> Result<()> {
        let mut writer = SummaryWriter::builder(&self.folder);
        if plan.resumed.is_some() {
            // What was reported up to the checkpoint stays, but for values of an epoch that is not whole yet.
            writer = writer.purge_step(plan.step + u64::from(!plan.told));
        }
        let mut writer = writer.create()?;
        for (tag, text) in &self.texts {
            writer.add_text(tag, text, plan.step)?;
        }
        writer.flush()?;
        self.writer = Some(writer);
        Ok(())
    }

    fn step(&mut self, info: &StepInfo) -> Result<()> {
        let Some(writer) = self.writer.as_mut().filter(|_| !info.values.is_empty()) else {
            return Ok(());
        };
        add(writer, &info.values, "step", info.step)?;
        writer.add_scalar("lr", info.lr, info.step)?;
        writer.flush()
    }

    fn epoch(&mut self, record: &EpochRecord, views: &[View]) -> Result<()> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        let step = record.step;
        add(writer, &record.train, "train", step)?;
        if let Some(valid) = &record.valid {
            add(writer, valid, "valid", step)?;
        }
        for (phase, lr) in &record.lrs {
            writer.add_scalar(&format!("lr/{phase}"), *lr, step)?;
        }
        writer.add_scalar("samples_per_second", record.samples_per_second, step)?;
        writer.add_scalar("waiting_share", record.waiting_share(), step)?;
        for (name, value) in &record.machine {
            writer.add_scalar(&format!("machine/{name}"), *value, step)?;
        }
        if let Some(read) = &mut self.weights {
            for (name, values) in read()?.iter().filter(|(_, values)| !values.is_empty()) {
                writer.add_histogram(&format!("weights/{name}"), values, step)?;
            }
        }
        for view in views {
            match view {
                View::Image { tag, pixels, shape } => writer.add_image(tag, pixels, *shape, step)?,
                View::Text { tag, text } => writer.add_text(tag, text, step)?,
            }
        }
        writer.flush()
    }
}

/// The values of all floats by name.
fn floats<B: Backend>(dict: &StateDict<B>) -> Result<Vec<(String, Vec<f32>)>> {
    let floats = dict.names().filter_map(|name| Some((name, dict.float(name)?)));
    floats
        .map(|(name, tensor)| Ok((name.to_string(), tensor.to_dtype(DType::F32)?.to_vec::<f32>()?)))
        .collect()
}

fn add(writer: &mut SummaryWriter, values: &Values, of: &str, step: u64) -> Result<()> {
    for (name, value) in values {
        writer.add_scalar(&format!("{name}/{of}"), *value, step)?;
    }
    Ok(())
}

/// The error as one of the run.
fn failed(error: crate::TensorBoardError) -> TrainError {
    TrainError::Callback(Box::new(error))
}

impl Callback for TensorBoard {
    fn on_start(&mut self, plan: &Plan) -> kiln_train::Result<()> {
        self.start(plan).map_err(failed)
    }

    fn on_step(&mut self, info: &StepInfo) -> kiln_train::Result<Flow> {
        self.step(info).map_err(failed)?;
        Ok(Flow::Continue)
    }

    fn on_epoch_end(&mut self, record: &EpochRecord) -> kiln_train::Result<Flow> {
        let views = match &mut self.views {
            Some(make) => make(record)?,
            None => Vec::new(),
        };
        self.epoch(record, &views).map_err(failed)?;
        Ok(Flow::Continue)
    }

    fn reads_weights(&self) -> bool {
        self.weights.is_some() || self.views.is_some()
    }

    fn on_end(&mut self) {
        self.writer = None;
    }
}

impl std::fmt::Debug for TensorBoard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TensorBoard")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}
