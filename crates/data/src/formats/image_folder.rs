//! Folders of images: one sub-folder per class, or images alone.

use super::image::{ImageLimits, decode_image};
use super::resize::{resize_bilinear, resize_middle};
use crate::dataset::check_index;
use crate::error::reserve;
use crate::{BadRecords, DataError, Dataset, Result, Sample, Skipped};
use kiln_core::Shape;
use kiln_files::shown_path;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The options of an [`ImageFolder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFolderOptions {
    /// The height and width that every image is resized to; `None` keeps each image's own size.
    pub resize: Option<(usize, usize)>,
    /// True if the middle of an image is resized, of the proportions of `resize`; false (the default) if all of it is, whatever its proportions.
    pub crop: bool,
    /// The number of channels: 3 (RGB, the default) or 1 (grey).
    pub channels: usize,
    /// The limits on one image file.
    pub limits: ImageLimits,
    /// The policy for images that do not decode. With [`BadRecords::Skip`] every image is decoded once when the folder is
    /// opened, so that the number of samples is known. With [`BadRecords::Refuse`] an image is decoded only when it is read.
    pub bad: BadRecords,
}

impl Default for ImageFolderOptions {
    fn default() -> Self {
        ImageFolderOptions {
            resize: None,
            crop: false,
            channels: 3,
            limits: ImageLimits::default(),
            bad: BadRecords::Refuse,
        }
    }
}

/// Images in one sub-folder per class, as in torchvision's `ImageFolder`. The classes are the sub-folders in sorted
/// order; the samples are the `.png`, `.jpg` and `.jpeg` files directly in them in sorted order, decoded when read. A folder that is opened
/// [`without_classes`](ImageFolder::without_classes) has the images in itself.
#[derive(Debug, Clone)]
pub struct ImageFolder {
    root: PathBuf,
    options: ImageFolderOptions,
    classes: Vec<String>,
    files: Vec<(PathBuf, i32)>,
    skipped: Arc<Skipped>,
}

impl ImageFolder {
    /// Lists the folder and, under [`BadRecords::Skip`], decodes every image once.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Empty`] for a folder without classes or a class without images,
    /// [`DataError::InvalidArgument`] for a size of 0 or channels other than 1 and 3, [`DataError::Tensor`] for a size that
    /// overflows; under [`BadRecords::Skip`] also [`DataError::OutOfMemory`].
    pub fn open(root: impl AsRef<Path>, options: ImageFolderOptions) -> Result<Self> {
        let mut folder = ImageFolder::empty(root.as_ref(), options)?;
        for (name, path) in list(&folder.root)? {
            if !path.is_dir() || name.starts_with('.') {
                continue;
            }
            let label = i32::try_from(folder.classes.len())
                .map_err(|_| DataError::invalid("image folder", "classes", folder.classes.len(), "fewer than 2³¹"))?;
            folder.add(path, label, "at least one .png, .jpg or .jpeg file of this class")?;
            folder.classes.push(name);
        }
        if folder.classes.is_empty() {
            return Err(DataError::Empty {
                path: folder.root,
                expected: "one sub-folder per class",
            });
        }
        folder.checked()
    }

    /// Lists the images directly in the folder, which are of no classes and have the label 0, such as those that a network is to draw alike.
    ///
    /// # Errors
    /// As [`open`](ImageFolder::open); [`DataError::Empty`] for a folder without images.
    pub fn without_classes(root: impl AsRef<Path>, options: ImageFolderOptions) -> Result<Self> {
        let mut folder = ImageFolder::empty(root.as_ref(), options)?;
        folder.add(folder.root.clone(), 0, "at least one .png, .jpg or .jpeg file")?;
        folder.checked()
    }

    /// A folder whose files are not listed yet, if the options are valid.
    fn empty(root: &Path, options: ImageFolderOptions) -> Result<Self> {
        if options.channels != 1 && options.channels != 3 {
            return Err(DataError::invalid(
                "image folder",
                "channels",
                options.channels,
                "1 or 3",
            ));
        }
        if let Some((h, w)) = options.resize {
            if h == 0 || w == 0 {
                return Err(DataError::invalid(
                    "image folder",
                    "resize",
                    format!("{h}×{w}"),
                    "at least 1×1",
                ));
            }
            Shape::new(&[h, w, options.channels])?;
        }
        Ok(ImageFolder {
            root: root.to_path_buf(),
            options,
            classes: Vec::new(),
            files: Vec::new(),
            skipped: Arc::default(),
        })
    }

    /// Adds the images directly in a folder, of which there has to be one.
    fn add(&mut self, folder: PathBuf, label: i32, expected: &'static str) -> Result<()> {
        let before = self.files.len();
        let images = list(&folder)?
            .into_iter()
            .filter(|(name, path)| is_image(name) && !path.is_dir());
        self.files.extend(images.map(|(_, path)| (path, label)));
        match self.files.len() == before {
            true => Err(DataError::Empty { path: folder, expected }),
            false => Ok(()),
        }
    }

    /// The folder without bad images, if they are to be left out.
    fn checked(mut self) -> Result<Self> {
        if self.options.bad == BadRecords::Skip {
            self.drop_bad()?;
        }
        Ok(self)
    }

    /// The path of the image file of sample `index`; `None` past the end.
    pub fn path(&self, index: usize) -> Option<&Path> {
        self.files.get(index).map(|(path, _)| path.as_path())
    }

    fn drop_bad(&mut self) -> Result<()> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let chunk = self.files.len().div_ceil(threads).max(1);
        let this = &*self;
        // Chunks are joined in order, so the list of skipped files does not depend on the number of threads.
        let verdicts: Vec<Result<()>> = std::thread::scope(|scope| {
            let check = |part: &[(PathBuf, i32)]| -> Vec<Result<()>> {
                let mut sample = Sample::default();
                part.iter().map(|(path, _)| this.load(path, &mut sample)).collect()
            };
            let handles: Vec<_> = self
                .files
                .chunks(chunk)
                .map(|part| (part, scope.spawn(move || check(part))))
                .collect();
            let panicked = |(path, _): &(PathBuf, i32)| {
                Err(DataError::Panicked {
                    message: format!("while decoding images near {}", shown_path(path)),
                })
            };
            handles
                .into_iter()
                .flat_map(|(part, h)| h.join().unwrap_or_else(|_| part.iter().map(panicked).collect()))
                .collect()
        });
        let mut skipped = Skipped::default();
        let mut kept = Vec::new();
        reserve(&mut kept, self.files.len(), "a list of images")?;
        for (file, verdict) in std::mem::take(&mut self.files).into_iter().zip(verdicts) {
            match verdict {
                Ok(()) => kept.push(file),
                Err(error) => skipped.note(BadRecords::Skip, error)?,
            }
        }
        if kept.is_empty() {
            return Err(skipped.nothing_left(&self.root, "at least one image that decodes"));
        }
        self.files = kept;
        self.skipped = Arc::new(skipped);
        Ok(())
    }

    fn load(&self, path: &Path, sample: &mut Sample) -> Result<()> {
        let mut image = decode_image(path, self.options.channels, &self.options.limits)?;
        if let Some((h, w)) = self.options.resize {
            image = match self.options.crop {
                true => resize_middle(&image, h, w)?,
                false => resize_bilinear(&image, h, w)?,
            };
        }
        let shape = Shape::new(&[image.height, image.width, image.channels])?;
        sample.fill(shape, image.pixels.iter().map(|&b| f32::from(b)))
    }
}

/// The entries of a folder, sorted by name.
pub(super) fn list(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(DataError::io(folder, "list"))? {
        let entry = entry.map_err(DataError::io(folder, "list"))?;
        entries.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    entries.sort();
    Ok(entries)
}

/// True for the name of a PNG or JPEG file.
pub(crate) fn is_image(name: &str) -> bool {
    let extension = Path::new(name)
        .extension()
        .map(|e| e.to_string_lossy().to_ascii_lowercase());
    !name.starts_with('.') && matches!(extension.as_deref(), Some("png" | "jpg" | "jpeg"))
}

impl Dataset for ImageFolder {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.files.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        let (path, label) = &self.files[index];
        self.load(path, sample)?;
        sample.label = *label;
        sample.targets.clear();
        Ok(())
    }
    fn shape(&self) -> Option<Shape> {
        let (h, w) = self.options.resize?;
        Shape::new(&[h, w, self.options.channels]).ok()
    }
    fn classes(&self) -> Option<usize> {
        (!self.classes.is_empty()).then_some(self.classes.len())
    }
    fn class_names(&self) -> &[String] {
        &self.classes
    }
    fn skipped(&self) -> Option<&Skipped> {
        Some(&self.skipped)
    }
    fn source(&self) -> Option<&Path> {
        Some(&self.root)
    }
}
