//! The cost of starting: seconds from the start of a process to the end of its first training step.

use super::framework::Framework;
use super::plan::Plan;
use super::report::Entry;
use super::rounds::{Rounds, median};
use super::rows::START;
use super::workers::Workers;

/// The number of new processes of each contender.
const ROUNDS: usize = 5;

pub(super) fn measure(workers: &mut Workers, plan: &Plan) -> Entry {
    let mut who = vec![Framework::Kiln];
    for &peer in plan.peers(&Framework::NETS) {
        if workers.get(peer, plan.threads).is_some() {
            who.push(peer);
        }
    }
    let rounds = if plan.quick { 1 } else { ROUNDS };
    let rounds = Rounds::play(who.len(), rounds, &mut |i| {
        workers.once(who[i], plan.threads, "mnist-cnn", 128)
    });
    let mut entry = Entry::new(START);
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
    println!("{START:<36} {}", entry.line());
    entry
}
