//! Shuffles, votes, matches and reductions.

use crate::kernel::{outcome, shape};

const MINE: &str =
    "mul.wide.u32 %rd1, %r0, 4;\nadd.u64 %rd1, %rd1, %rd0;\nmov.u32 %r3, %laneid;\nmul.lo.u32 %r4, %r3, 7;\n";
const OUT: &str = "st.global.u32 [%rd1], %r9;";

/// A warp's result of a few instructions that put it into `%r9`; `%r3` is the lane and `%r4` seven times it.
fn warp(instructions: &str) -> Vec<u32> {
    outcome::<u32>(shape(1, 32), 32, "", &format!("{MINE}{instructions}\n{OUT}"))
}

fn each(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn shuffles() {
    // The predicate says whether the source is in the segment; outside, a lane keeps its own.
    for (mode, width) in [
        ("up", 32u32),
        ("up", 8),
        ("down", 32),
        ("down", 16),
        ("bfly", 32),
        ("bfly", 4),
        ("idx", 32),
        ("idx", 8),
    ] {
        for by in [0u32, 1, 3, 5, 16, 31] {
            let c = (32 - width) << 8 | if mode == "up" { 0 } else { 31 };
            let found = warp(&format!(
                "shfl.sync.{mode}.b32 %r5|%p0, %r4, {by}, {c}, -1;\nselp.u32 %r6, 1000, 0, %p0;\nadd.u32 %r9, %r5, %r6;"
            ));
            let wanted = each(|l| {
                let (base, at) = (l / width * width, l % width);
                let from = match mode {
                    "up" => at.checked_sub(by),
                    "down" => Some(at + by).filter(|f| *f < width),
                    // Lanes of other segments are out of reach upwards only.
                    "bfly" => {
                        let from = l ^ by;
                        return if from < base + width { 7 * from + 1000 } else { 7 * l };
                    }
                    _ => return 7 * (base + by % width) + 1000,
                };
                from.map_or(7 * l, |f| 7 * (base + f) + 1000)
            });
            assert_eq!(found, wanted, "{mode} by {by} in {width}");
        }
    }
}

#[test]
fn votes() {
    let low = "setp.lt.u32 %p0, %r3, 5;\n";
    assert_eq!(warp(&format!("{low}vote.sync.ballot.b32 %r9, %p0, -1;")), each(|_| 31));
    assert_eq!(
        warp(&format!("{low}vote.sync.ballot.b32 %r9, !%p0, -1;")),
        each(|_| !31)
    );
    for (kind, low_votes, all_votes, none_votes) in [("any", 1, 1, 0), ("all", 0, 1, 0), ("uni", 0, 1, 1)] {
        let vote = |set: &str| {
            warp(&format!(
                "{set}vote.sync.{kind}.pred %p1, %p0, -1;\nselp.u32 %r9, 1, 0, %p1;"
            ))
        };
        assert_eq!(vote(low), each(|_| low_votes), "{kind}");
        assert_eq!(vote("setp.lt.u32 %p0, %r3, 32;\n"), each(|_| all_votes), "{kind}");
        assert_eq!(vote("setp.gt.u32 %p0, %r3, 32;\n"), each(|_| none_votes), "{kind}");
    }
}

#[test]
fn matches() {
    let third = "rem.u32 %r5, %r3, 3;\n";
    let same = |l: u32| (0..32).filter(|k| k % 3 == l % 3).fold(0, |m, k| m | 1 << k);
    assert_eq!(warp(&format!("{third}match.any.sync.b32 %r9, %r5, -1;")), each(same));
    assert_eq!(
        warp(&format!(
            "{third}cvt.u64.u32 %rd5, %r5;\nmatch.any.sync.b64 %r9, %rd5, -1;"
        )),
        each(same)
    );
    assert_eq!(
        warp("match.all.sync.b32 %r9|%p0, 4, -1;\n@!%p0 mov.u32 %r9, 1;"),
        each(|_| u32::MAX)
    );
    assert_eq!(
        warp(&format!(
            "{third}match.all.sync.b32 %r9|%p0, %r5, -1;\n@%p0 mov.u32 %r9, 1;"
        )),
        each(|_| 0)
    );
}

#[test]
fn reductions() {
    let all: Vec<u32> = (0..32).map(|l| 7 * l).collect();
    let reduce = |name: &str| warp(&format!("redux.sync.{name} %r9, %r4, -1;"));
    assert_eq!(reduce("add.u32"), each(|_| all.iter().sum()));
    assert_eq!(reduce("max.u32"), each(|_| 217));
    assert_eq!(reduce("or.b32"), each(|_| all.iter().fold(0, |a, b| a | b)));
    assert_eq!(reduce("xor.b32"), each(|_| all.iter().fold(0, |a, b| a ^ b)));
    assert_eq!(reduce("and.b32"), each(|_| 0));
    let signed = |name: &str| warp(&format!("sub.u32 %r4, %r4, 100;\nredux.sync.{name} %r9, %r4, -1;"));
    assert_eq!(signed("min.s32"), each(|_| -100i32 as u32));
    assert_eq!(signed("max.s32"), each(|_| 117));
    assert_eq!(signed("min.u32"), each(|_| 5));
}

#[test]
fn a_mask_takes_part_of_a_warp() {
    // Two halves, in two branches, each with its own shuffle, vote and reduction.
    let found = warp(
        "setp.lt.u32 %p0, %r3, 16;\n@%p0 bra LOW;\nshfl.sync.bfly.b32 %r9, %r4, 1, 31, 0xffff0000;\nbra END;\nLOW:\n\
         redux.sync.add.u32 %r9, %r3, 0xffff;\nelect.sync %r5|%p1, 0xffff;\n@%p1 mov.u32 %r9, 9;\nEND:\nbar.warp.sync -1;",
    );
    assert_eq!(
        found,
        each(|l| if l >= 16 {
            7 * (l ^ 1)
        } else if l == 0 {
            9
        } else {
            120
        })
    );
}

#[test]
fn lanes_that_come_late_are_waited_for() {
    // Odd lanes take a longer way; the vote and the warp barrier want all.
    let found = warp(
        "and.b32 %r5, %r3, 1;\nsetp.eq.u32 %p0, %r5, 0;\n@%p0 bra MEET;\nmov.u32 %r6, 0;\nLOOP:\nadd.u32 %r6, %r6, 1;\n\
         setp.lt.u32 %p1, %r6, %r3;\n@%p1 bra LOOP;\nMEET:\nvote.sync.ballot.b32 %r9, %p0, -1;\n\
         @%p0 bra ONE;\nbar.warp.sync -1;\nbra END;\nONE:\nbar.warp.sync -1;\nEND:",
    );
    assert_eq!(found, each(|_| 0x5555_5555));
}
