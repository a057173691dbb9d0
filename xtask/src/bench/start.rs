//! The cost of starting: seconds from the start of a process to the end of its first training step, and its peak memory.

use super::framework::Framework;
use super::plan::Plan;
use super::report::{Entry, Measure};
use super::rounds::{Rounds, median};
use super::rows::START;
use super::workers::Workers;

/// The number of new processes of each contender.
const ROUNDS: usize = 5;

pub(super) fn measure(workers: &mut Workers, plan: &Plan) -> Vec<Entry> {
    let mut who = vec![Framework::Kiln];
    for &peer in plan.peers(&Framework::NETS) {
        if workers.get(peer, plan.threads).is_some() {
            who.push(peer);
        }
    }
    let mut resident = vec![Vec::new(); who.len()];
    let rounds = if plan.quick { 1 } else { ROUNDS };
    let seconds = Rounds::play(who.len(), rounds, &mut |i| {
        let start = workers.once(who[i], plan.threads, "mnist-cnn", 128)?;
        resident[i].extend(start.resident);
        Ok(start.seconds)
    });
    let resident = Rounds { seconds: resident };
    let entries = [
        (START[0], seconds, Measure::Seconds),
        (START[1], resident, Measure::Bytes),
    ];
    let entries = entries.map(|(id, rounds, measure)| {
        let mut entry = Entry::new(id);
        entry.measure = measure;
        entry.kiln = Some(median(&rounds.seconds[0])).filter(|s| s.is_finite());
        for (i, &peer) in who.iter().enumerate().skip(1) {
            if !rounds.seconds[i].is_empty() {
                entry.add_peer(peer, "", median(&rounds.seconds[i]));
            }
        }
        if let Some(best) = rounds.best() {
            entry.best = Some((who[best], String::new()));
            entry.ratio = rounds.ratio(best);
        }
        println!("{id:<36} {}", entry.line());
        entry
    });
    entries.into_iter().collect()
}
