//! Training steps and forward passes of a row.

use crate::row::{Pass, Row, STEPS, batch_of};
use crate::{Outcome, Work};
use crate::{sequences, writing};
use kiln_core::{Error, Result};
use kiln_cpu::Cpu;
use kiln_models::{Model, Net, Steps, Update};
use kiln_nn::module::{StateDict, Value};
use kiln_nn::weights::{LoadOptions, read};
use kiln_nn::{DType, Indices, Module, Optimizer, Rng, Tensor, predict};

/// A batch of inputs: images or clips, or ids of tokens.
enum Input {
    Images(Tensor<Cpu>),
    Tokens(Indices<Cpu>),
}

impl Input {
    /// The logits of the batch.
    fn logits(&self, net: &Net<Cpu>) -> Result<Tensor<Cpu>> {
        match self {
            Input::Images(x) => images(net, x),
            Input::Tokens(ids) => tokens(net, ids),
        }
    }

    /// As [`logits`](Input::logits), `part` samples at a time, in the row's precision.
    fn predicted(&self, row: Row, net: &Net<Cpu>, part: usize) -> Result<Tensor<Cpu>> {
        match self {
            Input::Images(x) => predict(net, x, part, |x| row.precise(|| images(net, x))),
            Input::Tokens(ids) => predict(net, ids, part, |ids| row.precise(|| tokens(net, ids))),
        }
    }
}

fn images(net: &Net<Cpu>, x: &Tensor<Cpu>) -> Result<Tensor<Cpu>> {
    let logits = net.classify(x);
    logits.unwrap_or_else(|| Err(Error::invalid("bench", "input", "images", "what the network takes")))
}

fn tokens(net: &Net<Cpu>, ids: &Indices<Cpu>) -> Result<Tensor<Cpu>> {
    match net.language_model() {
        Some(model) => model.forward(ids),
        None => Err(Error::invalid("bench", "input", "tokens", "what the network takes")),
    }
}

/// A network, its optimizer and the batches, which are used in turn.
struct Training {
    row: Row,
    net: Net<Cpu>,
    optimizer: Box<dyn Optimizer<Cpu>>,
    batches: Vec<(Input, Indices<Cpu>)>,
    at: usize,
}

impl Training {
    fn step(&mut self) -> Result<Tensor<Cpu>> {
        let (x, y) = &self.batches[self.at];
        self.at = (self.at + 1) % self.batches.len();
        let loss = self.row.precise(|| x.logits(&self.net)?.cross_entropy(y))?;
        let gradients = loss.backward()?;
        self.optimizer.step(&mut self.net, &gradients)?;
        Ok(loss.detach())
    }

    fn work(mut self) -> Work {
        Box::new(move || self.step().map(drop))
    }
}

/// The steps of a network by its task, of one whose batch is more than inputs with labels, each of one update of every phase, on the batches of
/// the file in turn.
struct ByTask {
    steps: Steps<Cpu>,
    updates: Vec<Update<Cpu>>,
    batches: Vec<StateDict<Cpu>>,
    at: usize,
}

impl ByTask {
    /// The steps of a row, if they are those of its network's task.
    fn of(row: Row, dict: &mut StateDict<Cpu>) -> Outcome<Option<Self>> {
        if sequences::are_of(row.model) {
            let mut steps = ByTask::new(row, sequences::batches(dict)?, dict)?;
            // One with dropout is trained without it, as in evaluation, or losses could not be compared.
            if row.model != Model::DeepSpeech2 {
                steps.steps.net().eval();
            }
            return Ok(Some(steps));
        }
        let Some(names) = row.arrays() else { return Ok(None) };
        let mut batches = vec![StateDict::new(); STEPS];
        for (from, to) in names {
            let all = dict.remove(from).ok_or_else(|| format!("the file has no `{from}`"))?;
            for (i, batch) in batches.iter_mut().enumerate() {
                batch.insert(*to, batch_of(&all, i)?);
            }
        }
        ByTask::new(row, batches, dict).map(Some)
    }

    fn new(row: Row, batches: Vec<StateDict<Cpu>>, dict: &StateDict<Cpu>) -> Outcome<Self> {
        let mut steps = row.model.steps(&Cpu::new(), 0, row.batch)?;
        steps.net().load_state_dict(dict, LoadOptions::strict())?;
        Ok(ByTask {
            steps,
            updates: Update::of_each(&row.phases()),
            batches,
            at: 0,
        })
    }

    /// The sum of the losses of a step.
    fn step(&mut self) -> Outcome<f64> {
        self.steps.take(self.batches[self.at].clone());
        self.at = (self.at + 1) % self.batches.len();
        let losses = self.steps.train(&mut self.updates, &|_, part| part())?;
        let mut sum = 0.0;
        for loss in losses {
            sum += loss.item()?;
        }
        Ok(sum)
    }
}

/// Loads a row's file and takes the steps whose losses are compared; returns the losses and the work to be timed.
pub(crate) fn load(row: Row, setting: &str, file: &str) -> Outcome<(Vec<f64>, Work)> {
    let cpu = Cpu::new();
    let (mut dict, _) = read(file, &cpu)?;
    if let Some(mut steps) = ByTask::of(row, &mut dict)? {
        drop(dict);
        let losses = (0..STEPS).map(|_| steps.step()).collect::<Outcome<_>>()?;
        let failed = |e: Box<dyn std::error::Error>| Error::invalid("bench", "step", e, "a step without an error");
        return Ok((losses, Box::new(move || steps.step().map(drop).map_err(failed))));
    }
    let batches = batches(&mut dict)?;
    let mut net = row.model.build(&cpu, 0)?;
    net.load_state_dict(&dict, LoadOptions::strict())?;
    drop(dict);
    if row.pass == Pass::Train {
        let mut training = Training {
            row,
            net,
            optimizer: row.optimizer(),
            batches,
            at: 0,
        };
        let losses: Result<Vec<f64>> = (0..STEPS).map(|_| training.step()?.item()).collect();
        return Ok((losses?, training.work()));
    }
    net.eval();
    if row.pass == Pass::Generate {
        let Some((Input::Tokens(ids), _)) = batches.into_iter().next() else {
            return Err("a network that reads no tokens writes none".into());
        };
        if row.half {
            net.to_dtype(DType::BF16)?;
        }
        return writing::load(net, ids);
    }
    let part = match setting {
        "default" => row.part(),
        part => part.parse()?,
    };
    let loss = |(x, y): &(Input, Indices<Cpu>)| row.precise(|| x.predicted(row, &net, part)?.cross_entropy(y))?.item();
    let losses: Result<Vec<f64>> = batches.iter().map(loss).collect();
    let (losses, mut at) = (losses?, 0);
    let work = move || {
        let (x, _) = &batches[at];
        at = (at + 1) % batches.len();
        x.predicted(row, &net, part).map(drop)
    };
    Ok((losses, Box::new(work)))
}

/// The training step of a new network with one batch, to time the first step of a process.
pub(crate) fn fresh(row: Row) -> Outcome<Work> {
    let cpu = Cpu::new();
    let (x, positions) = match row.pixels() {
        Some(pixels) => {
            let shape = [&[row.batch][..], &pixels].concat();
            let x = Tensor::rand(&cpu, &shape, DType::F32, &mut Rng::new(2))?;
            (Input::Images(x), vec![row.batch])
        }
        None => {
            let length = row.model.input().shape[0];
            let ids = vec![0i32; row.batch * length];
            let shape = vec![row.batch, length];
            (Input::Tokens(Indices::from_slice(&cpu, &ids, &shape)?), shape)
        }
    };
    let labels: Vec<i32> = (0..positions.iter().product())
        .map(|i: usize| (i % row.model.outputs()) as i32)
        .collect();
    let y = Indices::from_slice(&cpu, &labels, &positions)?;
    let training = Training {
        row,
        net: row.model.build(&cpu, 0)?,
        optimizer: row.optimizer(),
        batches: vec![(x, y)],
        at: 0,
    };
    Ok(training.work())
}

/// Takes `x` and `y` out of a file's tensors, batch by batch.
fn batches(dict: &mut StateDict<Cpu>) -> Outcome<Vec<(Input, Indices<Cpu>)>> {
    let (Some(x), Some(Value::Int(y))) = (dict.remove("x"), dict.remove("y")) else {
        return Err("the file has no `x` and integer `y`".into());
    };
    let one = |i: usize| -> Result<(Input, Indices<Cpu>)> {
        let x = match batch_of(&x, i)? {
            Value::Float(x) => Input::Images(x),
            Value::Int(x) => Input::Tokens(x),
        };
        Ok((x, y.narrow(0, i, 1)?.reshape(&y.shape()[1..])?))
    };
    Ok((0..y.shape()[0]).map(one).collect::<Result<_>>()?)
}
