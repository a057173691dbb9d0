//! A kernel's figures.

use crate::counts::Counts;
use crate::disassembler::{Disassembler, Error};
use crate::flow::Graph;
use crate::listing::{self, Function};
use crate::occupancy::Limits;
use crate::path;
use crate::ptxas::{All, Spills};
use kiln_ptx::cubin::{self, Resources};
use kiln_ptx::fatbin;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// The machine code of one kernel for one architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// The architecture, ten times the compute capability.
    pub arch: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's stack frame in local memory.
    pub stack: u32,
    /// Registers that were spilled; `None` if there is no log of `ptxas -v`.
    pub spills: Option<Spills>,
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Threads of a block, the most that the kernel takes (`__launch_bounds__`); 0 if it does not say.
    pub threads: u32,
    /// Blocks of that many threads that an SM holds at a time; `None` if the threads or the architecture's limits are not known.
    pub blocks: Option<u32>,
    /// The warps of those blocks.
    pub warps: Option<u32>,
    /// Instructions, functions that it calls among them.
    pub instructions: u32,
    /// The fast way from its beginning to its end, each loop passed once.
    pub path: Counts,
    /// Its loops, in the order of their heads.
    pub loops: Vec<Loop>,
}

/// A loop of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// The address of its head, in bytes from the beginning of the kernel.
    pub head: u32,
    /// The loops around it, itself among them.
    pub depth: u32,
    /// True if no other loop lies inside it.
    pub innermost: bool,
    /// True for the loop that the kernel's work is done in: see [`Kernel::main_loop`].
    pub main: bool,
    /// Its instructions on all ways through it.
    pub instructions: u32,
    /// One turn of one warp on the fast way, without what belongs to loops inside it.
    pub path: Counts,
}

impl Kernel {
    /// The loop that the work is done in: of all, the one whose own fast way has the most tensor-core products; if none has
    /// any, the most multiply-adds where they are at least half of what is issued; if none has, the most bytes of global memory
    /// moved, those in accesses of 16 bytes before others. Of equals, the innermost, and of those the one that issues least. `None` if no
    /// loop has any of these.
    pub fn main_loop(&self) -> Option<&Loop> {
        self.loops.iter().find(|l| l.main)
    }

    /// Instructions issued in the main loop, or on the way through the kernel if there is none.
    pub fn work(&self) -> &Counts {
        self.main_loop().map_or(&self.path, |l| &l.path)
    }
}

/// The kernels of an image, for an architecture that it has machine code for, by their names.
///
/// # Errors
/// [`Error`] if the image has no machine code for this architecture, nvdisasm fails or its listing cannot be read.
pub fn kernels(image: &[u8], arch: u32, spills: &All, tool: &Disassembler) -> Result<Vec<Kernel>, Error> {
    let code = fatbin::cubin(image, arch).filter(|code| cubin::architecture(code) == Some(arch));
    let code = code.ok_or(Error::NoCode { arch })?;
    let text = tool.listing(&code)?;
    let functions = listing::parse(&text).map_err(Error::Listing)?;
    let resources = cubin::resources(&code);
    let mut kernels: Vec<Kernel> = functions
        .iter()
        .map(|function| {
            let of = resources.get(function.name).copied().unwrap_or_default();
            let spilled = spills.get(&(arch, function.name.to_string())).copied();
            kernel(function, arch, &of, spilled)
        })
        .collect();
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(kernels)
}

/// The figures of one function of a listing.
pub fn kernel(function: &Function<'_>, arch: u32, resources: &Resources, spills: Option<Spills>) -> Kernel {
    let code = &function.instructions;
    let graph = Graph::new(code);
    let innermost = graph.innermost();
    let mut loops: Vec<Loop> = Vec::new();
    for (l, looped) in graph.loops.iter().enumerate() {
        let mut way = path::through_loop(&graph, code, looped);
        way.retain(|block| innermost[*block] == Some(l));
        loops.push(Loop {
            head: code[graph.blocks[looped.head].start].address,
            depth: looped.depth as u32,
            innermost: !looped.nested,
            main: false,
            instructions: looped.body.iter().map(|b| graph.blocks[*b].len() as u32).sum(),
            path: path::counts(&graph, code, &way),
        });
    }
    if let Some(main) = main(&loops) {
        loops[main].main = true;
    }
    loops.sort_by_key(|l| l.head);
    let limits = Limits::of(arch).filter(|_| resources.max_threads > 0);
    let of_block = (resources.registers, resources.shared, resources.max_threads);
    let blocks = limits.map(|l| l.resident_blocks(of_block.0, of_block.1, of_block.2));
    Kernel {
        name: function.name.to_string(),
        arch,
        registers: resources.registers,
        stack: resources.local,
        spills,
        shared: resources.shared,
        threads: resources.max_threads,
        blocks,
        warps: blocks.map(|blocks| blocks * resources.max_threads.div_ceil(32)),
        instructions: code.len() as u32,
        path: path::counts(&graph, code, &path::through_function(&graph, code)),
        loops,
    }
}

/// The place of the loop that the work is done in.
fn main(loops: &[Loop]) -> Option<usize> {
    let rank = |l: &Loop| {
        let path = &l.path;
        let dense = if 2 * path.ffma >= path.issued { path.ffma } else { 0 };
        (
            path.hmma + path.wgmma,
            dense,
            path.bytes(16),
            path.bytes(0),
            l.depth,
            Reverse(path.issued),
        )
    };
    let best = (0..loops.len()).max_by_key(|l| rank(&loops[*l]))?;
    let (products, dense, _, bytes, ..) = rank(&loops[best]);
    (products + dense + bytes > 0).then_some(best)
}
