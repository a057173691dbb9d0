//! The state of a running kernel: instructions, warps, accesses, and the interfaces of those who watch it.
//!
//! Decoding makes the instructions, `exec` runs them, `check` and `count` observe them; all of them build on these types and not on one
//! another.

mod access;
mod copies;
mod flow;
mod lanes;
mod mbarriers;
mod observer;
mod products;
mod slot;
mod warp;

pub(crate) use access::{Access, AccessKind, ORDERED, Pattern, STORED, Space, access_flags, access_kind, with_kind};
pub(crate) use copies::Copy;
pub(crate) use flow::{CallSite, Frame, FrameState, Group, Kind, State};
pub(crate) use lanes::lanes;
pub(crate) use mbarriers::{Bulk, MOST as MOST_ARRIVALS, Mbarrier, Mbarriers, Run};
pub(crate) use observer::{Both, LaunchObserver, MakeChecker};
pub(crate) use slot::{LaunchConstant, Line, Slot};
pub(crate) use warp::{Code, Env, Handler, Inst, Locate, Observer, Origin, ProductRead, RECENT, Warp};
