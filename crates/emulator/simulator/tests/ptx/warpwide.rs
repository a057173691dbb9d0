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
    // Odd lanes take a longer branch; the vote and the warp barrier wait for all.
    let found = warp(
        "and.b32 %r5, %r3, 1;\nsetp.eq.u32 %p0, %r5, 0;\n@%p0 bra MEET;\nmov.u32 %r6, 0;\nLOOP:\nadd.u32 %r6, %r6, 1;\n\
         setp.lt.u32 %p1, %r6, %r3;\n@%p1 bra LOOP;\nMEET:\nvote.sync.ballot.b32 %r9, %p0, -1;\n\
         @%p0 bra ONE;\nbar.warp.sync -1;\nbra END;\nONE:\nbar.warp.sync -1;\nEND:",
    );
    assert_eq!(found, each(|_| 0x5555_5555));
}

/// `%r7` is a mask of every third lane, the lane's own among them.
const THIRDS: &str = "rem.u32 %r5, %r3, 3;\nmov.u32 %r7, 0x49249249;\nsetp.eq.u32 %p0, %r5, 1;\n\
                      @%p0 mov.u32 %r7, 0x92492492;\nsetp.eq.u32 %p0, %r5, 2;\n@%p0 mov.u32 %r7, 0x24924924;\n";

fn third(l: u32) -> u32 {
    [0x4924_9249, 0x9249_2492, 0x2492_4924][l as usize % 3]
}

/// The lanes of a mask.
fn named(mask: u32) -> impl Iterator<Item = u32> {
    (0..32).filter(move |l| mask >> l & 1 == 1)
}

#[test]
fn each_member_mask_is_a_group_of_its_own() {
    let of = |instructions: &str| warp(&format!("{THIRDS}{instructions}"));
    assert_eq!(
        of("redux.sync.max.u32 %r9, %r3, %r7;"),
        each(|l| 31 - third(l).leading_zeros())
    );
    assert_eq!(of("redux.sync.add.u32 %r9, %r3, %r7;"), each(|l| named(third(l)).sum()));
    let low = "setp.lt.u32 %p1, %r3, 7;\n";
    assert_eq!(
        of(&format!("{low}vote.sync.ballot.b32 %r9, %p1, %r7;")),
        each(|l| third(l) & 127)
    );
    // Lane 31 is one of the second third.
    let last = "setp.eq.u32 %p1, %r3, 31;\n";
    for (kind, second, others) in [("any", 1, 0), ("uni", 0, 1), ("all", 0, 0)] {
        assert_eq!(
            of(&format!(
                "{last}vote.sync.{kind}.pred %p2, %p1, %r7;\nselp.u32 %r9, 1, 0, %p2;"
            )),
            each(|l| if l % 3 == 1 { second } else { others }),
            "{kind}"
        );
    }
    assert_eq!(
        of("shr.u32 %r6, %r3, 3;\nmatch.any.sync.b32 %r9, %r6, %r7;"),
        each(|l| third(l) & 255 << (l / 8 * 8))
    );
    assert_eq!(
        of(
            "setp.eq.u32 %p1, %r5, 1;\nselp.u32 %r6, %r3, 4, %p1;\nmatch.all.sync.b32 %r9|%p2, %r6, %r7;\n\
            @%p2 add.u32 %r9, %r9, 1;"
        ),
        each(|l| if l % 3 == 1 { 0 } else { third(l) + 1 })
    );
    assert_eq!(
        of("elect.sync %r9|%p1, %r7;\n@%p1 mov.u32 %r9, 77;"),
        each(|l| if l < 3 { 77 } else { l % 3 })
    );
    // Three lanes on, which is in the same third, but for the last of each.
    assert_eq!(
        of(
            "add.u32 %r6, %r3, 3;\nmin.u32 %r6, %r6, %r3;\nsetp.lt.u32 %p1, %r3, 29;\n@%p1 add.u32 %r6, %r3, 3;\n\
            shfl.sync.idx.b32 %r9, %r4, %r6, 31, %r7;"
        ),
        each(|l| 7 * if l < 29 { l + 3 } else { l })
    );
}

#[test]
fn groups_of_different_masks_do_not_wait_for_each_other() {
    // In every round another third comes to the reduction, while the others go round a longer loop.
    let found = warp(&format!(
        "{THIRDS}mov.u32 %r6, 0;\nmov.u32 %r9, 0;\nmov.u32 %r10, 0;\nROUND:\nadd.u32 %r8, %r6, %r5;\nrem.u32 %r8, %r8, 3;\n\
         setp.ne.u32 %p0, %r8, 0;\n@%p0 bra LATE;\nbra MEET;\nLATE:\nadd.u32 %r10, %r10, 1;\nMEET:\n\
         add.u32 %r11, %r3, %r6;\nredux.sync.add.u32 %r8, %r11, %r7;\nadd.u32 %r9, %r9, %r8;\n\
         bar.warp.sync %r7;\nadd.u32 %r6, %r6, 1;\nsetp.lt.u32 %p0, %r6, 5;\n@%p0 bra ROUND;"
    ));
    let sum = |l: u32| {
        (0..5)
            .map(|round| named(third(l)).map(|k| k + round).sum::<u32>())
            .sum()
    };
    assert_eq!(found, each(sum));
    // The lanes of the first third have passed before the others begin; lane by lane the others follow.
    let found = warp(&format!(
        "{THIRDS}setp.eq.u32 %p0, %r5, 0;\n@%p0 bra MEET;\nmov.u32 %r6, 0;\nWAIT:\nadd.u32 %r6, %r6, 1;\n\
         setp.lt.u32 %p1, %r6, %r4;\n@%p1 bra WAIT;\nMEET:\nredux.sync.add.u32 %r9, %r3, %r7;"
    ));
    assert_eq!(found, each(|l| named(third(l)).sum()));
}

#[test]
fn a_guard_keeps_lanes_out_of_a_meeting() {
    // The lanes whose guard is false wait elsewhere, for the lanes that the meeting holds.
    let found = warp(
        "setp.lt.u32 %p0, %r3, 16;\nmov.u32 %r9, 5;\nsetp.lt.u32 %p1, %r3, 8;\n@%p1 bra MEET;\n\
         mov.u32 %r6, 0;\nMEET:\n@%p0 redux.sync.add.u32 %r9, %r3, 0xffff;\n@!%p0 mov.u32 %r9, 6;\nbar.warp.sync -1;",
    );
    assert_eq!(found, each(|l| if l < 16 { 120 } else { 6 }));
}

#[test]
fn exited_lanes_are_not_waited_for() {
    // The upper half works for long and then exits, while the lower half waits for all.
    let leave = "setp.ge.u32 %p0, %r3, 16;\n@!%p0 bra MEET;\nmov.u32 %r6, 0;\nLOOP:\nadd.u32 %r6, %r6, 1;\n\
                 setp.lt.u32 %p1, %r6, %r4;\n@%p1 bra LOOP;\nst.global.u32 [%rd1], 1;\nexit;\nMEET:\n";
    let run = |instructions: &str| {
        let device = crate::kernel::Device::new();
        let out = device.upload(&[0u32; 32]);
        let body = format!("{MINE}{leave}{instructions}\n{OUT}");
        let ptx = crate::kernel::module(1, "", &body);
        let result = device.launch(&ptx, shape(1, 32), &[out.base], false);
        result.unwrap_or_else(|fault| panic!("{instructions}: {fault}"));
        device.read::<u32>(&out)
    };
    let lower = |f: &dyn Fn(u32) -> u32| each(|l| if l < 16 { f(l) } else { 1 });
    assert_eq!(run("shfl.sync.bfly.b32 %r9, %r4, 1, 31, -1;"), lower(&|l| 7 * (l ^ 1)));
    assert_eq!(run("vote.sync.ballot.b32 %r9, 1, -1;"), lower(&|_| 0xffff));
    assert_eq!(run("redux.sync.add.u32 %r9, %r3, -1;"), lower(&|_| 120));
    assert_eq!(run("match.any.sync.b32 %r9, %r3, -1;"), lower(&|l| 1 << l));
    assert_eq!(run("elect.sync %r9|%p1, -1;"), lower(&|_| 0));
    assert_eq!(run("bar.warp.sync -1;\nmov.u32 %r9, %r3;"), lower(&|l| l));
}

#[test]
fn lanes_meet_inside_a_function_that_they_enter_one_after_the_other() {
    let function = ".func (.param .b32 out) total(.param .b32 x)\n{\n.reg .b32 %t<2>;\nld.param.b32 %t0, [x];\n\
                    redux.sync.add.u32 %t1, %t0, -1;\nst.param.b32 [out], %t1;\nret;\n}";
    let call = "{\n.param .b32 x;\n.param .b32 out;\nst.param.b32 [x], %r3;\ncall (out), total, (x);\n\
                ld.param.b32 %r9, [out];\n}";
    let late = "setp.lt.u32 %p0, %r3, 9;\n@%p0 bra CALL;\nmov.u32 %r6, 0;\nbra.uni CALL;\nCALL:\n";
    let found = outcome::<u32>(shape(1, 32), 32, function, &format!("{MINE}{late}{call}\n{OUT}"));
    assert_eq!(found, each(|_| 496));
}
