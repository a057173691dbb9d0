//! The gain from threads: Kiln on all threads compared with Kiln on one, in turns.

use super::framework::Framework;
use super::nets::run;
use super::plan::Plan;
use super::report::Entry;
use super::rounds::{Rounds, median};
use super::rows::{NetRow, Pass, SCALING};
use super::workers::Workers;
use crate::workspace::root;

pub(super) fn measure(workers: &mut Workers, plan: &Plan) -> Option<Entry> {
    let row = NetRow {
        name: "resnet18",
        batch: 32,
        pass: Pass::Train,
        half: false,
    };
    let (id, file) = (row.id(), root().join("target/bench/row.safetensors"));
    let file = file.display();
    let threads = [plan.threads, 1];
    let written = workers.ask(Framework::Kiln, plan.threads, &format!("write {id} {file}"));
    let loaded = written.and_then(|_| {
        threads.iter().try_for_each(|&t| {
            let answer = workers.ask(Framework::Kiln, t, &format!("load s default {id} {file}"));
            answer.map(drop)
        })
    });
    if let Err(e) = loaded {
        println!("{SCALING}: {e}");
        return None;
    }
    let rounds = Rounds::play(2, plan.rounds, &mut |i| {
        run(workers, Framework::Kiln, threads[i], "s", plan.seconds)
    });
    for t in threads {
        let _ = workers.ask(Framework::Kiln, t, "drop s");
    }
    let mut entry = Entry::new(SCALING);
    entry.per_repetition = Some(row.made());
    entry.kiln = Some(median(&rounds.seconds[0])).filter(|s| s.is_finite());
    let alone = median(&rounds.seconds[1]);
    entry.add_peer(Framework::Kiln, "1 thread", alone);
    entry.best = Some((Framework::Kiln, "1 thread".into()));
    entry.ratio = rounds.ratio(1);
    println!("{SCALING:<36} {}", entry.line());
    Some(entry)
}
