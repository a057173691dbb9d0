//! `kiln forecast`: how long a training step would take on GPUs, how much memory, energy and money, modelled without one.

mod job;
mod record;
mod shown;

use crate::args::ForecastArgs;
use crate::config::{self, RunConfig, Settings};
use crate::error::{Error, Result};
use crate::output::{self, line};
use clap::ValueEnum;
use job::{Forecast, Job, USABLE};
use kiln_files::shown_path;
use kiln_forecast::{Cards, Gpu, Table, published, time};
use record::{ENOUGH, Recorded, record};
use std::path::Path;

/// The largest batch that is tried.
const LARGEST: u64 = 1 << 16;

pub(crate) fn run(args: ForecastArgs) -> Result<u8> {
    record::check_build()?;
    let (cards, table) = tables(&args)?;
    let gpus = chosen(&args, &cards)?;
    let prices = prices(&args, &gpus)?;
    let mut config = config::combined(&args.config)?;
    let settings = Settings::of(config.clone())?;
    if settings.accumulate > 1 {
        return Err(Error::usage("a forecast is of a step with one batch")
            .help("leave out --accumulate; its batches take as long as steps"));
    }
    if settings.no_capture {
        return Err(Error::usage("a forecast is of a recorded step").help("leave out --no-capture"));
    }
    let driver = record::driver()?;
    let batch = settings.batch as u64;
    sized(&mut config, batch)?;
    let mut forecasts = Vec::new();
    for (gpu, price) in gpus.into_iter().zip(prices) {
        let Recorded::Step(step) = record(&config, &gpu, ENOUGH, &driver)? else {
            return Err(Error::failure(format!(
                "a step of batch {batch} takes more than {}",
                output::bytes(ENOUGH)
            )));
        };
        let time = time(&step, &gpu, &table, &published::EXPONENTS);
        let largest = match args.no_largest {
            true => None,
            false => Some(largest(&config, &gpu, (batch, step.peak_bytes), &driver)?),
        };
        forecasts.push(Forecast {
            gpu,
            step,
            time,
            largest,
            price,
        });
    }
    let job = Job {
        model: settings.model.name().to_string(),
        batch,
        precision: precision(&settings),
        samples: args.samples,
        epochs: settings.epochs,
        noun: settings.model.input().noun(),
    };
    match args.json {
        true => output::json(&shown::json(&job, &forecasts, &table)),
        false => line(&shown::text(&job, &forecasts, &table, args.top)),
    }
    Ok(0)
}

/// The name of a precision, as `--precision` takes it.
fn precision(settings: &Settings) -> String {
    let value = settings.precision.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().to_string())
}

/// The cards and the figures of kernels.
fn tables(args: &ForecastArgs) -> Result<(Cards, Table)> {
    let broken = |e: &dyn std::fmt::Display| Error::failure(e.to_string());
    let mut cards = Cards::known().map_err(|e| broken(&e))?;
    if let Some(path) = &args.cards {
        let text = std::fs::read_to_string(path).map_err(|e| Error::failure(format!("{}: {e}", shown_path(path))))?;
        let named = cards.add(&shown_path(path).to_string(), &text);
        named.map_err(|e| {
            Error::usage(e.to_string())
                .help("the fields of a card are those of crates/forecast/data/cards.toml; see docs/forecast.md")
        })?;
    }
    Ok((cards, Table::known().map_err(|e| broken(&e))?))
}

/// The cards that were asked for.
fn chosen(args: &ForecastArgs, cards: &Cards) -> Result<Vec<Gpu>> {
    let all = args.gpu.iter().any(|name| name == "all");
    let names: Vec<&str> = match all {
        true => cards.names(),
        false => args
            .gpu
            .iter()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty())
            .collect(),
    };
    let mut gpus: Vec<Gpu> = Vec::new();
    for name in names {
        match cards.gpu(name) {
            Ok(gpu) if gpus.iter().any(|known| known.card.name == gpu.card.name) => {}
            Ok(gpu) => gpus.push(gpu),
            Err(e @ kiln_forecast::Error::Unknown { .. }) => {
                return Err(Error::usage(e.to_string()).help("name a file of them with --cards"));
            }
            // One that no kernel runs on leaves the others.
            Err(e) => output::warn(&format!("{name} is left out: {e}")),
        }
    }
    match gpus.is_empty() {
        true => {
            Err(Error::usage("there is no card to forecast for").help("name some with --gpu, such as --gpu h100,a100"))
        }
        false => Ok(gpus),
    }
}

/// The price of each card: what `--price` says, or the table.
fn prices(args: &ForecastArgs, gpus: &[Gpu]) -> Result<Vec<Option<f64>>> {
    let mut prices: Vec<Option<f64>> = gpus.iter().map(|gpu| gpu.card.price).collect();
    for text in &args.price {
        let wrong = || {
            Error::usage(format!("`{text}` is no price of a card"))
                .help("such as --price h100=2.49, in dollars an hour")
        };
        let (name, dollars) = text.split_once('=').ok_or_else(wrong)?;
        let dollars: f64 = dollars
            .parse()
            .ok()
            .filter(|d: &f64| d.is_finite() && *d > 0.0)
            .ok_or_else(wrong)?;
        let of = gpus.iter().position(|gpu| gpu.card.name.eq_ignore_ascii_case(name));
        let of = of.ok_or_else(|| Error::usage(format!("--price is for {name}, which is not among the cards")))?;
        prices[of] = Some(dollars);
    }
    Ok(prices)
}

/// Settings for a batch of this size; made-up samples where no data is named, enough for a few steps.
fn sized(config: &mut RunConfig, batch: u64) -> Result<()> {
    let number = |n: u64| {
        let n = n.try_into().ok();
        n.ok_or_else(|| Error::usage(format!("a batch of {batch} is too large to record")))
    };
    config.batch = Some(number(batch)?);
    if config.data.path.is_none() {
        config.data.synthetic = Some(number(batch.saturating_mul(5).max(20))?);
    }
    Ok(())
}

/// The largest batch that fits a card: estimated from two sizes, then tried, and lowered until it fits.
fn largest(config: &RunConfig, gpu: &Gpu, (batch, peak): (u64, u64), driver: &Path) -> Result<u64> {
    let usable = (USABLE * gpu.memory() as f64) as u64;
    let peak_of = |batch: u64, memory: u64| -> Result<Option<u64>> {
        let mut config = config.clone();
        sized(&mut config, batch)?;
        Ok(match record(&config, gpu, memory, driver)? {
            Recorded::Step(step) => Some(step.peak_bytes),
            Recorded::TooLarge => None,
        })
    };
    // Memory grows by so much a sample, from twice the batch, or half of it where that is what fits.
    let other = if peak > usable && batch > 1 {
        batch / 2
    } else {
        batch * 2
    };
    let Some(at_other) = peak_of(other, ENOUGH)? else {
        return Ok(0);
    };
    let slope = (at_other as f64 - peak as f64) / (other as f64 - batch as f64);
    if slope <= 0.0 {
        return Ok(if peak <= usable { LARGEST } else { 0 });
    }
    let mut guess = batch as f64 + (usable as f64 - peak as f64) / slope;
    for _ in 0..4 {
        if guess < 1.0 {
            return Ok(0);
        }
        let tried = rounded(guess).min(LARGEST);
        match peak_of(tried, usable)? {
            Some(_) => return Ok(tried),
            None => guess = tried as f64 * 0.95 - 1.0,
        }
    }
    Ok(0)
}

/// A size that people use: a multiple of 8 where it is large.
fn rounded(batch: f64) -> u64 {
    let whole = batch.max(1.0) as u64;
    if whole > 64 { whole / 8 * 8 } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_rounded_down() {
        assert_eq!([0.2, 5.9, 64.0, 71.0, 1000.0].map(rounded), [1, 5, 64, 64, 1000]);
    }
}
