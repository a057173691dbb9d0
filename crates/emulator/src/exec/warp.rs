//! A warp: 32 lanes, their registers, and the groups of lanes that stand at the same instruction.

use std::ptr;

use super::async_copy::Copies;
use super::grid::Env;
use super::inst::{Inst, Line, Slot};
use crate::check::Observer;
use crate::{Fault, FaultKind};

/// Lanes that stand at one pc of one frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    pub(crate) frame: u32,
    pub(crate) depth: u32,
    pub(crate) state: State,
}

/// What a group waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing: it can run.
    #[default]
    Ready,
    /// The barrier of the block with this number; its pc is the barrier's.
    Barrier(u32),
    /// The other lanes of their member masks, at the same instruction.
    Together,
    /// The other lanes of this mask, at any `bar.warp.sync`.
    WarpBarrier(u32),
}

/// One activation of a function.
#[derive(Debug, Default)]
pub(crate) struct FrameState {
    pub(crate) registers: Vec<Line>,
    pub(crate) function: u32,
    pub(crate) parent: u32,
    pub(crate) return_pc: u32,
    pub(crate) depth: u32,
    /// The call in `Code::calls`.
    pub(crate) site: u32,
    /// Where its local memory starts in each lane's.
    pub(crate) local: u32,
    /// The lanes inside; a frame without lanes is free.
    pub(crate) mask: u32,
}

/// How the lanes' addresses of an access lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Anyhow, or not all lanes take part.
    Scattered,
    /// All lanes: each right after the lane before.
    Contiguous,
    /// All lanes at one address.
    Uniform,
}

/// How many ranges a warp remembers: instructions that alternate between arrays each find theirs.
pub(crate) const RECENT: usize = 32;

/// See the module.
pub(crate) struct Warp {
    /// The registers of the frame of `group`.
    pub(crate) registers: *mut u8,
    pub(crate) constants: *const u8,
    /// The lanes that the instruction in progress works on.
    pub(crate) mask: u32,
    /// A bit for each lane: the carry flag.
    pub(crate) carry: u32,
    /// The pc of the instruction in progress.
    pub(crate) pc: u32,
    /// The loop looks at the groups again when its pc reaches this.
    pub(crate) merge_pc: u32,
    pub(crate) group: Group,
    pub(crate) groups: Vec<Group>,
    /// Lanes that exist and have not exited.
    pub(crate) live: u32,
    /// Lanes that exist.
    pub(crate) lanes: u32,
    pub(crate) index: u32,
    pub(crate) frames: Vec<FrameState>,
    /// Taken branches until others get a turn.
    pub(crate) fuel: u32,
    /// It has read, by an atomic, volatile or ordered access, what other blocks may write.
    pub(crate) polled: bool,
    /// Divergent lanes got a turn although they were not the lowest.
    pub(crate) rotate: bool,
    pub(crate) env: *const Env<'static>,
    pub(crate) shared: *mut u8,
    pub(crate) shared_len: u64,
    pub(crate) block: [u32; 3],
    pub(crate) tid: [[u32; 32]; 3],
    /// Each lane's bytes follow those of the lane before.
    pub(crate) local: Vec<Line>,
    pub(crate) local_stride: u64,
    /// The host addresses that `locate` found.
    pub(crate) pointers: [u64; 32],
    pub(crate) pattern: Pattern,
    /// The start and the length of the ranges that instructions hit last, by their pcs.
    pub(crate) recent: [(u64, u64); RECENT],
    pub(crate) copies: Copies,
    pub(crate) fault: Option<Box<Fault>>,
    /// The checker of the block, in checker mode.
    pub(crate) observer: Option<ptr::NonNull<dyn Observer>>,
}

// SAFETY: the pointers of a warp lead into its own vectors, or into the block and launch that run it on one thread;
// between launches nothing follows them.
unsafe impl Send for Warp {}

impl Warp {
    pub(crate) fn new(index: u32) -> Warp {
        Warp {
            registers: ptr::null_mut(),
            constants: ptr::null(),
            mask: 0,
            carry: 0,
            pc: 0,
            merge_pc: u32::MAX,
            group: Group::default(),
            groups: Vec::with_capacity(8),
            live: 0,
            lanes: 0,
            index,
            frames: vec![FrameState::default()],
            fuel: 0,
            polled: false,
            rotate: false,
            env: ptr::null(),
            shared: ptr::null_mut(),
            shared_len: 0,
            block: [0; 3],
            tid: [[0; 32]; 3],
            local: Vec::new(),
            local_stride: 0,
            pointers: [0; 32],
            pattern: Pattern::Scattered,
            recent: [(0, 0); RECENT],
            copies: Copies::default(),
            fault: None,
            observer: None,
        }
    }

    /// The launch that the warp runs in.
    #[inline(always)]
    pub(crate) fn env(&self) -> &'static Env<'static> {
        // SAFETY: `prepare` sets it to the launch's environment, which outlives the run of its blocks; the reference
        // is used within one handler.
        unsafe { &*self.env }
    }

    /// The 32 values of an operand.
    ///
    /// # Safety
    /// `slot` is a row of `T` in the current frame or in the constants; constants are only read.
    #[inline(always)]
    pub(crate) unsafe fn row<T>(&self, slot: Slot) -> *mut T {
        let base = if slot.0 >> 31 == 0 {
            self.registers
        } else {
            self.constants.cast_mut()
        };
        // SAFETY: the caller's.
        unsafe { base.add((slot.0 & 0x7fff_ffff) as usize).cast() }
    }

    /// The value of a predicate, a bit for each lane.
    ///
    /// # Safety
    /// `slot` is a predicate of the current frame or the constants.
    #[inline(always)]
    pub(crate) unsafe fn predicate(&self, slot: Slot) -> u32 {
        // SAFETY: the caller's.
        unsafe { *self.row::<u32>(slot) }
    }

    /// Sets the active lanes' bits of a predicate.
    ///
    /// # Safety
    /// `slot` is a predicate of the current frame.
    #[inline(always)]
    pub(crate) unsafe fn set_predicate(&mut self, slot: Slot, value: u32) {
        // SAFETY: the caller's.
        unsafe {
            let p = self.row::<u32>(slot);
            *p = *p & !self.mask | value & self.mask;
        }
    }

    /// The thread's index in its block.
    pub(crate) fn thread(&self, lane: usize) -> [u32; 3] {
        [self.tid[0][lane], self.tid[1][lane], self.tid[2][lane]]
    }

    /// Records what went wrong at the instruction in progress, and stops the warp.
    #[cold]
    pub(crate) fn fail(&mut self, kind: FaultKind, lane: usize, message: String) {
        self.fail_at(kind, lane, message, self.pc);
    }

    /// Records what went wrong at `pc`, and stops the warp.
    #[cold]
    pub(crate) fn fail_at(&mut self, kind: FaultKind, lane: usize, message: String, pc: u32) {
        self.merge_pc = 0;
        if self.fault.is_some() {
            return;
        }
        self.fault = Some(self.describe(kind, lane, message, pc));
    }

    /// What went wrong at `pc`, for a lane of this warp.
    #[cold]
    pub(crate) fn describe(&self, kind: FaultKind, lane: usize, message: String, pc: u32) -> Box<Fault> {
        let env = self.env();
        let (file, line) = env.code.source(pc);
        let message = match env.code.header(pc) {
            Some((header, line)) => format!("{message} (in {}:{line})", header.rsplit('/').next().unwrap_or(&header)),
            None => message,
        };
        Box::new(Fault {
            kind,
            kernel: env.name.to_string(),
            file,
            line,
            block: self.block,
            thread: self.thread(lane.min(31)),
            message,
        })
    }

    /// The slots of an instruction's list.
    #[inline(always)]
    pub(crate) fn list(&self, inst: &Inst) -> &'static [Slot] {
        let (start, len) = inst.list;
        &self.env().code.lists[start as usize..(start + len) as usize]
    }

    /// Where the local memory of a lane starts on the host.
    #[inline(always)]
    pub(crate) fn local_base(&mut self, lane: usize) -> *mut u8 {
        // SAFETY: `local` holds `local_stride` bytes for each of 32 lanes (`reserve_local`).
        unsafe {
            self.local
                .as_mut_ptr()
                .cast::<u8>()
                .add(lane * self.local_stride as usize)
        }
    }

    /// Gives each lane at least `bytes` of local memory, and keeps what is there.
    pub(crate) fn reserve_local(&mut self, bytes: u64) {
        if bytes <= self.local_stride {
            return;
        }
        let (old, stride) = (std::mem::take(&mut self.local), self.local_stride as usize);
        let new_stride = (bytes.next_multiple_of(64)).max(2 * self.local_stride);
        let lines = (new_stride as usize / 64) * 32;
        self.local = vec![Line([0; 64]); lines];
        self.local_stride = new_stride;
        for lane in 0..32 {
            let from = &old[lane * stride / 64..(lane + 1) * stride / 64];
            let at = lane * new_stride as usize / 64;
            self.local[at..at + from.len()].copy_from_slice(from);
        }
    }
}
