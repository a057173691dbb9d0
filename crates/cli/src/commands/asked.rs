//! The files that networks are asked about, as inputs.

use crate::args::{Invert, PredictArgs};
use crate::error::{Error, Result};
use crate::weights::{self, Saved};
use kiln_core::Backend;
use kiln_data::{
    Compose, DataKind, Draw, FileOptions, IMAGES, ImageFolder, ImageFolderOptions, OBJECTS, ReadFile, Sample, Transform,
};
use kiln_files::shown_path;
use kiln_nn::Tensor;
use std::path::{Path, PathBuf};

/// The files that are asked about, and the network that is asked.
pub(super) struct Asked<'a, B: Backend> {
    pub(super) args: &'a PredictArgs,
    /// The files, those in folders of images among them.
    pub(super) files: Vec<PathBuf>,
    pub(super) saved: &'a Saved<B>,
    /// Reads a file as raw samples.
    pub(super) read: ReadFile,
    pub(super) transform: Compose,
}

/// The files that are named, and in the place of each folder its images in the order of their names, if the network looks at images.
pub(super) fn files(named: &[PathBuf], data: DataKind) -> Result<Vec<PathBuf>> {
    let samples = data.card().samples;
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() || (samples != &IMAGES && samples != &OBJECTS) {
            files.push(path.clone());
            continue;
        }
        let images = ImageFolder::without_classes(path, ImageFolderOptions::default())?;
        files.extend((0..).map_while(|index| images.path(index).map(Path::to_path_buf)));
    }
    Ok(files)
}

impl<B: Backend> Asked<'_, B> {
    /// The raw samples of a file.
    pub(super) fn samples(&self, path: &Path) -> Result<Vec<Sample>> {
        let tokenizer = weights::tokenizer_file(&self.saved.path);
        Ok((self.read)(path, &self.options(&tokenizer))?)
    }

    /// The way that files are read for the network, whose tokenizer, if it has one, is in a file.
    pub(super) fn options<'s>(&'s self, tokenizer: &'s Path) -> FileOptions<'s> {
        FileOptions {
            shape: self.saved.model.input().shape,
            own_size: self.saved.model.recipe().crops_own_sizes(),
            facts: &self.saved.facts,
            tokenizer: Some(tokenizer),
            invert: match self.args.invert {
                Invert::Auto => None,
                Invert::Yes => Some(true),
                Invert::No => Some(false),
            },
        }
    }

    /// The samples of a file as the network's inputs `[N, …]`.
    pub(super) fn inputs(&self, path: &Path, backend: &B) -> Result<Tensor<B>> {
        self.inputs_of(self.samples(path)?, path, backend)
    }

    /// The raw samples of a file as the network's inputs `[N, …]`.
    pub(super) fn inputs_of(&self, samples: Vec<Sample>, path: &Path, backend: &B) -> Result<Tensor<B>> {
        let (mut values, mut shape) = (Vec::new(), vec![0]);
        for mut sample in samples {
            self.transform.apply(&mut sample, &Draw::new(0, 0, 0))?;
            shape.truncate(1);
            shape[0] += 1;
            shape.extend(sample.shape.iter());
            values.append(&mut sample.input);
        }
        if shape[0] == 0 {
            return Err(Error::failure(format!("{}: there are no rows in it", shown_path(path))));
        }
        Ok(Tensor::from_slice(backend, &values, &shape)?)
    }
}
