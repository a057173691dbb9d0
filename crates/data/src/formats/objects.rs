//! Images with objects in them: a class and a box for each.

use super::image::{ImageLimits, decode_image};
use super::letterbox::Letterbox;
use super::object::Object;
use crate::dataset::check_index;
use crate::{BadRecords, DataError, Dataset, Place, Result, Sample, Skipped};
use kiln_core::Shape;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image file and the objects in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// The image file.
    pub path: PathBuf,
    /// Its height and width, if the list of objects says them; reading it checks them.
    pub size: Option<(usize, usize)>,
    /// The objects.
    pub objects: Vec<Object>,
    /// True if edges are shares of the image's sides instead of pixels.
    pub relative: bool,
}

/// Pictures and the names of the classes of their objects, as lists of objects have them.
#[derive(Debug, Default)]
pub struct Pictures {
    /// The names of the classes, by number.
    pub classes: Vec<String>,
    /// The pictures.
    pub pictures: Vec<Picture>,
    /// Boxes that were left out.
    pub(crate) skipped: Skipped,
}

/// The options of [`ObjectImages`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectImagesOptions {
    /// The height and width that images are fitted into.
    pub size: (usize, usize),
    /// The number of channels: 3 or 1.
    pub channels: usize,
    /// The limits on one image file.
    pub limits: ImageLimits,
    /// The policy for boxes that are none. An image that does not decode is always an error.
    pub bad: BadRecords,
}

/// Images with objects, of one size: an image is scaled to fit and centred on grey ([`Letterbox`]), and its objects with it. The targets of
/// a sample are its [objects](Object::of_targets).
#[derive(Debug)]
pub struct ObjectImages {
    source: PathBuf,
    options: ObjectImagesOptions,
    classes: Vec<String>,
    pictures: Vec<Picture>,
    skipped: Arc<Skipped>,
}

impl ObjectImages {
    /// Images of a list; `source` is the file or folder that it comes from.
    ///
    /// # Errors
    /// No pictures, no classes, a size of 0.
    pub fn new(source: impl Into<PathBuf>, pictures: Pictures, options: ObjectImagesOptions) -> Result<Self> {
        let source = source.into();
        let (height, width) = options.size;
        if height == 0 || width == 0 {
            let size = format!("{height}×{width}");
            return Err(DataError::invalid("objects", "size", size, "at least 1×1"));
        }
        Shape::new(&[height, width, options.channels])?;
        if pictures.pictures.is_empty() || pictures.classes.is_empty() {
            return Err(DataError::Empty {
                path: source,
                expected: "images with objects in them",
            });
        }
        Ok(ObjectImages {
            source,
            options,
            classes: pictures.classes,
            pictures: pictures.pictures,
            skipped: Arc::new(pictures.skipped),
        })
    }

    /// The pictures.
    pub fn pictures(&self) -> &[Picture] {
        &self.pictures
    }
}

impl Dataset for ObjectImages {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.pictures.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        let picture = &self.pictures[index];
        let image = decode_image(&picture.path, self.options.channels, &self.options.limits)?;
        let found = (image.height, image.width);
        if let Some((height, width)) = picture.size.filter(|&size| size != found) {
            return Err(DataError::Value {
                path: picture.path.clone(),
                place: Place::File,
                what: "size",
                found: format!("{}×{}", image.height, image.width),
                expected: format!("{height}×{width}, as {} says", kiln_files::shown_path(&self.source)).into(),
            });
        }
        let fitted = Letterbox::new(found, self.options.size);
        fitted.fill(&image, sample)?;
        let (height, width) = match picture.relative {
            true => (found.0 as f32, found.1 as f32),
            false => (1.0, 1.0),
        };
        let objects = picture.objects.iter().filter_map(|object| {
            let [x1, y1, x2, y2] = object.bounds;
            fitted.object(Object {
                bounds: [x1 * width, y1 * height, x2 * width, y2 * height],
                ..*object
            })
        });
        Object::write_targets(objects, &mut sample.targets);
        sample.label = 0;
        Ok(())
    }
    fn shape(&self) -> Option<Shape> {
        let (height, width) = self.options.size;
        Shape::new(&[height, width, self.options.channels]).ok()
    }
    fn classes(&self) -> Option<usize> {
        Some(self.classes.len())
    }
    fn class_names(&self) -> &[String] {
        &self.classes
    }
    fn skipped(&self) -> Option<&Skipped> {
        Some(&self.skipped)
    }
    fn source(&self) -> Option<&Path> {
        Some(&self.source)
    }
}
