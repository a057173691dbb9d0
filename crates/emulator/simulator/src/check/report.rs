//! Messages of findings.

use super::order::{LOW, Record};
use super::shared::Wrong;
use crate::machine::{Env, Warp};
use crate::{Fault, FaultKind};

/// The word for an access in a message.
pub(super) fn verb(reads: bool, writes: bool) -> &'static str {
    match (reads, writes) {
        (true, false) => "read",
        (false, _) => "write",
        (true, true) => "atomic access",
    }
}

/// One wrong access.
pub(super) struct Finding<'a> {
    pub(super) lane: usize,
    pub(super) verb: &'static str,
    pub(super) size: u32,
    /// The place that it touches, in words.
    pub(super) place: &'a str,
    pub(super) wrong: Wrong,
    /// The pc of the other access.
    pub(super) other: u32,
    /// The other access's block, when it may be a different one.
    pub(super) block: Option<u32>,
}

/// The fault that reports a finding.
#[cold]
pub(super) fn fault(warp: &Warp, finding: &Finding<'_>) -> Box<Fault> {
    let env = warp.env();
    let Finding {
        lane,
        verb,
        size,
        place,
        wrong,
        ..
    } = *finding;
    let by = |record: Record| format!("thread {}{}", thread(env, record.thread()), at(env, finding.other));
    let (kind, message) = match wrong {
        Wrong::Unwritten => (
            FaultKind::Uninitialised,
            format!("uninitialised {verb} of {size} bytes at {place}, which nothing has written"),
        ),
        Wrong::Unwaited(record) => (
            FaultKind::Race,
            format!(
                "race, {} has not waited for its cp.async, and this {verb} of {size} bytes at {place}",
                by(record)
            ),
        ),
        Wrong::UnderWay(record) => (
            FaultKind::Race,
            format!(
                "race, the wgmma of {} is not complete (wgmma.wait_group), and this {verb} of {size} bytes at {place} \
                 changes what it reads",
                by(record)
            ),
        ),
        Wrong::Proxy(record) => (
            FaultKind::Race,
            format!(
                "race, no fence.proxy.async between the write by {} and this asynchronous {verb} of {size} bytes at {place}",
                by(record)
            ),
        ),
        Wrong::Write(record) | Wrong::Read(record) => {
            let other = if matches!(wrong, Wrong::Write(_)) {
                "write"
            } else {
                "read"
            };
            let mine = warp.index * 32 + lane as u32;
            let (lacks, whose) = match finding.block {
                Some(block) => ("nothing orders", format!(" of block {}", index(env, block))),
                None if record.thread() / 32 == mine / 32 => ("no __syncwarp or __syncthreads between", String::new()),
                None => ("no __syncthreads between", String::new()),
            };
            let message = format!(
                "race, {lacks} the {other} by {}{whose} and this {verb} of {size} bytes at {place}",
                by(record)
            );
            (FaultKind::Race, message)
        }
    };
    // A product of a warpgroup has lanes beyond those of its first warp.
    warp.describe(kind, lane % 32, message, warp.pc)
}

fn thread(env: &Env<'_>, n: u32) -> String {
    let [x, y, _] = env.block;
    format!("({},{},{})", n % x, n / x % y, n / x / y)
}

/// The index of the block with this number, counted from 1.
fn index(env: &Env<'_>, block: u32) -> String {
    let [x, y, _] = env.grid.map(u64::from);
    let n = u64::from(block) - 1;
    format!("({},{},{})", n % x, n / x % y, n / x / y)
}

fn at(env: &Env<'_>, pc: u32) -> String {
    if pc == LOW {
        return String::new();
    }
    match env.code.source(pc) {
        (_, 0) => String::new(),
        (file, line) => format!(" at {}:{line}", file.rsplit('/').next().unwrap_or(&file)),
    }
}
