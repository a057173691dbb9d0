//! `kiln eval`: the loss and the metrics of saved weights on held-back data.

use super::objective;
use crate::args::EvalArgs;
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::finite;
use crate::output::{self, counted, line, percent, table};
use crate::weights::Saved;
use crate::{data, weights};
use kiln_core::Backend;
use kiln_data::{Loader, LoaderOptions};
use kiln_files::shown_path;
use kiln_models::{MetricKind, Model, Net};
use kiln_nn::{Module, no_grad};
use kiln_train::{Accuracy, Confusion, ConfusionMatrix, Evaluation, Metric, TopK, evaluate};
use serde_json::json;
use std::path::PathBuf;

/// The arguments, and the reason for the choice of the device if the program chose it.
struct Eval<'a>(&'a EvalArgs, Option<String>);

struct Measured {
    chosen: Option<String>,
    weights: PathBuf,
    model: Model,
    description: String,
    skipped: u64,
    evaluation: Evaluation,
    confusion: Option<Confusion>,
    names: Vec<String>,
}

impl Task for Eval<'_> {
    type Output = Measured;

    fn chosen(&mut self, why: String) {
        self.1 = Some(why);
    }

    fn run<B: Backend>(self, backend: &B) -> Result<Measured> {
        let args = self.0;
        let Saved {
            path,
            model,
            mut net,
            text,
        } = weights::load(&args.weights, backend)?;
        let (data, description) = data::load_test(model, &args.data, args.seed, text.as_ref())?;
        let classes = model.classes();
        let names = match data.class_names() {
            [] => (0..classes).map(|c| c.to_string()).collect(),
            names => names.to_vec(),
        };
        let options = LoaderOptions {
            batch_size: args.batch as usize,
            ..Default::default()
        };
        let loader = Loader::new(data.clone(), options)?.with_transform(data::transform(model, false)?);
        let (mut accuracy, mut top) = (Accuracy::new(), TopK::new(3));
        let mut confusion = ConfusionMatrix::new(classes);
        let mut metrics: Vec<&mut dyn Metric<B>> = match model.recipe().metric {
            MetricKind::Accuracy => vec![&mut accuracy, &mut top, &mut confusion],
            // Perplexity is computed from the loss.
            MetricKind::Perplexity => Vec::new(),
        };
        let evaluation = evaluate(backend, &mut net, &objective, &loader, &mut metrics)?;
        if evaluation.values.get("loss").is_some_and(|loss| !loss.is_finite()) {
            net.eval();
            return Err(cause(backend, &net, &loader)?);
        }
        Ok(Measured {
            chosen: self.1,
            weights: path,
            model,
            description,
            skipped: data::skipped(&data),
            evaluation,
            confusion: confusion.counts().cloned(),
            names,
        })
    }
}

/// The error for a loss that is not finite, which names the first batch and the first layer with such values.
fn cause<B: Backend>(backend: &B, net: &Net<B>, loader: &Loader) -> Result<Error> {
    for (i, host) in loader.epoch(0)?.enumerate() {
        let batch = host?.to_device(backend)?;
        let output = no_grad(|| objective(net, &batch))?;
        if !output.loss.item()?.is_finite() {
            let logits = || Ok(net.loss(&batch.inputs, &batch.labels)?.1);
            return Ok(finite::overflow(logits, &format!("the loss of batch {}", i + 1))?);
        }
    }
    Ok(Error::failure(
        "the loss is not finite, though that of every batch is: it is too large",
    ))
}

pub(crate) fn run(args: EvalArgs) -> Result<u8> {
    let measured = with_device(&args.device.options(), Eval(&args, None))?;
    match measured.model.recipe().metric {
        MetricKind::Accuracy => show_classes(&args, &measured),
        MetricKind::Perplexity => show_text(&args, &measured),
    }
    Ok(0)
}

/// Prints the model and the data that were measured, before the results.
fn announce(args: &EvalArgs, measured: &Measured) {
    measured.chosen.iter().for_each(|why| line(why));
    line(&format!("{} on {}", measured.model, measured.description));
    if measured.weights != args.weights.weights {
        line(&format!("weights: {}", shown_path(&measured.weights)));
    }
    if measured.skipped > 0 {
        line(&format!("{} left out", counted(measured.skipped, "bad record")));
    }
}

fn show_text(args: &EvalArgs, measured: &Measured) {
    let loss = measured.evaluation.values.get("loss").copied().unwrap_or(f64::NAN);
    if args.json {
        return output::json(&json!({
            "model": measured.model.name(),
            "weights": measured.weights.display().to_string(),
            "samples": measured.evaluation.samples,
            "loss": loss,
            "perplexity": loss.exp(),
        }));
    }
    announce(args, measured);
    line(&format!(
        "{}  loss {loss:.4} nats/character  perplexity {:.3}",
        counted(measured.evaluation.samples, "window"),
        loss.exp(),
    ));
}

fn show_classes(args: &EvalArgs, measured: &Measured) {
    let values = &measured.evaluation.values;
    let rows: Vec<Vec<u64>> = measured
        .confusion
        .iter()
        .flat_map(|c| c.rows().map(<[u64]>::to_vec))
        .collect();
    if args.json {
        return output::json(&json!({
            "model": measured.model.name(),
            "weights": measured.weights.display().to_string(),
            "samples": measured.evaluation.samples,
            "skipped_records": measured.skipped,
            "loss": values.get("loss"),
            "accuracy": values.get("accuracy"),
            "top3": values.get("top3"),
            "balanced_accuracy": values.get("balanced_accuracy"),
            "classes": measured.names,
            "confusion": rows,
        }));
    }
    let get = |name: &str| values.get(name).copied().unwrap_or(f64::NAN);
    announce(args, measured);
    line(&format!(
        "{}  loss {:.4}  accuracy {}  top-3 {}  balanced accuracy {}",
        counted(measured.evaluation.samples, "sample"),
        get("loss"),
        percent(get("accuracy")),
        percent(get("top3")),
        percent(get("balanced_accuracy"))
    ));
    line("");
    let mut header = vec!["is \\ taken for"];
    header.extend(measured.names.iter().map(String::as_str));
    let cells: Vec<Vec<String>> = measured
        .names
        .iter()
        .zip(&rows)
        .map(|(name, row)| {
            let counts = row.iter().map(u64::to_string);
            std::iter::once(name.clone()).chain(counts).collect()
        })
        .collect();
    line(&table(&header, &cells));
}
