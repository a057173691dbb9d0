//! Accesses to memory, as the checker sees them.

pub(crate) use kiln_ptx::Space;

/// The kind of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Load,
    Store,
    /// A read and a write that no other atomic access comes between.
    Atomic,
    /// A plain read at an address where the function also compares and swaps: its value is a first guess, which the
    /// comparison confirms or refutes, so it may race with atomic accesses.
    Guess,
    /// `ld.volatile`, `ld.relaxed`, `ld.acquire`: a read that may race.
    StrongLoad,
    /// `st.volatile`, `st.relaxed`, `st.release`: a write that may race.
    StrongStore,
    /// The write of a `cp.async`, when it is issued. The bytes change at its wait.
    AsyncStore,
}

/// One access of a warp; it was found in bounds and aligned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    pub(crate) kind: AccessKind,
    /// The state space of the addresses: never `Generic`, which is split by the spaces that the lanes' addresses lie in.
    pub(crate) space: Space,
    /// The lanes that take part.
    pub(crate) mask: u32,
    /// Bytes of each lane.
    pub(crate) size: u32,
    /// Host addresses for global memory, offsets into the block's shared memory, offsets into the lane's local memory.
    /// Only those of the lanes in `mask` mean anything.
    pub(crate) addresses: &'a [u64; 32],
}

/// The pattern of the lanes' addresses of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// No pattern, or not all lanes take part.
    Scattered,
    /// All lanes: each right after the lane before.
    Contiguous,
    /// All lanes at one address.
    Uniform,
}

/// The bit in an access's flags that says that it orders others: acquire, release or both.
pub(crate) const ORDERED: u32 = 1 << 12;
/// The first of the bits in a store's flags that hold the bytes of one source register.
pub(crate) const STORED: u32 = 20;

/// The size of an access is in the low byte of an instruction's flags; its kind is in the next four bits.
pub(crate) fn access_flags(size: u32, kind: AccessKind) -> u32 {
    let kind = match kind {
        AccessKind::Load => 0,
        AccessKind::Store => 1,
        AccessKind::Atomic => 2,
        AccessKind::StrongLoad => 3,
        AccessKind::StrongStore => 4,
        AccessKind::AsyncStore => 5,
        AccessKind::Guess => 6,
    };
    size | kind << 8
}

/// The flags of the same access with another kind.
pub(crate) fn with_kind(flags: u32, kind: AccessKind) -> u32 {
    flags & !0xf00 | access_flags(0, kind)
}

/// The kind of an access, from its flags.
pub(crate) fn access_kind(flags: u32) -> AccessKind {
    match flags >> 8 & 15 {
        0 => AccessKind::Load,
        1 => AccessKind::Store,
        2 => AccessKind::Atomic,
        3 => AccessKind::StrongLoad,
        4 => AccessKind::StrongStore,
        6 => AccessKind::Guess,
        _ => AccessKind::AsyncStore,
    }
}
