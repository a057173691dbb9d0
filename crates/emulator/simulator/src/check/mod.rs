//! The checker: it finds races and uninitialised reads.
//!
//! `order` says which accesses of a block come before others, `shared` and `global` remember the last accesses of each
//! few bytes, `local` the bytes that each thread wrote for itself, `block` brings them together, `report` words the
//! findings, `findings` keeps one of each until the launch ends, and `product` follows what `wgmma` reads and `cp.async.bulk` writes.
//!
//! The interpreter calls an [`Observer`] of each block, and only in checker mode: without it memory instructions have
//! other handlers, and the calls of rare instructions are behind one test. Everything that needs no history
//! is checked by the interpreter itself: addresses, divergent barriers, warp-wide instructions with wrong masks.

mod block;
mod findings;
mod global;
mod local;
mod order;
mod pending;
mod product;
mod report;
mod shared;

use crate::machine::{Env, LaunchObserver};

/// The checker of a launch. `env.ranges` are the allocations, with the shadow of each.
pub(crate) fn launch_checker(env: &Env<'_>) -> Box<dyn LaunchObserver> {
    Box::new(block::Checker::new(env))
}
