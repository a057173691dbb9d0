//! Measured values as text and as JSON, by the card of their model.

use crate::output::percent;
use kiln_models::{Card, Form, Shown};
use kiln_train::{StepInfo, Values};

/// A value as text: `97.60 %`, `1.4500 nats/character`.
pub(crate) fn text(shown: &Shown, value: f64) -> String {
    match shown.form {
        Form::Number | Form::Along(_) => format!("{value:.4}"),
        Form::Unit(unit) => format!("{value:.4} {unit}"),
        Form::Percent => percent(value),
        Form::ExpOf(_) => format!("{value:.3}"),
    }
}

/// The measured values of a card with their labels in one line: `loss 0.1234  accuracy 97.60 %`. A phase without an update in the epoch, whose
/// loss is NaN, is left out.
pub(crate) fn line(card: &Card, values: &Values) -> String {
    let each = card.values.iter().filter_map(|shown| {
        let value = shown.of(values)?;
        let idle = value.is_nan() && shown.name.ends_with("/loss");
        (!idle).then(|| format!("{} {}", shown.label, text(shown, value)))
    });
    each.collect::<Vec<_>>().join("  ")
}

/// All values, with those that a card computes from them.
pub(crate) fn with_computed(card: &Card, values: &Values) -> Values {
    let mut all = values.clone();
    for shown in card.computed() {
        all.extend(shown.of(values).map(|value| (shown.name.to_string(), value)));
    }
    all
}

/// The word for samples.
pub(crate) fn samples(card: &Card) -> String {
    format!("{}s", card.input.noun())
}

/// The losses that were read after a step, without their parts: `loss 0.1234`; `None` if none was.
pub(crate) fn losses(info: &StepInfo) -> Option<String> {
    let named = info.values.iter().filter(|(name, _)| is_loss(name));
    let each: Vec<String> = named.map(|(name, value)| format!("{name} {value:.4}")).collect();
    (!each.is_empty()).then(|| each.join("  "))
}

/// True for the name of a loss: `loss`, or `generator/loss` of a phase.
pub(crate) fn is_loss(name: &str) -> bool {
    name == "loss" || name.ends_with("/loss")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_models::Model;

    #[test]
    fn values_are_written_as_their_card_says() {
        let values = Values::from([("loss".to_string(), 1.5), ("accuracy".to_string(), 0.976)]);
        assert_eq!(line(Model::Lenet.card(), &values), "loss 1.5000  accuracy 97.60 %");
        let card = Model::GptMini.card();
        assert_eq!(line(card, &values), "loss 1.5000 nats/character  perplexity 4.482");
        assert_eq!(with_computed(card, &values)["perplexity"], 1.5f64.exp());
        let of_phases = [("generator/loss", 0.5), ("path/loss", f64::NAN), ("loss", f64::NAN)];
        let of_phases = of_phases.map(|(name, value)| (name.to_string(), value));
        let card = Model::StyleGan2.card();
        assert_eq!(
            line(card, &Values::from(of_phases)),
            "generator/loss 0.5000  discriminator NaN"
        );
        assert_eq!(with_computed(Model::Lenet.card(), &values), values);
    }
}
