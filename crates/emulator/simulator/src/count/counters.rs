//! The counters of a launch.

/// The counts of one launch: instructions, loop trips, and accesses to memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Its blocks.
    pub blocks: u64,
    /// Warps of a block.
    pub warps: u64,
    /// The blocks that a device holds at one time: a wave.
    pub wave: u64,
    /// Statements of the PTX that warps carried out.
    pub instructions: u64,
    /// The sum over these of the lanes that were there.
    pub active_lanes: u64,
    /// The sum over these of the lanes whose guard held.
    pub enabled_lanes: u64,
    /// Branches that warps carried out.
    pub branches: u64,
    /// Those that some lanes took and others did not.
    pub split_branches: u64,
    /// The different lines of 128 bytes that a block reads.
    pub block_lines_read: Spread,
    /// The different lines of 128 bytes that a block writes.
    pub block_lines_written: Spread,
    /// Those that a wave of blocks reads.
    pub wave_lines_read: Spread,
    /// Those that a wave of blocks writes.
    pub wave_lines_written: Spread,
    /// Those that the launch reads.
    pub lines_read: u64,
    /// Those that the launch writes.
    pub lines_written: u64,
    /// The loops that ran, in the order of the code.
    pub loops: Vec<Loop>,
    /// The instructions that accessed global or shared memory, in the order of the code.
    pub accesses: Vec<Access>,
    /// The instructions that waited for copies of `cp.async`, in the order of the code.
    pub waits: Vec<Wait>,
}

/// Numbers of several blocks, warps or waves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How many numbers there are.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The least; 0 if there are none.
    pub min: u64,
    /// The largest; 0 if there are none.
    pub max: u64,
}

impl Spread {
    pub(super) fn add(&mut self, n: u64) {
        self.join(&Spread {
            count: 1,
            sum: n,
            min: n,
            max: n,
        });
    }

    pub(super) fn join(&mut self, other: &Spread) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }
}

/// An instruction of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The line of the PTX text.
    pub line: u32,
    /// The opcode with its modifiers.
    pub opcode: String,
    /// The file of the source, if the PTX says.
    pub file: String,
    /// The line of the source, or 0.
    pub source_line: u32,
    /// The innermost loop around it, an index of [`Counters::loops`].
    pub inside: Option<usize>,
}

/// The code from the target of a branch that goes back to that branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loop {
    /// The label that the branch goes back to, or nothing.
    pub label: String,
    /// The branch, and the loop around this one.
    pub place: Place,
    /// How often each warp that came to the branch carried it out: its trips through the loop.
    pub trips: Spread,
    /// Of all these, how often a lane went back.
    pub taken: u64,
    /// Statements that warps carried out in this loop and in none inside of it.
    pub instructions: u64,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessClass {
    /// A load.
    Load,
    /// A store.
    Store,
    /// `cp.async`: it reads global memory and writes shared memory.
    Copy,
    /// An atomic operation.
    Atomic,
}

/// Sectors, lines and wavefronts of the accesses of one instruction to one kind of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The instruction.
    pub place: Place,
    /// True for shared memory, false for global memory.
    pub shared: bool,
    /// The kind.
    pub class: AccessClass,
    /// The numbers.
    pub traffic: Traffic,
}

/// Requests, each an instruction of one warp, and what they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests.
    pub requests: u64,
    /// Sectors of 32 bytes of global memory, or wavefronts of shared memory.
    pub parts: u64,
    /// The fewest that the same bytes, or as many lanes, could take.
    pub minimum: u64,
    /// The different bytes that each request asked for.
    pub bytes: u64,
}

impl Traffic {
    pub(super) fn join(&mut self, other: &Traffic) {
        self.requests += other.requests;
        self.parts += other.parts;
        self.minimum += other.minimum;
        self.bytes += other.bytes;
    }
}

/// Waits of one instruction for copies of `cp.async`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The instruction.
    pub place: Place,
    /// Bytes that a warp had issued and not waited for, at each wait.
    pub under_way: Spread,
    /// Those that it left under way.
    pub left: Spread,
}
