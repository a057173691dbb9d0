//! Instructions that lanes of a warp carry out together: shuffles, votes, matches, reductions; also traps and fences.

use kiln_ptx::Opcode;

use crate::FaultKind;
use crate::machine::{Handler, Inst, Warp, lanes};

/// The handler of a `shfl.sync`.
pub(crate) fn shuffle(op: &Opcode<'_>) -> Option<Handler> {
    Some(match op.modifiers.get(1).copied()? {
        "up" => shuffle_run::<0>,
        "down" => shuffle_run::<1>,
        "bfly" => shuffle_run::<2>,
        "idx" => shuffle_run::<3>,
        _ => return None,
    })
}

/// `shfl.sync.MODE.b32 d|p, a, b, c`: `c` holds the segment mask in bits 8…12 and the clamp in 0…4.
unsafe fn shuffle_run<const MODE: u32>(w: &mut Warp, i: &Inst) {
    // SAFETY: all operands are rows of u32, `d2` a predicate or nothing (`decode`).
    unsafe {
        let a = *w.row::<[u32; 32]>(i.a);
        let (b, c) = (*w.row::<[u32; 32]>(i.b), *w.row::<[u32; 32]>(i.c));
        let d = w.row::<u32>(i.d);
        let mut inside = 0u32;
        let mut outside = 0u32;
        for l in lanes(w.mask) {
            let lane = l as u32;
            let (b, clamp, segment) = (b[l] & 31, c[l] & 31, c[l] >> 8 & 31);
            let max = lane & segment | clamp & !segment;
            let min = lane & segment;
            let (from, ok) = match MODE {
                0 => (lane.wrapping_sub(b), lane as i32 - b as i32 >= max as i32),
                1 => (lane + b, lane + b <= max),
                2 => (lane ^ b, lane ^ b <= max),
                _ => {
                    let from = min | b & !segment;
                    (from, from <= max)
                }
            };
            // Outside of its segment a lane keeps its own value.
            let from = if ok { from & 31 } else { lane };
            inside |= u32::from(ok) << l;
            // A value from a lane outside of the mask is undefined: all ones, a NaN, as in memory that nothing wrote.
            let known = w.mask >> from & 1 != 0;
            outside |= u32::from(!known) << l;
            *d.add(l) = if known { a[from as usize] } else { u32::MAX };
        }
        if i.d2.is_some() {
            w.set_predicate(i.d2, inside);
        }
        // The last lanes of a tree (`__shfl_down_sync` in half a warp) reach out of the mask and use nothing of it; a lane
        // that names its source is wrong.
        if MODE == 3 && outside != 0 && w.env().check {
            let lane = outside.trailing_zeros() as usize;
            w.fail(
                FaultKind::Warp,
                lane,
                "a shuffle from a lane that does not take part".to_string(),
            );
        }
    }
}

/// `vote.sync`: flags 0 all, 1 any, 2 uni; 4 when the predicate is negated.
pub(crate) unsafe fn vote(w: &mut Warp, i: &Inst) {
    // SAFETY: the operands are predicates (`decode`).
    unsafe {
        let votes = (w.predicate(i.a) ^ if i.flags & 4 != 0 { u32::MAX } else { 0 }) & w.mask;
        let holds = match i.flags & 3 {
            0 => votes == w.mask,
            1 => votes != 0,
            _ => votes == w.mask || votes == 0,
        };
        w.set_predicate(i.d, if holds { u32::MAX } else { 0 });
    }
}

/// `vote.sync.ballot`: the votes as a mask.
pub(crate) unsafe fn ballot(w: &mut Warp, i: &Inst) {
    // SAFETY: `a` is a predicate and `d` a row of u32 (`decode`).
    unsafe {
        let votes = (w.predicate(i.a) ^ if i.flags & 4 != 0 { u32::MAX } else { 0 }) & w.mask;
        splat(w, i, votes);
    }
}

unsafe fn splat(w: &Warp, i: &Inst, value: u32) {
    // SAFETY: the caller's contract: `d` is a row of u32.
    unsafe {
        let d = w.row::<u32>(i.d);
        for l in lanes(w.mask) {
            *d.add(l) = value;
        }
    }
}

/// `match.any.sync`: each lane gets the mask of those with its value.
pub(crate) unsafe fn match_any<T: Copy + PartialEq>(w: &mut Warp, i: &Inst) {
    // SAFETY: `a` is a row of T and `d` one of u32 (`decode`).
    unsafe {
        let a = *w.row::<[T; 32]>(i.a);
        let d = w.row::<u32>(i.d);
        for l in lanes(w.mask) {
            *d.add(l) = lanes(w.mask).filter(|&k| a[k] == a[l]).fold(0, |mask, k| mask | 1 << k);
        }
    }
}

/// `match.all.sync`: the mask if all values are the same, otherwise 0; the predicate is true if they are.
pub(crate) unsafe fn match_all<T: Copy + PartialEq>(w: &mut Warp, i: &Inst) {
    // SAFETY: `a` is a row of T, `d` one of u32, `d2` a predicate or nothing (`decode`).
    unsafe {
        let a = *w.row::<[T; 32]>(i.a);
        let first = w.mask.trailing_zeros() as usize;
        let same = lanes(w.mask).all(|l| a[l] == a[first & 31]);
        splat(w, i, if same { w.mask } else { 0 });
        if i.d2.is_some() {
            w.set_predicate(i.d2, if same { u32::MAX } else { 0 });
        }
    }
}

/// The handler of a `redux.sync` and its flags: 0 add, 1 min, 2 max, 3 and, 4 or, 5 xor; 8 when signed.
pub(crate) fn redux(op: &Opcode<'_>) -> Option<(Handler, u32)> {
    let signed = match op.ty() {
        "s32" => 8,
        "u32" | "b32" => 0,
        _ => return None,
    };
    let at = ["add", "min", "max", "and", "or", "xor"]
        .iter()
        .position(|n| op.modifiers.get(1) == Some(n))?;
    Some((redux_run, at as u32 | signed))
}

unsafe fn redux_run(w: &mut Warp, i: &Inst) {
    // SAFETY: the operands are rows of u32 (`decode`).
    unsafe {
        let a = *w.row::<[u32; 32]>(i.a);
        let values = lanes(w.mask).map(|l| a[l]);
        let result = values.reduce(|x, y| match i.flags {
            0 | 8 => x.wrapping_add(y),
            1 => x.min(y),
            2 => x.max(y),
            9 => (x as i32).min(y as i32) as u32,
            10 => (x as i32).max(y as i32) as u32,
            3 | 11 => x & y,
            4 | 12 => x | y,
            _ => x ^ y,
        });
        splat(w, i, result.unwrap_or(0));
    }
}

/// `elect.sync`: the lowest lane.
pub(crate) unsafe fn elect(w: &mut Warp, i: &Inst) {
    // SAFETY: `d` is a row of u32, `d2` a predicate or nothing (`decode`).
    unsafe {
        let first = w.mask.trailing_zeros();
        splat(w, i, first);
        if i.d2.is_some() {
            w.set_predicate(i.d2, 1 << (first & 31));
        }
    }
}

/// `activemask`: the lanes that are here.
pub(crate) unsafe fn active_mask(w: &mut Warp, i: &Inst) {
    // SAFETY: `d` is a row of u32 (`decode`).
    unsafe { splat(w, i, w.mask) }
}

/// A function that could not be decoded.
pub(crate) unsafe fn refused(w: &mut Warp, i: &Inst) {
    let lane = w.mask.trailing_zeros() as usize;
    let message = w.env().code.refusals[i.imm as usize].clone();
    w.fail(FaultKind::Unsupported, lane, message);
}

pub(crate) unsafe fn trap(w: &mut Warp, _: &Inst) {
    let lane = w.mask.trailing_zeros() as usize;
    w.fail(FaultKind::Trap, lane, "trap".to_string());
}

/// `fence.proxy.async`: asynchronous operations are carried out in the order of the program, so that only the checker minds.
pub(crate) unsafe fn proxy_fence(w: &mut Warp, _: &Inst) {
    if let Some(mut observer) = w.observer {
        // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
        unsafe { observer.as_mut() }.proxy_fence(w);
    }
}

/// `membar` and `fence`. Warps of a block share a thread of the host; for blocks on other threads the processor's fence orders.
pub(crate) unsafe fn fence(w: &mut Warp, _: &Inst) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    if let Some(mut observer) = w.observer {
        // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
        unsafe { observer.as_mut() }.fence(w);
    }
}
