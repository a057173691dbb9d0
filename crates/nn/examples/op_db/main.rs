//! Reads cases from `op_db.py`, one JSON object a line, computes them on the CPU and compares values, gradients and
//! gradients of gradients. Prints a line for each operator with its number of cases, and every difference; the exit code is 1 if
//! there is one.

mod functions;
mod integers;
mod layers;

use kiln_cpu::Cpu;
use kiln_nn::{DType, Indices, Result, Tensor, grad};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::process::ExitCode;

/// A case: the tensors that the op takes, and its other arguments.
pub(crate) struct Case {
    pub(crate) x: Vec<Tensor<Cpu>>,
    pub(crate) ints: Vec<Indices<Cpu>>,
    pub(crate) args: Value,
}

/// The results of an op in order.
pub(crate) enum Out {
    Float(Tensor<Cpu>),
    Int(Indices<Cpu>),
}

impl From<Tensor<Cpu>> for Out {
    fn from(x: Tensor<Cpu>) -> Self {
        Out::Float(x)
    }
}

impl From<Indices<Cpu>> for Out {
    fn from(x: Indices<Cpu>) -> Self {
        Out::Int(x)
    }
}

impl Case {
    pub(crate) fn f64(&self, name: &str) -> f64 {
        number(&self.args[name])
    }

    pub(crate) fn int(&self, name: &str) -> isize {
        self.args[name]
            .as_i64()
            .unwrap_or_else(|| panic!("{name} is no integer")) as isize
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.args[name].as_bool().unwrap_or(false)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.args[name].as_str().unwrap_or_else(|| panic!("{name} is no text"))
    }

    pub(crate) fn list(&self, name: &str) -> Vec<isize> {
        let list = self.args[name]
            .as_array()
            .unwrap_or_else(|| panic!("{name} is no list"));
        list.iter()
            .map(|v| v.as_i64().unwrap_or_else(|| panic!("{name}: {v}")) as isize)
            .collect()
    }

    pub(crate) fn sizes(&self, name: &str) -> Vec<usize> {
        self.list(name).into_iter().map(|v| v as usize).collect()
    }
}

fn number(v: &Value) -> f64 {
    let named = || v.as_str().and_then(|name| name.parse().ok());
    let truth = || v.as_bool().map(|b| f64::from(u8::from(b)));
    v.as_f64()
        .or_else(named)
        .or_else(truth)
        .unwrap_or_else(|| panic!("{v} is no number"))
}

fn shape(v: &Value) -> Vec<usize> {
    let dims = v["shape"].as_array().expect("a shape").iter();
    dims.map(|d| d.as_u64().expect("a size") as usize).collect()
}

fn numbers(v: &Value) -> Vec<f64> {
    v["data"].as_array().expect("a list").iter().map(number).collect()
}

fn arrays(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

/// The weights of a result in the scalar that is differentiated: −3/4, −2/4, … 3/4 in turn.
fn seeds(y: &Tensor<Cpu>) -> Result<Tensor<Cpu>> {
    let weights: Vec<f64> = (0..y.size()).map(|i| ((i % 7) as f64 - 3.0) / 4.0).collect();
    Tensor::from_f64(y.backend(), &weights, y.shape(), y.dtype())
}

/// Adds up Σ seed·y of those tensors that are tracked.
fn total(ys: &[Tensor<Cpu>]) -> Result<Option<Tensor<Cpu>>> {
    let mut sum: Option<Tensor<Cpu>> = None;
    for y in ys.iter().filter(|y| y.is_tracked()) {
        let own = y.mul(&seeds(y)?)?.sum(&[], false)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&own)?,
            None => own,
        });
    }
    Ok(sum)
}

/// What PyTorch computes less exactly than Kiln: operator, dtype, and the reason.
const KNOWN: [(&str, &str, &str); 2] = [
    ("nn.functional.hardsigmoid", "float64", "PyTorch's slope is 1/6 in f32"),
    (
        "nn.functional.binary_cross_entropy",
        "float64",
        "PyTorch adds 1e-12 to a denominator of the second gradient",
    ),
];

/// The largest error that rounding explains, for values, gradients, and gradients of gradients: relative to each number, and to
/// the largest of all that belong together.
fn bound(dtype: DType, order: usize) -> [f64; 2] {
    let unit = match dtype {
        DType::F64 => 2f64.powi(-53),
        DType::F32 => 2f64.powi(-24),
        _ => 2f64.powi(-9),
    };
    // Inner results of halves are rounded once more for each op that they pass.
    let roundings = [if unit > 1e-4 { 3.0 } else { 40.0 }, 40.0, 120.0][order];
    [roundings * unit, roundings * unit]
}

fn differs(what: &str, (dtype, size): (DType, f64), order: usize, got: &[f64], want: &[f64]) -> Option<String> {
    let [relative, absolute] = bound(dtype, order);
    let finite = want.iter().filter(|w| w.is_finite());
    let largest = finite.fold(size, |m, w| m.max(w.abs()));
    // A number that the dtype does not hold.
    let most = if dtype == DType::F64 {
        f64::MAX
    } else {
        f64::from(f32::MAX)
    };
    if got.len() != want.len() {
        return Some(format!("{what} has {} numbers, not {}", got.len(), want.len()));
    }
    let wrong = got.iter().zip(want).position(|(g, w)| {
        // PyTorch's gradients are NaN where a product of 0 and ∞ could have been avoided.
        let same = g == w || (w.is_nan() && (g.is_nan() || order > 0)) || (w.abs() > most && g.is_infinite());
        let near = (g - w).abs() <= relative * w.abs() + absolute * largest;
        !(same || near)
    })?;
    Some(format!(
        "{what}: element {wrong} is {}, not {}",
        got[wrong], want[wrong]
    ))
}

/// Computes a case; what differs, if anything.
fn check(cpu: &Cpu, case: &Value) -> Result<Option<String>> {
    let dtype = match case["dtype"].as_str() {
        Some("float64") => DType::F64,
        Some("float32") => DType::F32,
        _ => DType::BF16,
    };
    let mut x = Vec::new();
    let differentiable = arrays(&case["grads"]).len();
    for (i, v) in arrays(&case["inputs"]).iter().enumerate() {
        let own = Tensor::from_f64(cpu, &numbers(v), &shape(v), dtype)?;
        x.push(if i < differentiable { own.requires_grad() } else { own });
    }
    let mut ints = Vec::new();
    for v in arrays(&case["ints"]) {
        let values = numbers(v);
        ints.push(match v["mask"].as_bool() {
            Some(true) => {
                Indices::from_slice(cpu, &values.iter().map(|&v| v != 0.0).collect::<Vec<bool>>(), &shape(v))?
            }
            _ => Indices::from_slice(cpu, &values.iter().map(|&v| v as i32).collect::<Vec<i32>>(), &shape(v))?,
        });
    }
    // The size of what is summed: the inputs, and 1.
    let given = arrays(&case["inputs"])
        .iter()
        .flat_map(numbers)
        .filter(|v| v.is_finite());
    let size = given.fold(1.0f64, |m, v| m.max(v.abs()));
    let name = case["op"].as_str().expect("a name");
    let case_of = Case {
        x,
        ints,
        args: case["args"].clone(),
    };
    let outs = match case_of.x.is_empty() {
        true => integers::call(name, &case_of)?,
        false => match functions::call(name, &case_of)? {
            Some(outs) => outs,
            None => layers::call(name, &case_of)?,
        },
    };
    let wanted = arrays(&case["outputs"]);
    if outs.len() != wanted.len() {
        return Ok(Some(format!("{} results, not {}", outs.len(), wanted.len())));
    }
    let mut floats = Vec::new();
    for (i, (out, want)) in outs.into_iter().zip(wanted).enumerate() {
        let what = format!("result {i}");
        let (dims, values, order) = match out {
            Out::Float(y) => {
                floats.push(y.clone());
                (y.shape().to_vec(), y.to_f64()?, dtype)
            }
            Out::Int(y) => {
                let values = y.to_i32()?.to_vec::<i32>()?.into_iter().map(f64::from).collect();
                (y.shape().to_vec(), values, DType::F64)
            }
        };
        if dims != shape(want) {
            return Ok(Some(format!("{what} has the shape {dims:?}, not {:?}", shape(want))));
        }
        if let Some(wrong) = differs(&what, (order, size), 0, &values, &numbers(want)) {
            return Ok(Some(wrong));
        }
    }
    let given = arrays(&case["grads"]);
    let leaves: Vec<&Tensor<Cpu>> = case_of.x.iter().take(given.len()).collect();
    let mut of = floats;
    for (order, wanted) in [(1, &case["grads"]), (2, &case["second"])] {
        let wanted = arrays(wanted);
        if wanted.is_empty() {
            break;
        }
        let grads = match total(&of)? {
            Some(sum) => grad(&sum, &leaves, None, true)?,
            None => vec![None; leaves.len()],
        };
        for (i, ((g, x), want)) in grads.iter().zip(&leaves).zip(wanted).enumerate() {
            let got = g.as_ref().map_or_else(|| Ok(vec![0.0; x.size()]), Tensor::to_f64)?;
            let what = format!("{} of input {i}", ["", "gradient", "second gradient"][order]);
            if let Some(wrong) = differs(&what, (dtype, size), order, &got, &numbers(want)) {
                return Ok(Some(wrong));
            }
        }
        of = grads.into_iter().flatten().collect();
    }
    Ok(None)
}

fn main() -> ExitCode {
    let cpu = Cpu::builder().exact_convolutions(true).build();
    let (mut cases, mut wrong) = (BTreeMap::<String, usize>::new(), 0);
    let mut excused = 0;
    for line in std::io::stdin().lock().lines() {
        let line = match line {
            Ok(line) => line,
            Err(e) => {
                eprintln!("cannot read the cases: {e}");
                return ExitCode::from(2);
            }
        };
        let case: Value = match serde_json::from_str(&line) {
            Ok(case) => case,
            Err(e) => {
                eprintln!("this is no case: {e}");
                return ExitCode::from(2);
            }
        };
        let id = case["case"].as_str().unwrap_or("?");

        let difference = check(&cpu, &case).unwrap_or_else(|e| Some(format!("refused: {e}")));
        let dtype = case["dtype"].as_str().unwrap_or("?");
        let name = id.split(' ').next().unwrap_or(id);
        *cases.entry(name.into()).or_default() += 1;
        let known = KNOWN.iter().find(|(op, of, _)| (*op, *of) == (name, dtype));
        if let (Some(_), Some((_, _, reason))) = (&difference, known) {
            excused += 1;
            println!("KNOWN {id} {dtype}: {reason}");
        } else if let Some(difference) = difference {
            wrong += 1;
            println!("DIFFERS {id} {dtype}: {difference}");
        }
    }
    for (name, count) in &cases {
        println!("{count:6} {name}");
    }
    println!(
        "{} cases of {} operators, {wrong} differ, {excused} for a known reason",
        cases.values().sum::<usize>(),
        cases.len()
    );
    ExitCode::from(u8::from(wrong > 0))
}
