//! The blocks of a function, and its loops.
//!
//! A loop is a natural one: a jump from a block back to a block that dominates it, and all blocks from which that jump is reached without
//! passing the one at its end, the loop's head. Loops with the same head are one. Blocks that are not reached from the function's first
//! instruction, such as the functions that it calls, belong to no loop.

use crate::listing::Instruction;
use std::ops::Range;

/// The blocks of a function that can be reached, in an order in which a block follows those before it (reverse postorder): an edge to a
/// block further on is an ordinary one, an edge to the same or an earlier block goes back.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The instructions of each block, as places in the function's list.
    pub blocks: Vec<Range<usize>>,
    /// The blocks that may follow each.
    pub next: Vec<Vec<usize>>,
    /// The blocks that may come before each.
    pub before: Vec<Vec<usize>>,
    /// The loops, by their heads.
    pub loops: Vec<NaturalLoop>,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaturalLoop {
    /// The block that every way into the loop passes.
    pub head: usize,
    /// Its blocks in order, those of loops inside it among them.
    pub body: Vec<usize>,
    /// The loops around it: 1 for an outermost loop.
    pub depth: usize,
    /// True if another loop lies inside it.
    pub nested: bool,
}

impl NaturalLoop {
    /// True if a block is in the loop.
    pub fn contains(&self, block: usize) -> bool {
        self.body.binary_search(&block).is_ok()
    }
}

impl Graph {
    /// Cuts a function into blocks and finds its loops.
    pub fn new(instructions: &[Instruction<'_>]) -> Graph {
        let (raw, edges) = cut(instructions);
        let order = reverse_postorder(&edges);
        let mut place = vec![usize::MAX; raw.len()];
        for (i, block) in order.iter().enumerate() {
            place[*block] = i;
        }
        let blocks: Vec<Range<usize>> = order.iter().map(|b| raw[*b].clone()).collect();
        let next: Vec<Vec<usize>> = order
            .iter()
            .map(|b| edges[*b].iter().map(|n| place[*n]).collect())
            .collect();
        let mut before = vec![Vec::new(); blocks.len()];
        for (block, followers) in next.iter().enumerate() {
            for follower in followers {
                before[*follower].push(block);
            }
        }
        let loops = loops(&next, &before);
        Graph {
            blocks,
            next,
            before,
            loops,
        }
    }

    /// The innermost loop that each block is in.
    pub fn innermost(&self) -> Vec<Option<usize>> {
        let mut of = vec![None; self.blocks.len()];
        let mut size = vec![usize::MAX; self.blocks.len()];
        for (l, looped) in self.loops.iter().enumerate() {
            for block in &looped.body {
                if looped.body.len() < size[*block] {
                    (of[*block], size[*block]) = (Some(l), looped.body.len());
                }
            }
        }
        of
    }
}

/// All blocks and the edges between them, the first block first.
fn cut(instructions: &[Instruction<'_>]) -> (Vec<Range<usize>>, Vec<Vec<usize>>) {
    let count = instructions.len();
    let mut starts = vec![false; count + 1];
    starts[0] = true;
    starts[count] = true;
    for (i, instruction) in instructions.iter().enumerate() {
        if instruction.is_branch() {
            starts[i + 1] = true;
        }
        for target in &instruction.targets {
            starts[*target] = true;
        }
    }
    let bounds: Vec<usize> = (0..=count).filter(|i| starts[*i]).collect();
    let blocks: Vec<Range<usize>> = bounds.windows(2).map(|w| w[0]..w[1]).collect();
    let block_at = |i: usize| bounds.binary_search(&i).ok().filter(|b| *b < blocks.len());
    let edges = blocks.iter().map(|range| {
        let last = &instructions[range.end - 1];
        let through = last.falls_through().then(|| block_at(range.end)).flatten();
        let mut edges: Vec<usize> = last
            .targets
            .iter()
            .filter_map(|t| block_at(*t))
            .chain(through)
            .collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    });
    let edges = edges.collect();
    (blocks, edges)
}

fn reverse_postorder(edges: &[Vec<usize>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(edges.len());
    let mut seen = vec![false; edges.len()];
    let mut stack = Vec::new();
    if !edges.is_empty() {
        seen[0] = true;
        stack.push((0, 0));
    }
    while let Some((block, at)) = stack.last_mut() {
        if let Some(next) = edges[*block].get(*at).copied() {
            *at += 1;
            if !seen[next] {
                seen[next] = true;
                stack.push((next, 0));
            }
        } else {
            order.push(*block);
            stack.pop();
        }
    }
    order.reverse();
    order
}

/// The block that dominates each most closely; that of the first is itself. Cooper, Harvey and Kennedy, "A Simple, Fast Dominance
/// Algorithm", 2001.
fn dominators(before: &[Vec<usize>]) -> Vec<usize> {
    let mut of = vec![usize::MAX; before.len()];
    if let Some(first) = of.first_mut() {
        *first = 0;
    }
    let mut changed = true;
    while changed {
        changed = false;
        for block in 1..before.len() {
            let known = before[block].iter().copied().filter(|b| of[*b] != usize::MAX);
            let meet = known.reduce(|mut a, mut b| {
                while a != b {
                    if a > b { a = of[a] } else { b = of[b] }
                }
                a
            });
            if let Some(meet) = meet.filter(|meet| of[block] != *meet) {
                of[block] = meet;
                changed = true;
            }
        }
    }
    of
}

fn loops(next: &[Vec<usize>], before: &[Vec<usize>]) -> Vec<NaturalLoop> {
    let dominator = dominators(before);
    let dominates = |a: usize, mut b: usize| {
        while b > a {
            b = dominator[b];
        }
        a == b
    };
    let mut found: Vec<NaturalLoop> = Vec::new();
    for head in 0..next.len() {
        let backs: Vec<usize> = before[head].iter().copied().filter(|b| dominates(head, *b)).collect();
        if backs.is_empty() {
            continue;
        }
        let mut inside = vec![false; next.len()];
        inside[head] = true;
        let mut stack = backs;
        while let Some(block) = stack.pop() {
            if !std::mem::replace(&mut inside[block], true) {
                stack.extend(&before[block]);
            }
        }
        found.push(NaturalLoop {
            head,
            body: (0..next.len()).filter(|b| inside[*b]).collect(),
            depth: 0,
            nested: false,
        });
    }
    // Loops with different heads are apart, or one is inside the other and then has its head there.
    for i in 0..found.len() {
        let around: Vec<usize> = (0..found.len()).filter(|j| found[*j].contains(found[i].head)).collect();
        found[i].depth = around.len();
        for j in around {
            found[j].nested |= j != i;
        }
    }
    found
}
