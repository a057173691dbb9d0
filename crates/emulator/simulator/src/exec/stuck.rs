//! Messages about a block that makes no progress: the places of its threads.

use std::time::Duration;

use super::block::Block;
use crate::machine::{Env, Group, State, lanes};
use crate::{Fault, FaultKind};

impl Block {
    /// The fault of a block in which no warp can run; it says where each thread waits.
    pub(super) fn deadlock(&mut self, env: &Env<'_>) -> Box<Fault> {
        // A warp-wide instruction names the culprit better than the barrier where others wait for it.
        let rank = |state: State| u32::from(matches!(state, State::Barrier(_) | State::Phase));
        let (places, w, group) = self.standing(env, rank);
        let kind = if matches!(group.state, State::Barrier(_) | State::Phase) {
            FaultKind::Barrier
        } else {
            FaultKind::Warp
        };
        let message = format!("deadlock: {places}");
        self.fault_of(w, group, kind, message)
    }

    /// The fault of a block that has run for longer than the watchdog allows; it says where its threads are.
    pub(super) fn timed_out(&mut self, env: &Env<'_>, most: Duration) -> Box<Fault> {
        // A thread that runs polls for something that never comes; the others wait for that thread.
        let (places, w, group) = self.standing(env, |state| u32::from(state != State::Ready));
        let message = format!(
            "the launch timed out: no block of it has ended for {} seconds (KILN_EMULATOR_WATCHDOG); {places}",
            most.as_secs_f32()
        );
        self.fault_of(w, group, FaultKind::Timeout, message)
    }

    fn fault_of(&mut self, w: usize, group: Group, kind: FaultKind, message: String) -> Box<Fault> {
        let lane = lanes(group.mask).next().unwrap_or(0);
        self.warps[w].fail_at(kind, lane, message, group.pc);
        self.take_fault(w)
    }

    /// The places of the block's threads in words, and the warp and the group that `rank` puts first.
    fn standing(&self, env: &Env<'_>, rank: impl Fn(State) -> u32) -> (String, usize, Group) {
        let mut places: Vec<(u32, u32, State)> = Vec::new();
        let mut first: Option<(u32, usize, Group)> = None;
        for (w, warp) in self.warps[..self.count].iter().enumerate() {
            for g in &warp.groups {
                let rank = rank(g.state);
                if first.is_none_or(|(best, ..)| rank < best) {
                    first = Some((rank, w, *g));
                }
                match places.iter_mut().find(|p| p.1 == g.pc) {
                    Some(place) => place.0 += g.mask.count_ones(),
                    None => places.push((g.mask.count_ones(), g.pc, g.state)),
                }
            }
        }
        let list: Vec<String> = places
            .iter()
            .map(|(threads, pc, state)| {
                let what = match state {
                    State::Ready => "run".to_string(),
                    State::Barrier(id) => format!("wait at barrier {id}"),
                    State::WarpBarrier(mask) => format!("wait at a warp barrier of mask {mask:#010x}"),
                    State::Phase => "wait for a phase of an mbarrier".to_string(),
                    State::Warpgroup => "wait for the other warps of their warpgroup".to_string(),
                    State::Together => {
                        "wait at a warp-wide instruction whose mask names lanes that are elsewhere".to_string()
                    }
                };
                format!("{threads} threads {what} (line {})", env.code.source(*pc).1)
            })
            .collect();
        let (_, w, group) = first.unwrap_or((0, 0, Group::default()));
        (
            format!("{}, {} have exited", list.join(", "), self.threads - self.live),
            w,
            group,
        )
    }
}
