//! A verdict on a run in progress, which does not change with every stretch of it.

use crate::verdict::{Facts, Verdict, verdict_beside};
use std::collections::VecDeque;

/// The seconds of training that a verdict is about, and for which it stands at the least.
const WINDOW: f64 = 20.0;

/// The seconds of training before the first verdict stands.
const FIRST: f64 = 2.0;

/// Judges a run as it goes on, so that words which people read do not flip between two epochs.
///
/// Three things keep a verdict steady. It is about the last 20 seconds of training, the shares of whose stretches are averaged by their
/// length; a stretch that is longer is judged alone. Another bottleneck takes its place only if a share is 5 percentage points beyond the limit
/// at which that share would have begun it. And it stands for 20 seconds of training before another may take its place, so there are at
/// most three a minute whatever the stretches are like. The first one stands after two seconds, until when it changes freely. Numbers in its
/// words are always those of the last 20 seconds in which they agreed with it.
///
/// ```
/// use kiln_monitor::{Bottleneck, Facts, Judge};
///
/// let mut judge = Judge::new();
/// for epoch in 0..1000 {
///     // A tenth of a second each, in which the loop waits for 5 % or for 20 %.
///     let waiting = if epoch % 2 == 0 { 0.05 } else { 0.2 };
///     judge.add(0.1, &Facts { waiting, cpu_utilisation: Some(0.95), ..Default::default() });
///     assert!(epoch < 20 || judge.verdict().unwrap().bottleneck == Bottleneck::Processor);
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Judge {
    /// The last stretches with their seconds, as many as a window takes.
    stretches: VecDeque<(f64, Facts)>,
    /// The seconds before the first verdict stands; then those since the present one does.
    seconds: f64,
    stands: bool,
    verdict: Option<Verdict>,
}

impl Judge {
    /// Creates a judge that has seen nothing.
    pub fn new() -> Self {
        Judge::default()
    }

    /// Adds the next stretch of training, such as an epoch, of so many seconds. One without a length is passed over.
    pub fn add(&mut self, seconds: f64, facts: &Facts) {
        if !(seconds.is_finite() && seconds > 0.0 && facts.waiting.is_finite()) {
            return;
        }
        self.stretches.push_back((seconds, *facts));
        let mut held: f64 = self.stretches.iter().map(|(seconds, _)| seconds).sum();
        while let Some((oldest, _)) = self.stretches.front()
            && held - oldest >= WINDOW
        {
            held -= oldest;
            self.stretches.pop_front();
        }
        self.seconds += seconds;
        let standing = self.verdict.as_ref().map(|v| v.bottleneck).filter(|_| self.stands);
        let found = verdict_beside(&mean(&self.stretches), standing);
        match &mut self.verdict {
            Some(verdict) if self.stands && verdict.bottleneck != found.bottleneck => match self.seconds >= WINDOW {
                true => {
                    *verdict = found;
                    self.seconds = 0.0;
                }
                false => verdict.warnings = found.warnings,
            },
            verdict => *verdict = Some(found),
        }
        if !self.stands && self.seconds >= FIRST {
            (self.stands, self.seconds) = (true, 0.0);
        }
    }

    /// The verdict on the last 20 seconds; `None` before anything was added.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// True once the verdict stands: there were two seconds of training.
    pub fn stands(&self) -> bool {
        self.stands
    }
}

/// The facts of several stretches together: means by their seconds, and the largest of memory.
fn mean(stretches: &VecDeque<(f64, Facts)>) -> Facts {
    let mean = |of: fn(&Facts) -> Option<f64>| {
        let known = stretches
            .iter()
            .filter_map(|(seconds, facts)| Some((*seconds, of(facts).filter(|v| v.is_finite())?)));
        let (sum, seconds) = known.fold((0.0, 0.0), |(sum, all), (seconds, share)| {
            (sum + seconds * share, all + seconds)
        });
        (seconds > 0.0).then(|| sum / seconds)
    };
    let largest = |of: fn(&Facts) -> Option<f64>| stretches.iter().filter_map(|(_, facts)| of(facts)).reduce(f64::max);
    Facts {
        waiting: mean(|f| Some(f.waiting)).unwrap_or(0.0),
        on_gpu: stretches.iter().any(|(_, facts)| facts.on_gpu),
        cpu_utilisation: mean(|f| f.cpu_utilisation),
        gpu_utilisation: mean(|f| f.gpu_utilisation),
        memory_used: largest(|f| f.memory_used),
        gpu_memory_used: largest(|f| f.gpu_memory_used),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bottleneck, verdict};
    use proptest::prelude::*;

    /// Facts of these shares: of waiting, of the processors, and of a GPU.
    fn facts(waiting: f64, cpu: f64, gpu: Option<f64>) -> Facts {
        Facts {
            waiting: waiting.clamp(0.0, 1.0),
            on_gpu: gpu.is_some(),
            cpu_utilisation: Some(cpu.clamp(0.0, 1.0)),
            gpu_utilisation: gpu.map(|gpu| gpu.clamp(0.0, 1.0)),
            ..Default::default()
        }
    }

    /// The seconds at which each verdict that stood began, with its bottleneck.
    fn told(stretches: impl IntoIterator<Item = (f64, Facts)>) -> Vec<(f64, Bottleneck)> {
        let (mut judge, mut told, mut now) = (Judge::new(), Vec::<(f64, Bottleneck)>::new(), 0.0);
        for (seconds, facts) in stretches {
            judge.add(seconds, &facts);
            now += seconds;
            let bottleneck = judge.verdict().unwrap().bottleneck;
            if judge.stands() && told.last().is_none_or(|last| last.1 != bottleneck) {
                told.push((now, bottleneck));
            }
        }
        told
    }

    fn share() -> impl Strategy<Value = f64> {
        0.0..=1.0
    }

    proptest! {
        #[test]
        fn shares_that_only_jitter_lead_to_one_verdict(
            (waiting, cpu, gpu) in (share(), share(), proptest::option::of(share())),
            jitter in proptest::collection::vec((0.02..0.2, -0.1..0.1, -0.1..0.1, -0.1..0.1), 1000),
        ) {
            let stretches = jitter.iter().map(|&(seconds, a, b, c)| (seconds, facts(waiting + a, cpu + b, gpu.map(|gpu| gpu + c))));
            // The first two seconds may have been on the other side of a limit.
            let told = told(stretches);
            prop_assert!(told.len() <= 2 && told.iter().skip(1).all(|(at, _)| *at >= 20.0), "{told:?}");
        }

        #[test]
        fn there_is_no_more_than_one_verdict_in_twenty_seconds(
            stretches in proptest::collection::vec((0.01..3.0, share(), share(), proptest::option::of(share())), 1..400),
        ) {
            let told = told(stretches.into_iter().map(|(seconds, waiting, cpu, gpu)| (seconds, facts(waiting, cpu, gpu))));
            let apart = told.windows(2).all(|pair| pair[1].0 - pair[0].0 > 20.0 - 1e-9);
            prop_assert!(apart, "{told:?}");
        }

        #[test]
        fn a_run_that_changes_is_told_within_a_window_and_the_time_a_verdict_stands(
            seconds in 0.05..30.0,
            before in (0.0..0.05, 0.95..1.0),
            after in (0.6..1.0, 0.0..0.4),
        ) {
            let count = (60.0 / seconds) as usize + 1;
            let runs = [before, after].map(|(waiting, cpu)| (seconds, facts(waiting, cpu, None)));
            let told = told(runs.into_iter().flat_map(|stretch| std::iter::repeat_n(stretch, count)));
            // On the way the shares may be those of neither.
            let (first, last) = (told[0], told[told.len() - 1]);
            prop_assert_eq!((first.1, last.1), (Bottleneck::Processor, Bottleneck::Loader));
            prop_assert!(last.0 - count as f64 * seconds <= 2.0 * (WINDOW + seconds), "{:?}", told);
        }

        #[test]
        fn a_single_stretch_has_the_verdict_of_its_facts(seconds in 0.001..1e4, waiting in share(), cpu in share(), gpu in proptest::option::of(share())) {
            let facts = facts(waiting, cpu, gpu);
            let mut judge = Judge::new();
            judge.add(seconds, &facts);
            // The mean of one share is that share but for a rounding, which decides nothing away from the limits.
            let near = [0.15, 0.5, 0.6, 0.9].iter().any(|limit| [waiting, cpu, gpu.unwrap_or(0.0)].iter().any(|v| (v - limit).abs() < 1e-9));
            prop_assert!(near || judge.verdict().unwrap().bottleneck == verdict(&facts).bottleneck);
        }
    }

    #[test]
    fn long_epochs_change_a_verdict_by_more_than_its_margin_only() {
        let epochs = [0.16, 0.14, 0.11, 0.09, 0.14, 0.16, 0.21].map(|waiting| (60.0, facts(waiting, 0.99, None)));
        let found: Vec<Bottleneck> = told(epochs).into_iter().map(|told| told.1).collect();
        assert_eq!(found, [Bottleneck::Loader, Bottleneck::Processor, Bottleneck::Loader]);
    }

    #[test]
    fn what_has_no_length_or_no_shares_is_passed_over() {
        let mut judge = Judge::new();
        for (seconds, waiting) in [(0.0, 0.5), (f64::NAN, 0.5), (-1.0, 0.5), (1.0, f64::NAN)] {
            judge.add(
                seconds,
                &Facts {
                    waiting,
                    ..Default::default()
                },
            );
        }
        assert!(judge.verdict().is_none() && !judge.stands());
    }
}
