//! `kiln models`: the built-in networks and their recipes.

use crate::args::ModelsArgs;
use crate::error::Result;
use crate::output::{self, counted, line, number, thousands};
use kiln_models::{InputKind, Model, Recipe};
use serde_json::{Value, json};

pub(crate) fn run(args: ModelsArgs) -> Result<u8> {
    if args.json {
        let all: Vec<Value> = Model::ALL.into_iter().map(entry).collect();
        output::json(&json!({ "models": all }));
        return Ok(0);
    }
    for (i, model) in Model::ALL.into_iter().enumerate() {
        let card = model.card();
        if i > 0 {
            line("");
        }
        line(&format!("{model}: {}", card.description));
        line(&format!(
            "  {}, {} parameters, {}",
            input(model),
            thousands(card.parameters as u64),
            outputs(model)
        ));
        line(&format!("  {}", recipe(&card.recipe)));
    }
    Ok(0)
}

fn input(model: Model) -> String {
    match model.input() {
        InputKind::Images([h, w, c]) => format!("images {h}x{w}x{c}"),
        InputKind::Tokens(length) => format!("sequences of {length} characters"),
    }
}

fn outputs(model: Model) -> String {
    match model.input() {
        InputKind::Images(_) => format!("{} classes", model.classes()),
        InputKind::Tokens(_) => format!("{} characters, or those of the text", model.classes()),
    }
}

/// A recipe in one line: `CIFAR-10, 200 epochs, batch 128, sgd 0.1 (cosine), momentum 0.9, …`
fn recipe(recipe: &Recipe) -> String {
    let optimizer = recipe.optimizer;
    let mut parts = vec![
        recipe.data.name().to_string(),
        counted(recipe.epochs, "epoch"),
        format!("batch {}", recipe.batch),
        format!(
            "{} {} ({})",
            optimizer.kind.name(),
            number(optimizer.lr),
            recipe.schedule.name()
        ),
    ];
    if optimizer.kind.has_momentum() {
        parts.push(format!("momentum {}", number(optimizer.momentum)));
    }
    parts.extend(optimizer.weight_decay.map(|w| format!("weight decay {}", number(w))));
    parts.extend(recipe.clip_norm.map(|c| format!("gradients clipped to {}", number(c))));
    parts.extend(recipe.augment.iter().map(ToString::to_string));
    parts.push(recipe.metric.name().to_string());
    parts.join(", ")
}

/// A model as a JSON object.
fn entry(model: Model) -> Value {
    let (card, recipe) = (model.card(), model.recipe());
    let (kind, shape) = match card.input {
        InputKind::Images(shape) => ("images", shape.to_vec()),
        InputKind::Tokens(length) => ("tokens", vec![length]),
    };
    json!({
        "name": model.name(),
        "description": card.description,
        "input": { "kind": kind, "shape": shape },
        "classes": card.classes,
        "parameters": card.parameters,
        "recipe": {
            "data": recipe.data.name(),
            "mean": recipe.normalise.map(|(mean, _)| mean),
            "deviation": recipe.normalise.map(|(_, deviation)| deviation),
            "augment": recipe.augment.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "epochs": recipe.epochs,
            "batch": recipe.batch,
            "optimizer": recipe.optimizer.kind.name(),
            "lr": recipe.optimizer.lr,
            "schedule": recipe.schedule.name(),
            "momentum": recipe.optimizer.kind.has_momentum().then_some(recipe.optimizer.momentum),
            "weight_decay": recipe.optimizer.weight_decay,
            "clip_norm": recipe.clip_norm,
            "metric": recipe.metric.name(),
            "workers": recipe.workers,
        },
    })
}
