//! What limits the speed of a run, in words.

use crate::whole::of_run;
use kiln_train::{EpochRecord, Values};

/// The share of the step from which on waiting for data is worth doing something about.
const WAITS: f64 = 0.15;

/// The share of the time from which on a GPU is busy; one that waits for the host now and then is less.
const GPU_BUSY: f64 = 0.9;

/// The share of the time below which a GPU has little to do.
const GPU_IDLE: f64 = 0.6;

/// The share of the processors' time from which on there is none left, and below which most is.
const CPU_FULL: f64 = 0.9;
const CPU_IDLE: f64 = 0.5;

/// The share of memory from which on it is nearly full.
const FULL: f64 = 0.95;

/// How far a share has to be on the other side of its limit to end a verdict that stands.
const MARGIN: f64 = 0.05;

/// What is known of a stretch of training, shares from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Facts {
    /// The share of the time in which the loop waited for a batch.
    pub waiting: f64,
    /// True if the net is computed by a GPU, which goes on while the loop waits.
    pub on_gpu: bool,
    /// The share of the processors' time in which they worked.
    pub cpu_utilisation: Option<f64>,
    /// The share of the time in which a kernel ran on the GPU.
    pub gpu_utilisation: Option<f64>,
    /// The share of memory in use, the largest.
    pub memory_used: Option<f64>,
    /// The share of the GPU's memory in use, the largest.
    pub gpu_memory_used: Option<f64>,
}

impl Facts {
    /// The facts of an epoch, of which [`Watch`](crate::Watch) has measured the machine.
    pub fn of(record: &EpochRecord, on_gpu: bool) -> Self {
        Facts::with(record.waiting_share(), &record.machine, on_gpu)
    }

    /// The facts of a whole run.
    pub fn of_run(epochs: &[EpochRecord], on_gpu: bool) -> Self {
        let sum = |of: fn(&EpochRecord) -> f64| epochs.iter().map(of).sum::<f64>();
        let seconds = sum(|e| e.seconds);
        let waiting = if seconds > 0.0 {
            sum(|e| e.waiting) / seconds
        } else {
            0.0
        };
        Facts::with(waiting, &of_run(epochs), on_gpu)
    }

    fn with(waiting: f64, machine: &Values, on_gpu: bool) -> Self {
        let get = |name: &str| machine.get(name).copied().filter(|v| v.is_finite());
        Facts {
            waiting,
            on_gpu,
            cpu_utilisation: get("cpu_utilisation"),
            gpu_utilisation: get("gpu_utilisation"),
            memory_used: get("memory_used_share"),
            gpu_memory_used: get("gpu_memory_used_share"),
        }
    }
}

/// What a run could be made faster by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// Batches come too slowly.
    Loader,
    /// The GPU computes all the time: as it should be.
    Gpu,
    /// The processors compute all the time: as it should be without a GPU.
    Processor,
    /// Steps are too small for the device: it has less to do than it could.
    Steps,
    /// Nothing stands out.
    Unclear,
}

/// What limits the speed of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What it could be made faster by.
    pub bottleneck: Bottleneck,
    /// The same in words, with numbers and what to do.
    pub text: String,
    /// Memory that is nearly full.
    pub warnings: Vec<String>,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)?;
        self.warnings.iter().try_for_each(|warning| write!(f, "; {warning}"))
    }
}

/// A share in whole percents.
fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share.clamp(0.0, 1.0))
}

/// Judges a stretch of training.
///
/// ```
/// use kiln_monitor::{Bottleneck, Facts, verdict};
///
/// let facts = Facts { waiting: 0.38, cpu_utilisation: Some(0.4), ..Default::default() };
/// let verdict = verdict(&facts);
/// assert_eq!(verdict.bottleneck, Bottleneck::Loader);
/// assert_eq!(verdict.text, "the loader is the bottleneck: 38 % of the step; more workers would help");
/// ```
pub fn verdict(facts: &Facts) -> Verdict {
    verdict_beside(facts, None)
}

/// As [`verdict`], beside one that stands: its own limits of shares, and those of the others, are moved by [`MARGIN`] in its favour.
pub(crate) fn verdict_beside(facts: &Facts, standing: Option<Bottleneck>) -> Verdict {
    let (bottleneck, text) = judge(facts, standing);
    let full = |used: Option<f64>, whose: &str, advice: &str| {
        used.filter(|share| *share >= FULL)
            .map(|share| format!("{whose} is nearly full: {}; {advice}", percent(share)))
    };
    let memory = full(
        facts.memory_used,
        "memory",
        "fewer workers or smaller batches need less",
    );
    let of_gpu = full(facts.gpu_memory_used, "the GPU's memory", "smaller batches need less");
    Verdict {
        bottleneck,
        text,
        warnings: memory.into_iter().chain(of_gpu).collect(),
    }
}

fn judge(facts: &Facts, standing: Option<Bottleneck>) -> (Bottleneck, String) {
    let waits = percent(facts.waiting);
    // The one that stands keeps its place a little beyond its limits, and another takes it a little beyond its own.
    let margin = |of: Bottleneck| match standing {
        Some(standing) if standing == of => MARGIN,
        Some(_) => -MARGIN,
        None => 0.0,
    };
    let at_least = |share: f64, limit: f64, of: Bottleneck| share >= limit - margin(of);
    let below = |share: f64, limit: f64, of: Bottleneck| share < limit + margin(of);
    // While the loop waits for a batch, a GPU computes those before.
    if let Some(busy) = facts
        .gpu_utilisation
        .filter(|busy| facts.on_gpu && at_least(*busy, GPU_BUSY, Bottleneck::Gpu))
    {
        let text = format!(
            "the GPU is busy: {} of the time, while the loop waits for data {waits}",
            percent(busy)
        );
        return (Bottleneck::Gpu, text);
    }
    if at_least(facts.waiting, WAITS, Bottleneck::Loader) {
        let advice = match facts.cpu_utilisation {
            Some(busy) if busy >= CPU_FULL => "every core is busy, so only simpler transforms would help",
            Some(_) => "more workers would help",
            None => "more workers or simpler transforms would help",
        };
        let unknown = match facts.on_gpu && facts.gpu_utilisation.is_none() {
            true => "; what the GPU did meanwhile is not known",
            false => "",
        };
        let text = format!("the loader is the bottleneck: {waits} of the step; {advice}{unknown}");
        return (Bottleneck::Loader, text);
    }
    match (facts.on_gpu, facts.gpu_utilisation, facts.cpu_utilisation) {
        (true, Some(busy), _) if below(busy, GPU_IDLE, Bottleneck::Steps) => {
            let text = format!(
                "steps are too small for the GPU: busy {} of the time, and data is waited for only {waits}; larger batches would help",
                percent(busy)
            );
            (Bottleneck::Steps, text)
        }
        (true, Some(busy), _) => {
            let text = format!(
                "the GPU is busy {} of the time, and data is waited for {waits}",
                percent(busy)
            );
            (Bottleneck::Unclear, text)
        }
        (false, _, Some(busy)) if at_least(busy, CPU_FULL, Bottleneck::Processor) => {
            let text = format!(
                "the processor is busy: {} of all cores; data is waited for {waits}",
                percent(busy)
            );
            (Bottleneck::Processor, text)
        }
        (false, _, Some(busy)) if below(busy, CPU_IDLE, Bottleneck::Steps) => {
            let text = format!(
                "steps are too small for the processor: {} of all cores busy, and data is waited for only {waits}; more threads or larger batches would help",
                percent(busy)
            );
            (Bottleneck::Steps, text)
        }
        (false, _, Some(busy)) => {
            let text = format!(
                "the processor is busy {} of all cores, and data is waited for {waits}",
                percent(busy)
            );
            (Bottleneck::Unclear, text)
        }
        _ => (
            Bottleneck::Unclear,
            format!("the loader keeps up: data is waited for {waits} of the step"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(waiting: f64, cpu: Option<f64>, gpu: Option<f64>) -> Facts {
        Facts {
            waiting,
            on_gpu: gpu.is_some(),
            cpu_utilisation: cpu,
            gpu_utilisation: gpu,
            ..Default::default()
        }
    }

    #[test]
    fn what_limits_a_run_follows_from_its_shares() {
        use Bottleneck as B;
        let cases = [
            (
                facts(0.38, Some(0.3), None),
                B::Loader,
                "38 % of the step; more workers",
            ),
            (facts(0.38, Some(0.97), None), B::Loader, "only simpler transforms"),
            (facts(0.5, None, None), B::Loader, "more workers or simpler transforms"),
            // Batches arrive just in time.
            (facts(0.8, Some(0.3), Some(0.99)), B::Gpu, "busy: 99 %"),
            (facts(0.8, Some(0.3), Some(0.2)), B::Loader, "80 % of the step"),
            (facts(0.02, Some(0.3), Some(0.2)), B::Steps, "busy 20 %"),
            (facts(0.02, Some(0.3), Some(0.75)), B::Unclear, "busy 75 %"),
            (facts(0.02, Some(0.99), None), B::Processor, "99 % of all cores"),
            (facts(0.02, Some(0.12), None), B::Steps, "12 % of all cores"),
            (facts(0.02, Some(0.7), None), B::Unclear, "70 % of all cores"),
            (facts(0.02, None, None), B::Unclear, "keeps up: data is waited for 2 %"),
        ];
        for (facts, bottleneck, words) in cases {
            let found = verdict(&facts);
            assert_eq!(found.bottleneck, bottleneck, "{facts:?}: {found}");
            assert!(found.text.contains(words), "{facts:?}: {found}");
            assert!(found.warnings.is_empty());
        }
        let blind = Facts {
            on_gpu: true,
            ..facts(0.5, Some(0.2), None)
        };
        assert!(
            verdict(&blind)
                .text
                .ends_with("what the GPU did meanwhile is not known")
        );
    }

    #[test]
    fn full_memory_is_told_beside_it() {
        let full = Facts {
            memory_used: Some(0.97),
            gpu_memory_used: Some(1.0),
            ..facts(0.0, None, None)
        };
        let text = verdict(&full).to_string();
        assert!(text.contains("; memory is nearly full: 97 %;"), "{text}");
        assert!(text.contains("; the GPU's memory is nearly full: 100 %;"), "{text}");
    }

    #[test]
    fn every_mixture_of_facts_has_a_verdict_on_one_line() {
        let shares = [None, Some(0.0), Some(0.55), Some(0.95), Some(f64::NAN)];
        for waiting in [0.0, 0.15, 1.0, f64::NAN] {
            for (cpu, gpu) in shares.iter().flat_map(|a| shares.map(|b| (*a, b))) {
                for on_gpu in [false, true] {
                    let facts = Facts {
                        on_gpu,
                        memory_used: cpu,
                        gpu_memory_used: gpu,
                        ..facts(waiting, cpu, gpu)
                    };
                    let text = verdict(&facts).to_string();
                    assert!(!text.is_empty() && !text.contains('\n'));
                }
            }
        }
    }
}
