//! The products of warpgroups that are under way.

/// A product that nothing has waited for.
#[derive(Debug)]
pub(super) struct Product {
    pub(super) warpgroup: u32,
    /// The group that it was committed in, or will be.
    pub(super) group: u32,
    pub(super) issued: u32,
    /// The offsets of the 16 bytes each that it reads.
    pub(super) reads: Vec<u32>,
}
