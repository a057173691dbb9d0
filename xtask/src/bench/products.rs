//! Matrix products compared with those of BLAS libraries and with the peak rate of fused multiply-adds, in turns.

use super::framework::Framework;
use super::nets::run;
use super::plan::Plan;
use super::report::Entry;
use super::rounds::{Rounds, median};
use super::rows::product_id;
use super::workers::Workers;

/// Seconds for which the peak rate is measured before each of Kiln's turns.
const PEAK_SECONDS: f64 = 0.1;

/// Measures one product; `None` if Kiln cannot be measured.
pub(super) fn measure(workers: &mut Workers, size: (usize, usize, usize), plan: &Plan) -> Option<Entry> {
    let (m, k, n) = size;
    let mut entry = Entry::new(&product_id(size, plan.threads));
    let operations = 2.0 * m as f64 * k as f64 * n as f64;
    entry.per_repetition = Some((operations, "FLOP"));
    let prepare = |workers: &mut Workers, who| workers.ask(who, plan.threads, &format!("gemm g {m} {k} {n}"));
    let ready = prepare(workers, Framework::Kiln).and_then(|_| workers.ask(Framework::Kiln, plan.threads, "peak p"));
    let peak = match ready.map(|answer| answer["flops"].as_f64()) {
        Ok(Some(flops)) => flops,
        Ok(None) => return None,
        Err(e) => {
            println!("{}: kiln: {e}", entry.id);
            return None;
        }
    };
    let mut who = vec![Framework::Kiln];
    for &peer in plan.peers(&Framework::PRODUCTS) {
        match prepare(workers, peer) {
            Ok(_) => who.push(peer),
            Err(e) => entry.notes.push(format!("{}: {e}", peer.label())),
        }
    }
    let mut peaks = Vec::new();
    let rounds = Rounds::play(who.len(), plan.rounds, &mut |i| {
        if i == 0 {
            peaks.push(peak / run(workers, Framework::Kiln, plan.threads, "p", PEAK_SECONDS)?);
        }
        run(workers, who[i], plan.threads, "g", plan.seconds)
    });
    let shares: Vec<f64> = rounds.seconds[0]
        .iter()
        .zip(&peaks)
        .map(|(s, peak)| operations / s / peak)
        .collect();
    entry.of_peak = Some((median(&shares), median(&peaks))).filter(|(share, _)| share.is_finite());
    entry.kiln = Some(median(&rounds.seconds[0])).filter(|s| s.is_finite());
    for (i, &peer) in who.iter().enumerate() {
        let _ = workers.ask(peer, plan.threads, "drop g");
        if i > 0 && !rounds.seconds[i].is_empty() {
            entry.add_peer(peer, blas(peer), median(&rounds.seconds[i]));
        }
    }
    if let Some(best) = rounds.best() {
        entry.best = Some((who[best], blas(who[best]).to_string()));
        entry.ratio = rounds.ratio(best);
    }
    println!("{:<36} {}", entry.id, entry.line());
    Some(entry)
}

/// The BLAS library of a framework's usual build.
fn blas(who: Framework) -> &'static str {
    match who {
        Framework::NumPy => "OpenBLAS",
        _ => "mm",
    }
}
