//! Special registers, and the addresses of local variables.

use std::time::{SystemTime, UNIX_EPOCH};

use super::lanes::{Plan, Ty};
use crate::machine::{Inst, Warp, lanes};

/// Special registers by name; the index here is the instruction's flags.
const NAMES: [&str; 36] = [
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
    "%laneid",
    "%warpid",
    "%nwarpid",
    "%lanemask_eq",
    "%lanemask_lt",
    "%lanemask_le",
    "%lanemask_gt",
    "%lanemask_ge",
    "%clock",
    "%clock_hi",
    "%smid",
    "%nsmid",
    "%gridid_lo",
    "%dynamic_smem_size",
    "%total_smem_size",
    "%globaltimer_lo",
    "%globaltimer_hi",
    "%clusterid.x",
    "%nclusterid.x",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%clock64",
    "%globaltimer",
    "%gridid",
];
const FIRST_WIDE: usize = 33;

/// The plan that reads a special register, if the name is one.
pub(crate) fn select(name: &str) -> Option<Plan> {
    let register = name.strip_prefix("%envreg").and_then(|n| n.parse::<u32>().ok());
    if let Some(n) = register.filter(|n| *n < 32) {
        return Some(Plan::new(environment, Some(Ty::B32), &[]).flags(n));
    }
    let at = NAMES.iter().position(|n| *n == name)?;
    let plan = if at < FIRST_WIDE {
        Plan::new(read, Some(Ty::B32), &[])
    } else {
        Plan::new(read_wide, Some(Ty::B64), &[])
    };
    Some(plan.flags(at as u32))
}

fn nanoseconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64)
}

/// A clock that always advances: the machine's, at a nanosecond a tick.
fn ticks() -> u64 {
    nanoseconds()
}

unsafe fn read(w: &mut Warp, i: &Inst) {
    let env = w.env();
    // SAFETY: the destination is a row of u32 (`select`).
    let d = unsafe { w.row::<u32>(i.d) };
    let one = match i.flags {
        0..=2 => {
            let tid = w.tid[i.flags as usize];
            for l in lanes(w.mask) {
                // SAFETY: as above.
                unsafe { *d.add(l) = tid[l] };
            }
            return;
        }
        3..=5 => env.block[i.flags as usize - 3],
        6..=8 => w.block[i.flags as usize - 6],
        9..=11 => env.grid[i.flags as usize - 9],
        12 | 15..=19 => {
            for l in lanes(w.mask) {
                let bit = 1u32 << l;
                let value = match i.flags {
                    12 => l as u32,
                    15 => bit,
                    16 => bit - 1,
                    17 => bit | (bit - 1),
                    18 => !(bit | (bit - 1)),
                    _ => !(bit - 1),
                };
                // SAFETY: as above.
                unsafe { *d.add(l) = value };
            }
            return;
        }
        13 => w.index,
        14 => (env.block[0] * env.block[1] * env.block[2]).div_ceil(32),
        20 => ticks() as u32,
        21 => (ticks() >> 32) as u32,
        22 => w.block[0] % env.multiprocessors.max(1),
        23 => env.multiprocessors,
        24 => env.serial as u32,
        25 => env.dynamic_shared,
        26 => env.shared,
        27 => nanoseconds() as u32,
        28 => (nanoseconds() >> 32) as u32,
        29 => w.block[0],
        30 => env.grid[0],
        31 => 0,
        _ => 1,
    };
    for l in lanes(w.mask) {
        // SAFETY: as above.
        unsafe { *d.add(l) = one };
    }
}

/// `%envreg0` to `%envreg31` are the driver's: the first two after the first hold the address of a cooperative launch's
/// workspace, the high half first.
unsafe fn environment(w: &mut Warp, i: &Inst) {
    let workspace = w.env().workspace;
    let value = match i.flags {
        1 => (workspace >> 32) as u32,
        2 => workspace as u32,
        _ => 0,
    };
    for l in lanes(w.mask) {
        // SAFETY: the destination is a row of u32 (`select`).
        unsafe { *w.row::<u32>(i.d).add(l) = value };
    }
}

unsafe fn read_wide(w: &mut Warp, i: &Inst) {
    let value = match i.flags {
        33 => ticks(),
        34 => nanoseconds(),
        _ => w.env().serial,
    };
    for l in lanes(w.mask) {
        // SAFETY: the destination is a row of u64 (`select`).
        unsafe { *w.row::<u64>(i.d).add(l) = value };
    }
}

/// The offset of a local variable: `imm` bytes after the start of the frame's local memory.
pub(crate) fn local_address() -> Plan {
    Plan::new(frame_local, Some(Ty::B64), &[])
}

unsafe fn frame_local(w: &mut Warp, i: &Inst) {
    let address = u64::from(w.frames[w.group.frame as usize].local).wrapping_add(i.imm as u64);
    for l in lanes(w.mask) {
        // SAFETY: the destination is a row of u64 (above).
        unsafe { *w.row::<u64>(i.d).add(l) = address };
    }
}
