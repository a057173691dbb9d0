//! Datasets, file formats, transforms and the batch loader of Kiln.
//!
//! A [`Dataset`] reads samples into host memory by index. A [`Loader`] orders them, applies a [`Transform`] to each and
//! stacks them into batches, on worker threads if asked to; the batches do not depend on the number of threads.
//! [`mnist::embedded`] is a dataset that needs no file; [`DataKind`] is the table of all, by name.
//!
//! ```
//! use kiln_data::{Compose, Flip, Loader, LoaderOptions, Normalise, ToFloat, mnist};
//! use std::sync::Arc;
//!
//! let digits = mnist::embedded()?;
//! let options = LoaderOptions { batch_size: 64, shuffle: true, workers: 2, ..Default::default() };
//! let transform = Compose::new().then(Flip::new(0.5)?).then(ToFloat).then(Normalise::new(&[0.1307], &[0.3081])?);
//! let loader = Loader::new(Arc::new(digits.train), options)?.with_transform(transform);
//! let batch = loader.epoch(0)?.next().expect("9,000 digits make 141 batches")?;
//! assert_eq!(batch.inputs.shape(), [64, 28, 28, 1]);
//! assert_eq!(batch.labels.len(), 64);
//! # Ok::<(), kiln_data::DataError>(())
//! ```
//!
//! Files are untrusted: sizes are checked against limits and against the size of the file before memory is allocated,
//! and a [`DataError`] names the file, the place, the value found and the value expected.

mod batch;
mod dataset;
mod datasets;
mod error;
mod formats;
mod loader;
mod memory;
mod resident;
mod sample;
mod skip;
mod streams;
mod synthetic;
mod transforms;

pub use batch::{
    AnyBatch, AnyBatchOn, ArraysOf, Batch, Fields, HostArray, Labelled, LabelledOn, Layout, OnDevice, OnDeviceMut,
    arrays_of, storage,
};
pub use dataset::{Dataset, Split, Subset};
pub use datasets::{
    Alphabet, CLIPS, DataKind, DatasetCard, Fact, Facts, FileOptions, IMAGES, MadeUp, OBJECTS, Opened, PAIRS,
    QUESTIONS, ROWS, ReadFile, Request, SAMPLE_RATE, SampleKind, Shared, Sizes, TAGGED, TEXTS, UTTERANCES, WINDOWS,
    samples_of_sentences, sentences_of,
};
pub use error::{DataError, Place, Result};
pub use formats::{
    Cifar, Clip, ClipFolder, ClipOptions, DEFAULT_MAX_BYTES, Decoded, ImageFolder, ImageFolderOptions, ImageLimits,
    Letterbox, Object, ObjectImages, ObjectImagesOptions, Picture, Pictures, Question, Questions, SpecialTokens,
    TextFile, TextTokenizer, TextWindows, TokenIndex, TokenPart, TokenStream, TokenizeStep, TokenizerChoice, Tokens,
    Vocabulary, csv, decode_clip, decode_image, idx, mnist, resize_bilinear, write_tokens,
};
pub(crate) use formats::{YoloListing, is_token_folder, open_tokens, read_coco, read_voc, read_yolo, voc_annotations};
pub use kiln_derive::Batch;
pub use loader::{
    BatchSampler, Buckets, Collate, Epoch, EpochPlan, Loaded, Loader, LoaderOptions, Position, Stack, Weighted, pad,
};
pub use memory::{Arrays, ByteImages, Labels};
pub use resident::{DeviceImages, Windows};
pub use sample::{ByteImage, Sample};
pub use skip::{BadRecords, Skipped};
pub use synthetic::Synthetic;
pub use transforms::{
    Compose, Crop, Draw, Erase, Flip, FlipObjects, Frames, Light, LogMel, Mosaic, Normalise, RandomResizedCrop,
    ResizeCenterCrop, SpecAugment, Speed, ToFloat, Transform, Typos,
};

/// Names for the code that `#[derive(Batch)]` writes.
#[doc(hidden)]
pub mod derive {
    pub use kiln_core::Backend;
}
