//! `kiln datasets`: the datasets that are read, and the models that take them.

use crate::args::DatasetsArgs;
use crate::data;
use crate::error::Result;
use crate::output::{self, line};
use kiln_data::DataKind;
use kiln_models::{Model, OutputKind};
use serde_json::{Value, json};

pub(crate) fn run(args: DatasetsArgs) -> Result<u8> {
    if args.json {
        let all: Vec<Value> = DataKind::ALL.into_iter().map(entry).collect();
        output::json(&json!({ "datasets": all }));
        return Ok(0);
    }
    for (i, kind) in DataKind::ALL.into_iter().enumerate() {
        let card = kind.card();
        if i > 0 {
            line("");
        }
        line(&format!("{kind}: {}", card.description));
        line(&format!("  {}: --data {}", card.obtain, data::example(card)));
        line(&format!("  models: {}", models(kind).join(", ")));
    }
    Ok(0)
}

/// The names of the models that take samples of a dataset.
fn models(kind: DataKind) -> Vec<&'static str> {
    let card = kind.card();
    let takes = |model: &Model| {
        let asks_classes = matches!(model.card().output, OutputKind::Classes(_));
        model.input().kind == card.samples
            && card.shape.is_none_or(|shape| shape == model.input().shape)
            && (card.has_classes || !asks_classes)
    };
    Model::ALL.into_iter().filter(takes).map(Model::name).collect()
}

/// A dataset as a JSON object.
fn entry(kind: DataKind) -> Value {
    let card = kind.card();
    json!({
        "name": kind.name(),
        "title": card.title,
        "description": card.description,
        "samples": card.samples.name,
        "classes": card.classes,
        "ships": card.ships.is_some(),
        "obtain": card.obtain,
        "example": card.example,
        "target": card.has_target,
        "models": models(kind),
    })
}
