//! Batches of any kind in host memory, and how they get to a device.

use super::fields::{ArraysOf, Fields};
use super::values::{HostArray, OnDevice, OnDeviceMut};
use crate::{DataError, Result};
use kiln_core::{Backend, DType};
use kiln_nn::StorageSnapshot;
use kiln_nn::module::{StateDict, Value};

/// A batch in host memory, and its form on a device.
///
/// Arrays of `ndarray` with elements of f32, f64, i32 or u8 are batches, and so are a `Vec`, an `Option` and a tuple of batches.
/// `#[derive(Batch)]` makes one of a struct, along with the struct on the device:
///
/// ```
/// use kiln_cpu::Cpu;
/// use kiln_data::Batch;
/// use ndarray::{Array1, Array2, Array4, array};
///
/// /// Images with the boxes of the objects in them.
/// #[derive(Batch)]
/// struct Scenes {
///     /// `[N, H, W, C]`.
///     images: Array4<f32>,
///     /// For each image `[boxes, 4]`.
///     boxes: Vec<Array2<f32>>,
///     /// The number of boxes of each image.
///     counts: Array1<i32>,
///     #[batch(skip)]
///     names: Vec<String>,
/// }
///
/// let scenes = Scenes {
///     images: Array4::zeros((2, 8, 8, 3)),
///     boxes: vec![array![[0.0, 0.0, 4.0, 4.0]], Array2::zeros((0, 4))],
///     counts: array![1, 0],
///     names: vec!["a.png".into(), "b.png".into()],
/// };
/// assert_eq!(scenes.len(), 2);
/// let on_device: ScenesOn<Cpu> = scenes.to_device(&Cpu::new())?;
/// assert_eq!(on_device.boxes[0].to_vec::<f32>()?, [0.0, 0.0, 4.0, 4.0]);
/// assert_eq!(on_device.counts.to_vec::<i32>()?, [1, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no batch",
    note = "batches are ndarray's arrays of f32, f64, i32 or u8, structs with `#[derive(Batch)]`, and `Vec`s, `Option`s and tuples of batches"
)]
pub trait Batch: Send + 'static {
    /// The batch on a backend's device: floats are a [`Tensor`](kiln_nn::Tensor), integers are [`Indices`](kiln_nn::Indices).
    type On<B: Backend>;

    /// The number of samples: the first dimension of an array, the length of a list.
    fn len(&self) -> usize;

    /// True if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the arrays in order.
    fn arrays<'a>(&'a self, fields: &mut Fields<'_, HostArray<'a>>);

    /// Copies the batch to a device. The host's batch may be dropped as soon as this returns.
    ///
    /// # Errors
    /// [`DataError::Tensor`] when the device has no memory left, or for an array of more than 8 dimensions.
    fn to_device<B: Backend>(&self, backend: &B) -> Result<Self::On<B>>;

    /// Makes a batch on a device of its arrays, which may be of other shapes, and floats of another dtype, than the host would make.
    ///
    /// ```
    /// use kiln_cpu::Cpu;
    /// use kiln_data::{ArraysOf, Batch};
    /// use kiln_nn::module::{StateDict, Value};
    /// use kiln_nn::{DType, Indices, Tensor};
    /// use ndarray::{Array1, Array2};
    ///
    /// #[derive(Batch)]
    /// struct Pairs {
    ///     inputs: Array2<f32>,
    ///     labels: Array1<i32>,
    /// }
    ///
    /// let cpu = Cpu::new();
    /// let mut arrays = StateDict::new();
    /// arrays.insert("inputs", Value::from(&Tensor::ones(&cpu, &[2, 3], DType::F64)?));
    /// arrays.insert("labels", Value::from(&Indices::from_slice(&cpu, &[0, 1], &[2])?));
    /// let pairs: PairsOn<Cpu> = Pairs::from_arrays(&mut ArraysOf::new(&arrays))?;
    /// assert_eq!(pairs.inputs.to_f64()?, [1.0; 6]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::Arrays`] for an array that is missing or of another kind.
    fn from_arrays<B: Backend>(arrays: &mut ArraysOf<'_, B>) -> Result<Self::On<B>>;

    /// Visits the tensors on the device, in the order of [`arrays`](Batch::arrays).
    fn on_device<'a, B: Backend>(on: &'a Self::On<B>, fields: &mut Fields<'_, OnDevice<'a, B>>);

    /// As [`on_device`](Batch::on_device), for overwriting them.
    fn on_device_mut<'a, B: Backend>(on: &'a mut Self::On<B>, fields: &mut Fields<'_, OnDeviceMut<'a, B>>);

    /// The names, dtypes and shapes of the arrays: batches of one layout can be written over each other.
    fn layout(&self) -> Layout {
        let mut layout = Layout::default();
        self.arrays(&mut Fields::new(&mut |name, array: HostArray<'_>| {
            layout.push(name, array.dtype(), array.shape());
        }));
        layout
    }

    /// Copies the batch over `on`, which lies on a device and has the same layout. A captured step reads its new inputs this
    /// way.
    ///
    /// # Errors
    /// [`DataError::Layout`] for another layout; nothing is written then.
    fn write_to<B: Backend>(&self, on: &mut Self::On<B>) -> Result<()> {
        check_layout::<Self, B>(&self.layout(), on)?;
        let mut arrays = Vec::new();
        self.arrays(&mut Fields::new(&mut |_, array| arrays.push(array)));
        let (mut arrays, mut result) = (arrays.into_iter(), Ok(()));
        Self::on_device_mut(
            on,
            &mut Fields::new(&mut |_, mut value: OnDeviceMut<'_, B>| {
                if let (Some(array), true) = (arrays.next(), result.is_ok()) {
                    result = array.write_to(&mut value);
                }
            }),
        );
        result
    }

    /// The name of the first array with a value that is NaN or infinite.
    fn first_non_finite(&self) -> Option<String> {
        let mut found = None;
        self.arrays(&mut Fields::new(&mut |name, array: HostArray<'_>| {
            if found.is_none() && !array.is_finite() {
                found = Some(name.to_string());
            }
        }));
        found
    }
}

/// Refuses a batch on a device that has another layout.
fn check_layout<T: Batch + ?Sized, B: Backend>(layout: &Layout, on: &T::On<B>) -> Result<()> {
    let mut present = Layout::default();
    T::on_device(
        on,
        &mut Fields::new(&mut |name, value: OnDevice<'_, B>| {
            present.push(name, value.dtype(), value.shape());
        }),
    );
    match *layout == present {
        true => Ok(()),
        false => Err(DataError::Layout {
            found: layout.to_string(),
            expected: present.to_string(),
        }),
    }
}

/// Adds where the tensors of a batch on a device lie.
pub fn storage<T: Batch, B: Backend>(on: &T::On<B>, storage: &mut StorageSnapshot) {
    T::on_device(
        on,
        &mut Fields::new(&mut |_, value: OnDevice<'_, B>| match value {
            OnDevice::Floats(t) => storage.tensor(t),
            OnDevice::Integers(i) => storage.indices(i),
        }),
    );
}

/// The arrays of a batch on a device by the paths of their fields, of which [`Batch::from_arrays`] makes it again. The memory is shared.
pub fn arrays_of<T: Batch, B: Backend>(on: &T::On<B>) -> StateDict<B> {
    let mut arrays = StateDict::new();
    T::on_device(
        on,
        &mut Fields::new(&mut |name, value: OnDevice<'_, B>| {
            let value = match value {
                OnDevice::Floats(t) => Value::from(t),
                OnDevice::Integers(i) => Value::from(i),
            };
            arrays.insert(name, value);
        }),
    );
    arrays
}

/// The names, dtypes and shapes of the arrays of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout(Vec<(String, DType, Vec<usize>)>);

impl Layout {
    /// Adds an array.
    fn push(&mut self, name: &str, dtype: DType, shape: &[usize]) {
        self.0.push((name.to_string(), dtype, shape.to_vec()));
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (name, dtype, shape)) in self.0.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            let colon = if name.is_empty() { "" } else { ": " };
            write!(f, "{comma}{name}{colon}{dtype} {shape:?}")?;
        }
        Ok(())
    }
}
