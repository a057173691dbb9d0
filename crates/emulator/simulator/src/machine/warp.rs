//! A warp, the instructions that it runs, and the observer of its accesses.
//!
//! They are one file because each is made of the others: an instruction holds the function that runs it on a warp, a warp
//! leads to the code of its launch, and to an observer where there is one, which looks at the warp.

use std::ptr;

use kiln_ptx::Place;

use super::access::{Access, Pattern};
use super::copies::Copies;
use super::flow::{CallSite, Frame, FrameState, Group, Kind};
use super::mbarriers::Mbarriers;
use super::products::Products;
use super::slot::{LaunchConstant, Line, Slot};
use crate::memory::Snapshot;
use crate::{Fault, FaultKind, System};

/// The function that runs an instruction on the active lanes of a warp.
///
/// # Safety
/// The warp's rows cover every slot of the instruction; `decode` made both from the same function.
pub(crate) type Handler = unsafe fn(&mut Warp, &Inst);

/// Fills `Warp::pointers` and `Warp::pattern`; `false` after a fault.
pub(crate) type Locate = unsafe fn(&mut Warp, &Inst) -> bool;

/// One decoded instruction.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub(crate) run: Handler,
    /// For accesses: computes and checks the lanes' addresses.
    pub(crate) locate: Locate,
    pub(crate) d: Slot,
    pub(crate) d2: Slot,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    pub(crate) e: Slot,
    /// The guard's predicate, or `NONE`.
    pub(crate) guard: Slot,
    /// All ones when the guard is negated.
    pub(crate) flip: u32,
    pub(crate) kind: Kind,
    /// The opcode's options, in its own encoding.
    pub(crate) flags: u32,
    /// An offset, a target or another number.
    pub(crate) imm: i64,
    /// A range of `Code::lists`.
    pub(crate) list: (u32, u32),
}

/// The source lines that an instruction comes from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// The line that a programmer would look at.
    pub(crate) place: Place,
    /// The line of the toolkit's header that was inlined there.
    pub(crate) header: Option<Place>,
}

/// A kernel ready to run, with every function it calls.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) insts: Vec<Inst>,
    /// The source of each instruction.
    pub(crate) places: Vec<Origin>,
    /// The line of the PTX text of each instruction.
    pub(crate) lines: Vec<u32>,
    /// The names of the source files.
    pub(crate) files: Vec<(u32, String)>,
    pub(crate) lists: Vec<Slot>,
    /// The kernel is the first.
    pub(crate) functions: Vec<Frame>,
    pub(crate) calls: Vec<CallSite>,
    /// For each indirect call: the address and the call of each function that it may reach.
    pub(crate) callees: Vec<Vec<(u64, u32)>>,
    /// Messages about functions that only indirect calls reach and that could not be decoded.
    pub(crate) refusals: Vec<String>,
    /// The constants' rows.
    pub(crate) constants: Vec<Line>,
    /// Rows (offset, bytes of a lane) to be filled at launch.
    pub(crate) launch_constants: Vec<(u32, u32, LaunchConstant)>,
    pub(crate) static_shared: u32,
    /// The alignment of dynamic shared memory in bytes: what its declarations ask for.
    pub(crate) dynamic_align: u32,
    /// True if it calls `malloc` or `free`.
    pub(crate) heap: bool,
    /// The smallest access to shared and to global memory, in bytes, and at most 4; 0 when there is none.
    pub(crate) granules: [u32; 2],
}

impl Code {
    /// The file's name and the line of an instruction; the file is empty and the line 0 where the PTX does not say.
    pub(crate) fn source(&self, pc: u32) -> (String, u32) {
        self.named(self.origin(pc).place)
    }

    /// The file's name and the line inside the toolkit's headers, for an instruction that was inlined from there.
    pub(crate) fn header(&self, pc: u32) -> Option<(String, u32)> {
        self.origin(pc).header.map(|place| self.named(place))
    }

    fn origin(&self, pc: u32) -> Origin {
        self.places.get(pc as usize).copied().unwrap_or_default()
    }

    fn named(&self, place: Place) -> (String, u32) {
        let file = self.files.iter().find(|(number, _)| *number == place.file);
        (file.map(|(_, name)| name.clone()).unwrap_or_default(), place.line)
    }
}

/// The data that all warps of a launch share.
pub(crate) struct Env<'a> {
    pub(crate) code: &'a Code,
    pub(crate) name: &'a str,
    pub(crate) constants: &'a [Line],
    pub(crate) params: &'a [u8],
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory, static and dynamic.
    pub(crate) shared: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) ranges: &'a Snapshot,
    pub(crate) system: &'a System,
    pub(crate) check: bool,
    /// True if an observer is told each access.
    pub(crate) observed: bool,
    /// True if an observer is told each instruction.
    pub(crate) stepped: bool,
    pub(crate) multiprocessors: u32,
    /// The address of a cooperative launch's workspace, or 0.
    pub(crate) workspace: u64,
    /// A number that no other launch has.
    pub(crate) serial: u64,
}

/// The observer of one block. Every call comes from the thread that runs the block, in the order of execution. The warp gives
/// `index`, `pc`, `block` and `thread(lane)`. A finding does not stop the block: accesses after it may be wrong as well.
pub(crate) trait Observer: Send {
    /// An instruction begins, where [`Env::stepped`] says so: `warp.group` has its lanes, of which `mask` pass its guard.
    fn step(&mut self, _warp: &Warp, _mask: u32) {}

    /// An access, before its bytes are read or written.
    fn access(&mut self, warp: &mut Warp, access: &Access<'_>);

    /// The lanes of `mask` each read so many bytes at so many global addresses for a `cp.async`, whose [`Observer::access`] was
    /// that of the shared memory it writes.
    fn copied(&mut self, warp: &mut Warp, mask: u32, addresses: &[u64; 32], read: &[u32; 32]);

    /// A wait for copies of `cp.async`: the warp has issued `under_way` bytes that it had not waited for before, and goes on with
    /// `left` of them.
    fn waits(&mut self, _warp: &Warp, _under_way: u64, _left: u64) {}

    /// Every thread of the block that takes part in this barrier has arrived; all are released now.
    fn barrier(&mut self);

    /// Lanes arrive at a `bar.warp.sync` with this member mask; those of `mask` are here, others may wait already.
    fn warp_barrier(&mut self, warp: &mut Warp, member: u32, mask: u32);

    /// The lanes of `mask` run a shuffle, a vote or another warp-wide instruction together.
    fn together(&mut self, warp: &mut Warp, member: u32, mask: u32);

    /// A lane begins to write shared memory by a `cp.async.bulk`, whose reads [`Observer::copied`] has told.
    fn bulk_issued(&mut self, _warp: &mut Warp, _lane: usize, _shared: u32, _size: u32) {}

    /// A thread's `cp.async`, or `cp.async.bulk`, into shared memory at this offset is complete.
    fn async_done(&mut self, thread: u32, shared: u64, size: u32, bulk: bool);

    /// Copies of a thread have arrived at an mbarrier.
    fn async_arrived(&mut self, _thread: u32) {}

    /// Lanes of a warp have seen the end of a phase of an mbarrier.
    fn phase_passed(&mut self, _warp: &mut Warp) {}

    /// A fence (`membar`, `fence`) of the active lanes.
    fn fence(&mut self, warp: &mut Warp);

    /// A fence of the active lanes between their own accesses and asynchronous ones (`fence.proxy.async`).
    fn proxy_fence(&mut self, _warp: &mut Warp) {}

    /// A product of the warpgroup that `warp` is the first of reads shared memory until the wait for the open group of its
    /// products.
    fn product(&mut self, _warp: &mut Warp, _reads: &[ProductRead]) {}

    /// The warp has waited for all of its products in the groups before this one.
    fn products_done(&mut self, _warp: &mut Warp, _complete: u32) {}

    /// The lanes of `mask` enter a function whose local memory is `len` bytes from `start` on.
    fn enter(&mut self, warp: &Warp, mask: u32, start: u32, len: u32);

    /// A call or a return copies bytes of the lanes of `mask` from one function's local memory to another's.
    fn pass(&mut self, warp: &Warp, mask: u32, from: u32, to: u32, len: u32);

    /// All threads of the block have exited, or a fault stopped them.
    fn end(&mut self);
}

/// 16 bytes of shared memory that a product of a warpgroup reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductRead {
    /// Their offset in the block's shared memory.
    pub(crate) offset: u32,
    /// A bit for each warp of the four that uses them.
    pub(crate) warps: u32,
}

/// The number of address ranges that a warp remembers: instructions that alternate between arrays each find theirs.
pub(crate) const RECENT: usize = 32;

/// A warp of 32 lanes.
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
    /// True if it has read, by an atomic, volatile or ordered access, memory that other blocks may write.
    pub(crate) polled: bool,
    /// True if divergent lanes got a turn although their pc was not the lowest.
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
    /// The start and the length of the ranges that instructions accessed last, by their pcs.
    pub(crate) recent: [(u64, u64); RECENT],
    pub(crate) copies: Copies,
    pub(crate) products: Products,
    /// The barriers in the block's shared memory.
    pub(crate) mbarriers: *mut Mbarriers,
    /// The number of events at barriers when it looked at them last.
    pub(crate) heard: u64,
    pub(crate) fault: Option<Box<Fault>>,
    /// The observer of the block, where there is one.
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
            products: Products::default(),
            mbarriers: ptr::null_mut(),
            heard: 0,
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
        // SAFETY: the caller's contract.
        unsafe { base.add((slot.0 & 0x7fff_ffff) as usize).cast() }
    }

    /// The value of a predicate, a bit for each lane.
    ///
    /// # Safety
    /// `slot` is a predicate of the current frame or the constants.
    #[inline(always)]
    pub(crate) unsafe fn predicate(&self, slot: Slot) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { *self.row::<u32>(slot) }
    }

    /// Sets the active lanes' bits of a predicate.
    ///
    /// # Safety
    /// `slot` is a predicate of the current frame.
    #[inline(always)]
    pub(crate) unsafe fn set_predicate(&mut self, slot: Slot, value: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            let p = self.row::<u32>(slot);
            *p = *p & !self.mask | value & self.mask;
        }
    }

    /// The thread's index in its block.
    pub(crate) fn thread(&self, lane: usize) -> [u32; 3] {
        [self.tid[0][lane], self.tid[1][lane], self.tid[2][lane]]
    }

    /// Records a fault of the instruction in progress, and stops the warp.
    #[cold]
    pub(crate) fn fail(&mut self, kind: FaultKind, lane: usize, message: String) {
        self.fail_at(kind, lane, message, self.pc);
    }

    /// Records a fault at `pc`, and stops the warp.
    #[cold]
    pub(crate) fn fail_at(&mut self, kind: FaultKind, lane: usize, message: String, pc: u32) {
        self.merge_pc = 0;
        if self.fault.is_some() {
            return;
        }
        self.fault = Some(self.describe(kind, lane, message, pc));
    }

    /// A fault of a lane of this warp at `pc`.
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

    /// The host address of a lane's local memory.
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

    /// Gives each lane at least `bytes` of local memory, and keeps its contents.
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
