//! `kiln eval`: the loss and the metrics of saved weights on held-back data.

use crate::args::EvalArgs;
use crate::device::{Task, with_device};
use crate::error::{Error, Result};
use crate::features::{ByClassifier, FID};
use crate::finite;
use crate::output::{self, counted, line, table};
use crate::shown;
use crate::weights::Saved;
use crate::{data, weights};
use kiln_core::Backend;
use kiln_files::shown_path;
use kiln_models::{Batches, Card, Model, Net, OutputKind};
use kiln_nn::Module;
use kiln_profile::Profiled;
use kiln_train::{Confusion, ConfusionMatrix, Evaluation, Metric, TopK};
use serde_json::json;
use std::path::PathBuf;

/// The arguments, and the reason for the choice of the device if the program chose it.
struct Eval<'a>(&'a EvalArgs, Option<String>);

struct Measured {
    chosen: Option<String>,
    weights: PathBuf,
    model: Model,
    card: &'static Card,
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

    fn run<B: Backend>(self, backend: &Profiled<B>) -> Result<Measured> {
        let args = self.0;
        let Saved {
            path,
            model,
            mut net,
            facts,
            ..
        } = weights::load(&args.weights, backend)?;
        let (data, description) = data::load_test(model, &args.data, args.seed, &facts, &path)?;
        let batches = || data::in_order(model, data.clone(), args.batch as usize, 0);
        let names = data::class_names(model, &*data);
        let mut measured = net.metrics(&*data)?;
        if let Some(path) = &args.features {
            if model.card().output != OutputKind::Images {
                return Err(
                    Error::usage(format!("{model} makes no images, whose features --features measures"))
                        .help("leave it out"),
                );
            }
            measured.push(Box::new(ByClassifier::new(path, &data, args.batch as usize, backend)?));
        }
        let (mut top, mut confusion) = (TopK::new(3), ConfusionMatrix::new(names.len()));
        let mut metrics: Vec<&mut dyn Metric<Profiled<B>>> = measured.iter_mut().map(|metric| metric as _).collect();
        if let OutputKind::Classes(_) = model.card().output {
            metrics.push(&mut top);
            metrics.push(&mut confusion);
        }
        let evaluation = net.evaluate(backend, batches()?, &mut metrics)?;
        if args.features.is_some() && !evaluation.values.contains_key(FID) {
            return Err(Error::usage(format!("{model} is measured without new images")).help("leave --features out"));
        }
        if evaluation.values.get("loss").is_some_and(|loss| !loss.is_finite()) {
            net.eval();
            return Err(cause(backend, &net, batches()?)?);
        }
        Ok(Measured {
            chosen: self.1,
            weights: path,
            model,
            card: model.card_for(&facts),
            description,
            skipped: data::skipped(&data),
            evaluation,
            confusion: confusion.counts().cloned(),
            names,
        })
    }
}

/// The error for a loss that is not finite, which names the first batch and the first layer with such values.
fn cause<B: Backend>(backend: &B, net: &Net<B>, batches: Batches) -> Result<Error> {
    let (mut number, mut found) = (0, None);
    net.each_batch(backend, batches, &mut |batch| {
        number += 1;
        if !batch.measure()?.loss.item()?.is_finite() {
            found = Some(finite::overflow(
                || batch.forward(),
                &format!("the loss of batch {number}"),
            )?);
        }
        Ok(found.is_none())
    })?;
    Ok(found
        .unwrap_or_else(|| Error::failure("the loss is not finite, though that of every batch is: it is too large")))
}

pub(crate) fn run(args: EvalArgs) -> Result<u8> {
    let measured = with_device(&args.device.options(), Eval(&args, None))?;
    show(&args, &measured);
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

fn show(args: &EvalArgs, measured: &Measured) {
    let card = measured.card;
    let values = &measured.evaluation.values;
    let rows: Option<Vec<Vec<u64>>> = measured
        .confusion
        .as_ref()
        .map(|c| c.rows().map(<[u64]>::to_vec).collect());
    if args.json {
        let mut told = json!({
            "model": measured.model.name(),
            "weights": measured.weights.display().to_string(),
            "samples": measured.evaluation.samples,
            "skipped_records": measured.skipped,
        });
        for (name, value) in shown::with_computed(card, values) {
            told[name] = value.into();
        }
        if let Some(rows) = rows {
            told["classes"] = measured.names.clone().into();
            told["confusion"] = rows.into();
        }
        return output::json(&told);
    }
    announce(args, measured);
    let noun = card.input.noun();
    line(&format!(
        "{}  {}",
        counted(measured.evaluation.samples, noun),
        shown::line(card, values)
    ));
    if let (Some(fid), Some(path)) = (values.get(FID), &args.features) {
        line(&format!("{FID} {fid:.4} by the logits of {}", shown_path(path)));
    }
    let Some(rows) = rows else { return };
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
