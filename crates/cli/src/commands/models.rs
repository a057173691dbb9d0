//! `kiln models`: the built-in networks and their recipes.

use crate::args::ModelsArgs;
use crate::error::Result;
use crate::output::{self, counted, line, number, thousands};
use kiln_models::{Card, Model, OptimizerOptions, OptionValue, PhaseOptions, Recipe};
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
        recipe.data.card().title.to_string(),
        counted(recipe.epochs, "epoch"),
        format!("batch {}", recipe.batch),
    ];
    parts.extend(recipe.phases().iter().map(phase));
    parts.extend(recipe.clip_norm.map(|c| format!("gradients clipped to {}", number(c))));
    parts.extend(
        recipe
            .ema
            .map(|decay| format!("weights averaged with a decay of {}", number(decay))),
    );
    parts.extend(recipe.augment.iter().map(ToString::to_string));
    parts.push(card.metric().to_string());
    parts.join(", ")
}

/// The updates of a phase: `sgd 0.1 (cosine), momentum 0.9`, `generator every 5 steps: adam 0.0001 (constant)`.
fn phase(phase: &PhaseOptions) -> String {
    let (name, optimizer) = (phase.name, phase.optimizer);
    if let Some(owner) = phase.shares {
        return format!("{name} every {} steps by the optimizer of {owner}", phase.every);
    }
    let mut parts = vec![format!(
        "{} {} ({})",
        optimizer.kind.name(),
        number(optimizer.lr),
        phase.schedule.name()
    )];
    let given = optimizer.given().into_iter();
    parts.extend(given.map(|(name, value)| format!("{} {}", name.replace('_', " "), option_text(value))));
    let parts = parts.join(", ");
    match (name, phase.every) {
        ("", _) => parts,
        (name, 1) => format!("{name}: {parts}"),
        (name, every) => format!("{name} every {every} steps: {parts}"),
    }
}

/// The value of an option in words.
fn option_text(value: OptionValue) -> String {
    match value {
        OptionValue::Number(value) => number(value),
        OptionValue::Pair([first, second]) => format!("{} and {}", number(first), number(second)),
        OptionValue::Flag(flag) => if flag { "on" } else { "off" }.to_string(),
    }
}

/// The options that a recipe gives as a JSON object.
fn options(optimizer: OptimizerOptions) -> Value {
    let json = |value| match value {
        OptionValue::Number(value) => json!(value),
        OptionValue::Pair(pair) => json!(pair),
        OptionValue::Flag(flag) => json!(flag),
    };
    let given = optimizer.given().into_iter();
    Value::Object(given.map(|(name, value)| (name.to_string(), json(value))).collect())
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
        "options": options(optimizer),
        "shares": phase.shares,
    })
}

/// A model as a JSON object.
fn entry(model: Model) -> Value {
    let card = model.card();
    let recipe: &Recipe = &card.recipe;
    json!({
        "name": model.name(),
        "description": card.description,
        "input": { "kind": card.input.kind.name, "shape": card.input.shape },
        "classes": card.output.size(),
        "parameters": card.parameters,
        "recipe": {
            "data": recipe.data.card().title,
            "mean": recipe.normalise.map(|(mean, _)| mean),
            "deviation": recipe.normalise.map(|(_, deviation)| deviation),
            "augment": recipe.augment.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "epochs": recipe.epochs,
            "batch": recipe.batch,
            "optimizer": recipe.optimizer.kind.name(),
            "lr": recipe.optimizer.lr,
            "schedule": recipe.schedule.name(),
            "options": options(recipe.optimizer),
            "phases": recipe.phases().iter().filter(|p| !p.name.is_empty()).map(phase_entry).collect::<Vec<_>>(),
            "clip_norm": recipe.clip_norm,
            "ema": recipe.ema,
            "metric": card.metric(),
            "workers": recipe.workers,
        },
    })
}
