//! The way through code that a warp takes when all goes well.
//!
//! Kernels have a fast way and slow ones: rows that do not lie on 16 bytes, the end of a row, the edge of a matrix. Which one is taken
//! depends on the data. The fast way is told by what it does: of all ways from the first block to a last one, it has the most tensor-core
//! products, then moves the most bytes of global memory in accesses of 16 bytes, then the most bytes at all, and then has the fewest
//! instructions. Jumps back are not taken, so each loop on the way is passed once at most.
//!
//! That is a rule for telling, not a proof: where two branches depend on each other it may find a way that no data takes.

use crate::counts::Counts;
use crate::flow::{Graph, NaturalLoop};
use crate::listing::Instruction;

/// The rank of a way: tensor-core products, bytes in accesses of 16, bytes, and instructions, of which fewer are better.
type Rank = (u32, u32, u32, i64);

/// The blocks of the fast way through a loop, from its head to a jump back to it.
pub fn through_loop(graph: &Graph, instructions: &[Instruction<'_>], looped: &NaturalLoop) -> Vec<usize> {
    let ends = |block: usize| graph.next[block].contains(&looped.head);
    best(graph, instructions, &looped.body, ends)
}

/// The blocks of the fast way through a function, from its first instruction to an exit.
pub fn through_function(graph: &Graph, instructions: &[Instruction<'_>]) -> Vec<usize> {
    let all: Vec<usize> = (0..graph.blocks.len()).collect();
    // A conditional exit in the midst of a function is its slow way out.
    let ends = |block: usize| graph.next[block].is_empty();
    best(graph, instructions, &all, ends)
}

/// The best way over `body`, whose first block it begins with, to a block that `ends`.
fn best(graph: &Graph, instructions: &[Instruction<'_>], body: &[usize], ends: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut reached: Vec<Option<(Rank, usize)>> = vec![None; graph.blocks.len()];
    let mut end: Option<(Rank, usize)> = None;
    for block in body {
        let ways = graph.before[*block].iter().filter(|b| *b < block);
        let way = ways.filter_map(|b| reached[*b].map(|(rank, _)| (rank, *b))).max();
        let (so_far, from) = match way {
            Some(way) => way,
            None if Some(block) == body.first() => (Rank::default(), *block),
            None => continue,
        };
        let own = rank(graph, instructions, *block);
        let rank = (so_far.0 + own.0, so_far.1 + own.1, so_far.2 + own.2, so_far.3 + own.3);
        reached[*block] = Some((rank, from));
        if ends(*block) {
            end = end.max(Some((rank, *block)));
        }
    }
    let mut way = Vec::new();
    let mut at = end.map(|(_, block)| block);
    while let Some(block) = at {
        way.push(block);
        at = reached[block].map(|(_, from)| from).filter(|from| *from != block);
    }
    way.reverse();
    way
}

fn rank(graph: &Graph, instructions: &[Instruction<'_>], block: usize) -> Rank {
    let counts = counts(graph, instructions, &[block]);
    (
        counts.hmma + counts.wgmma,
        counts.bytes(16),
        counts.bytes(0),
        -i64::from(counts.issued),
    )
}

/// Instructions issued in these blocks.
pub fn counts(graph: &Graph, instructions: &[Instruction<'_>], blocks: &[usize]) -> Counts {
    let mut counts = Counts::default();
    for block in blocks {
        instructions[graph.blocks[*block].clone()]
            .iter()
            .for_each(|i| counts.add(i));
    }
    counts
}
