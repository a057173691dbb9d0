//! The comparison of two runs of the same ops, one of which is given the inputs of the other.

use kiln_core::{DType, Shape};
use kiln_nn::watch::{OpCall, OpName, Watch};
use std::collections::HashMap;

/// How many times as badly as expected a device may round.
const SLACK: f64 = 16.0;

/// An op of the device whose result is further from the twin's than rounding explains.
#[derive(Debug, Clone, PartialEq)]
pub struct Deviation {
    /// The op.
    pub name: OpName,
    /// The shape of its output, or of the gradient.
    pub shape: Shape,
    /// The index of the element that is furthest outside, in row-major order.
    pub element: usize,
    /// Its value on the device.
    pub device: f64,
    /// Its value on the twin, from the same inputs.
    pub expected: f64,
    /// The largest difference that rounding explains.
    pub bound: f64,
}

/// `the forward pass of op `linear` in layer `fc`: element 3 of [2, 4] is 1.5, expected 1 to within 1e-5`.
impl std::fmt::Display for Deviation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Deviation {
            name,
            shape,
            element,
            device,
            expected,
            bound,
        } = self;
        write!(
            f,
            "{name}: element {element} of {shape} is {device}, expected {expected} to within {bound:.1e}"
        )
    }
}

/// Values of an op, in f32 if that holds them exactly.
enum Values {
    Narrow(Vec<f32>),
    Wide(Vec<f64>),
}

impl Values {
    fn of(values: Vec<f64>, dtype: DType) -> Self {
        match dtype {
            DType::F64 => Values::Wide(values),
            _ => Values::Narrow(values.into_iter().map(|value| value as f32).collect()),
        }
    }

    fn to_f64(&self) -> Vec<f64> {
        match self {
            Values::Narrow(values) => values.iter().map(|&value| value.into()).collect(),
            Values::Wide(values) => values.clone(),
        }
    }
}

/// The result of an op.
struct Made {
    shape: Shape,
    dtype: DType,
    /// An estimate of the number of terms that are summed for an element.
    terms: f64,
    values: Values,
}

impl Made {
    fn of(call: &OpCall<'_>) -> Self {
        let dtype = call.output.dtype();
        // A device that fails here fails again where the result is read, and the error is reported there.
        let values = call.output.to_f64().unwrap_or_default();
        Made {
            shape: *call.output.shape(),
            dtype,
            terms: terms(call),
            values: Values::of(values, dtype),
        }
    }
}

/// An estimate of the number of terms in an element of the output, from sizes alone: of inputs `m·k` and `k·n` and an output `m·n`,
/// `k`; of a larger input, its size over that of the output.
fn terms(call: &OpCall<'_>) -> f64 {
    let size = |shape: &Shape| shape.size().max(1) as f64;
    let out = size(call.output.shape());
    let mut inputs: Vec<f64> = call.inputs.iter().map(|x| size(x.shape())).collect();
    inputs.sort_by(|a, b| b.total_cmp(a));
    let product = match inputs[..] {
        [a, b, ..] => (a * b / out).sqrt(),
        _ => 1.0,
    };
    let reduced = inputs.first().map_or(1.0, |largest| largest / out);
    product.max(reduced).max(1.0)
}

/// Which op of its name it is.
type Key = (OpName, usize);

/// Counts ops by name.
#[derive(Default)]
pub(crate) struct Seen(HashMap<OpName, usize>);

impl Seen {
    fn next(&mut self, name: OpName) -> Key {
        let count = self.0.entry(name.clone()).or_default();
        *count += 1;
        (name, *count - 1)
    }
}

impl Watch for Seen {
    fn op(&mut self, call: &OpCall<'_>) -> Option<Vec<f64>> {
        self.next(call.name());
        None
    }
}

/// The results of a device's ops.
#[derive(Default)]
pub(crate) struct Recording {
    seen: Seen,
    made: HashMap<Key, Made>,
}

impl Watch for Recording {
    fn op(&mut self, call: &OpCall<'_>) -> Option<Vec<f64>> {
        let key = self.seen.next(call.name());
        self.made.insert(key, Made::of(call));
        None
    }
}

/// Runs as the twin of a device: keeps its own results, and goes on with the device's.
pub(crate) struct Twinned {
    device: Recording,
    unit: f64,
    /// True in the pass in f64, in which ops are compared.
    compares: bool,
    seen: Seen,
    own: HashMap<Key, Values>,
    /// The order of the ops.
    order: Vec<Key>,
    found: Option<Deviation>,
    compared: usize,
}

impl Twinned {
    /// The twin of a device, where `seen` are the twin's ops: those of which both have equally many are paired.
    pub(crate) fn new(mut device: Recording, seen: &Seen, unit: f64) -> Self {
        let counts = &device.seen.0;
        // The casts of mixed precision have no counterpart in f64.
        let paired = |(name, _): &Key| name.op != "to_dtype" && counts.get(name) == seen.0.get(name);
        device.made.retain(|key, _| paired(key));
        Twinned {
            device,
            unit,
            compares: false,
            seen: Seen::default(),
            own: HashMap::new(),
            order: Vec::new(),
            found: None,
            compared: 0,
        }
    }

    /// For the pass in f64.
    pub(crate) fn in_f64(self) -> Self {
        Twinned {
            compares: true,
            seen: Seen::default(),
            ..self
        }
    }

    /// The first op outside of its bound, and the number of ops compared.
    pub(crate) fn result(self) -> (Option<Deviation>, usize) {
        (self.found, self.compared)
    }

    /// As [`result`](Twinned::result), by the twin's own results where there are none in f64.
    pub(crate) fn without_f64(mut self) -> (Option<Deviation>, usize) {
        (self.found, self.compared) = (None, 0);
        for key in std::mem::take(&mut self.order) {
            if let Some(own) = self.own.get(&key).map(Values::to_f64) {
                self.compare(&key, &own);
            }
        }
        self.result()
    }

    /// Compares the device's result of an op with the expected one.
    fn compare(&mut self, key: &Key, expected: &[f64]) {
        let (Some(made), Some(own)) = (self.device.made.get(key), self.own.get(key)) else {
            return;
        };
        self.compared += 1;
        if self.found.is_some() {
            return;
        }
        let (device, own) = (made.values.to_f64(), own.to_f64());
        let largest = |values: &mut dyn Iterator<Item = f64>| values.filter(|v| v.is_finite()).fold(0.0, f64::max);
        let scale = largest(&mut expected.iter().map(|r| r.abs()));
        let own_error = largest(&mut own.iter().zip(expected).map(|(c, r)| (c - r).abs()));
        let unit = self.unit.max(unit_roundoff(made.dtype));
        // Results below the smallest normal number may be flushed to zero.
        let bound = SLACK * (own_error + unit * made.terms.sqrt() * scale + smallest(made.dtype));
        // Where the precision of the run has no finite result on the twin either, there is nothing to compare.
        let pairs = device.iter().zip(expected).zip(&own).enumerate();
        let finite = pairs.filter(|(_, ((_, r), c))| r.is_finite() && c.is_finite());
        let errors = finite.map(|(i, ((d, r), _))| (i, if d.is_finite() { (d - r).abs() } else { f64::INFINITY }));
        if let Some((element, error)) = errors.max_by(|a, b| a.1.total_cmp(&b.1))
            && error > bound
        {
            self.found = Some(Deviation {
                name: key.0.clone(),
                shape: made.shape,
                element,
                device: device[element],
                expected: expected[element],
                bound,
            });
        }
    }
}

impl Watch for Twinned {
    fn op(&mut self, call: &OpCall<'_>) -> Option<Vec<f64>> {
        let key = self.seen.next(call.name());
        let made = self.device.made.get(&key)?;
        if made.shape != *call.output.shape() {
            return None;
        }
        let given = made.values.to_f64();
        let values = call.output.to_f64().unwrap_or_default();
        match self.compares {
            true => self.compare(&key, &values),
            false => {
                self.own.insert(key.clone(), Values::of(values, call.output.dtype()));
                self.order.push(key);
            }
        }
        Some(given)
    }
}

/// Half of the distance from 1 to the next number.
fn unit_roundoff(dtype: DType) -> f64 {
    let digits = match dtype {
        DType::F64 => 53,
        DType::F16 => 11,
        DType::BF16 => 8,
        _ => 24,
    };
    f64::powi(2.0, -digits)
}

/// The smallest normal number.
fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F16 => f64::powi(2.0, -14),
        _ => f32::MIN_POSITIVE.into(),
    }
}
