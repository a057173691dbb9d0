//! The shape of a launch.

use std::fmt;

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks along x, y and z; none may be zero.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

impl Geometry {
    /// As many blocks of `threads` as cover `n` elements along x, at least one, without dynamic shared memory.
    pub fn linear(n: u32, threads: u32) -> Self {
        Self {
            grid: [n.div_ceil(threads.max(1)).max(1), 1, 1],
            block: [threads.max(1), 1, 1],
            shared: 0,
        }
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        write!(
            f,
            "grid {gx}x{gy}x{gz}, block {bx}x{by}x{bz}, {} bytes of shared memory",
            self.shared
        )
    }
}
