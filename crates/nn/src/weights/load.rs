//! Loads a dictionary into a model.

use super::torch::{Layout, from_torch, swap_of};
use super::{LoadReport, Mismatch, WeightsError};
use crate::module::{EntriesMut, Entry, EntryMut, ParamLayout, StateDict, Value};
use crate::{Backend, DType, Shape};
use std::collections::BTreeSet;

/// The options for loading weights.
///
/// ```
/// # use kiln_nn::{Init, Layout, LoadOptions, Module, layers::Conv2d};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// # let from_pytorch = Conv2d::new(init, 3, 8, 5)?.torch_state_dict()?;
/// let mut conv = Conv2d::new(init, 3, 8, 5)?;
/// let options = LoadOptions::strict().layout(Layout::Torch);
/// assert!(conv.load_state_dict(&from_pytorch, options)?.is_exact());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LoadOptions {
    partial: bool,
    layout: Layout,
    non_finite: bool,
}

impl LoadOptions {
    /// Loads everything or nothing: every name must be present and fit (PyTorch's `strict=True`).
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (small, mut large) = (Linear::new(init, 4, 2)?, Linear::new(init, 8, 2)?);
    /// assert!(large.load_state_dict(&small.state_dict(), LoadOptions::strict()).is_err());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn strict() -> Self {
        LoadOptions::default()
    }

    /// Loads every entry that fits; the report lists the others.
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (small, mut large) = (Linear::new(init, 4, 2)?, Linear::new(init, 8, 2)?);
    /// let report = large.load_state_dict(&small.state_dict(), LoadOptions::partial())?;
    /// assert_eq!((&report.loaded[..], &report.mismatched[0].name[..]), (&["bias".to_string()][..], "weight"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn partial() -> Self {
        LoadOptions {
            partial: true,
            ..LoadOptions::default()
        }
    }

    /// Sets the layout of kernels and matrices in the weights; [`Layout::Kiln`] by default.
    ///
    /// See the example of [`LoadOptions`].
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Accepts values in a file that are NaN or infinite, or become infinite in the parameter's dtype, such as the −∞ of a
    /// mask kept as a buffer. They are an error otherwise.
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, weights};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let path = std::env::temp_dir().join(format!("kiln-nn-inf-{}.safetensors", std::process::id()));
    /// let mut mask = Init::new(&cpu, 0).constant(&[2], f64::NEG_INFINITY)?;
    /// weights::write(&path, &mask.state_dict(), &weights::Metadata::new())?;
    /// assert!(mask.load(&path, LoadOptions::strict()).is_err());
    /// assert!(mask.load(&path, LoadOptions::strict().allow_non_finite())?.is_exact());
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allow_non_finite(mut self) -> Self {
        self.non_finite = true;
        self
    }

    pub(super) fn is_partial(self) -> bool {
        self.partial
    }

    pub(super) fn is_torch(self) -> bool {
        self.layout == Layout::Torch
    }

    pub(super) fn allows_non_finite(self) -> bool {
        self.non_finite
    }
}

fn described(shape: &Shape, dtype: DType) -> String {
    format!("{shape} {dtype}")
}

/// The shape that a parameter of `shape` has in weights of layout `of`.
fn outside(shape: &Shape, layout: ParamLayout, of: Layout) -> Shape {
    let mut dims = shape.to_vec();
    if let Some(swap) = swap_of(layout, dims.len()).filter(|_| of == Layout::Torch) {
        swap.outside(&mut dims);
    }
    Shape::new(&dims).unwrap_or(*shape)
}

/// Copies the entries of `dict` that fit into a module, converting dtypes.
#[compiled_once]
pub(crate) fn load_state_dict<B: Backend>(
    module: EntriesMut<'_, B>,
    dict: &StateDict<B>,
    options: LoadOptions,
) -> Result<LoadReport, WeightsError> {
    let offered = |name: &str| dict.get(name).map(|v| (*v.shape(), v.dtype()));
    let report = compare(&module, &offered, &mut dict.names(), options);
    if !options.partial && !report.is_exact() {
        return Err(WeightsError::Misfit(report));
    }
    let fits: BTreeSet<&str> = report.loaded.iter().map(String::as_str).collect();
    for (name, entry) in module {
        let Some(value) = dict.get(&name).filter(|_| fits.contains(&name[..])) else {
            continue;
        };
        let copied = match (entry, value) {
            (EntryMut::Param(p), Value::Float(t)) => from_torch(t, p.layout(), options.layout)
                .and_then(|t| t.to_dtype(p.dtype()))
                .and_then(|t| p.assign(&t)),
            (EntryMut::State(s), Value::Float(t)) => {
                // A handle on the present values would make `assign` take new memory.
                let dtype = s.with(|present| present.dtype());
                t.to_dtype(dtype).and_then(|t| s.assign(&t))
            }
            (EntryMut::Counter(c), Value::Int(i)) => c.assign(i),
            _ => Ok(()),
        };
        copied.map_err(|source| WeightsError::Tensor { name, source })?;
    }
    Ok(report)
}

/// Compares the entries `names`, whose shapes and dtypes `offered` returns, with those of a module; nothing is changed.
#[compiled_once]
pub(super) fn compare<B: Backend>(
    module: &EntriesMut<'_, B>,
    offered: &dyn Fn(&str) -> Option<(Shape, DType)>,
    names: &mut dyn Iterator<Item = &str>,
    options: LoadOptions,
) -> LoadReport {
    let mut report = LoadReport::default();
    let mut known = BTreeSet::new();
    for (name, entry) in module {
        let (shape, dtype, counter) = match entry.reborrow() {
            Entry::Param(p) => (outside(p.shape(), p.layout(), options.layout), p.dtype(), false),
            Entry::State(s) => {
                let s = s.get();
                (*s.shape(), s.dtype(), false)
            }
            Entry::Counter(c) => (*c.get().shape(), DType::I32, true),
            Entry::Mode(_) => continue,
        };
        known.insert(&name[..]);
        let name = name.clone();
        match offered(&name) {
            None if counter => report.counters_kept.push(name),
            None => report.missing.push(name),
            Some((found, of)) if found == shape && of.is_float() != counter && of != DType::U8 => {
                report.loaded.push(name);
            }
            Some((found, of)) => report.mismatched.push(Mismatch {
                name,
                expected: described(&shape, dtype),
                found: described(&found, of),
            }),
        }
    }
    report.unexpected = names.filter(|n| !known.contains(*n)).map(str::to_string).collect();
    report
}
