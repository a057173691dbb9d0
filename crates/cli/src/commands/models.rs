//! `kiln models`: the built-in networks and their recipes.

use crate::args::ModelsArgs;
use crate::error::Result;
use crate::output::{self, counted, line, number, thousands};
use kiln_models::{Card, InputKind, Model, PhaseOptions, Recipe};
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
            card.input,
            thousands(card.parameters as u64),
            card.output
        ));
        line(&format!("  {}", recipe(card)));
    }
    Ok(0)
}

/// A recipe in one line: `CIFAR-10, 200 epochs, batch 128, sgd 0.1 (cosine), momentum 0.9, …`
fn recipe(card: &Card) -> String {
    let recipe = &card.recipe;
    let mut parts = vec![
        recipe.data.name().to_string(),
        counted(recipe.epochs, "epoch"),
        format!("batch {}", recipe.batch),
    ];
    parts.extend(recipe.phases().iter().map(phase));
    parts.extend(recipe.clip_norm.map(|c| format!("gradients clipped to {}", number(c))));
    parts.extend(recipe.augment.iter().map(ToString::to_string));
    parts.push(card.metric().to_string());
    parts.join(", ")
}

/// The updates of a phase: `sgd 0.1 (cosine), momentum 0.9`, `generator every 5 steps: adam 0.0001 (constant)`.
fn phase(phase: &PhaseOptions) -> String {
    let (name, optimizer) = (phase.name, phase.optimizer);
    let mut parts = vec![format!(
        "{} {} ({})",
        optimizer.kind.name(),
        number(optimizer.lr),
        phase.schedule.name()
    )];
    if optimizer.kind.has_momentum() {
        parts.push(format!("momentum {}", number(optimizer.momentum)));
    }
    parts.extend(optimizer.weight_decay.map(|w| format!("weight decay {}", number(w))));
    parts.extend(
        optimizer
            .betas
            .map(|[a, b]| format!("betas {} and {}", number(a), number(b))),
    );
    let parts = parts.join(", ");
    match (name, phase.every) {
        ("", _) => parts,
        (name, 1) => format!("{name}: {parts}"),
        (name, every) => format!("{name} every {every} steps: {parts}"),
    }
}

/// The updates of a phase as a JSON object.
fn phase_entry(phase: &PhaseOptions) -> Value {
    let optimizer = phase.optimizer;
    json!({
        "name": phase.name,
        "every": phase.every,
        "optimizer": optimizer.kind.name(),
        "lr": optimizer.lr,
        "schedule": phase.schedule.name(),
        "momentum": optimizer.kind.has_momentum().then_some(optimizer.momentum),
        "weight_decay": optimizer.weight_decay,
        "betas": optimizer.betas,
    })
}

/// A model as a JSON object.
fn entry(model: Model) -> Value {
    let card = model.card();
    let recipe: &Recipe = &card.recipe;
    let (kind, shape) = match card.input {
        InputKind::Images(shape) => ("images", shape.to_vec()),
        InputKind::Tokens(length) => ("tokens", vec![length]),
    };
    json!({
        "name": model.name(),
        "description": card.description,
        "input": { "kind": kind, "shape": shape },
        "classes": card.output.classes(),
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
            "phases": recipe.phases().iter().filter(|p| !p.name.is_empty()).map(phase_entry).collect::<Vec<_>>(),
            "clip_norm": recipe.clip_norm,
            "metric": card.metric(),
            "workers": recipe.workers,
        },
    })
}
