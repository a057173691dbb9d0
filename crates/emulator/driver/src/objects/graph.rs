//! Graphs, as they are built and as they are launched.

use std::sync::Arc;

use super::work::{Step, Work};
use crate::error::{Code, Outcome};
use crate::types::{CUcontext, CUgraphNode};

/// One graph.
#[derive(Clone)]
pub(crate) struct Graph {
    pub(crate) context: CUcontext,
    /// The nodes, in the order in which they were added.
    pub(crate) nodes: Vec<Node>,
}

/// One node.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) handle: CUgraphNode,
    pub(crate) work: Work,
    /// The nodes that it comes after.
    pub(crate) after: Vec<CUgraphNode>,
}

impl Graph {
    /// A graph without nodes.
    pub(crate) fn new(context: CUcontext) -> Self {
        Self {
            context,
            nodes: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, handle: CUgraphNode, work: Work, after: Vec<CUgraphNode>) {
        self.nodes.push(Node { handle, work, after });
    }

    pub(crate) fn position(&self, node: CUgraphNode) -> Option<usize> {
        self.nodes.iter().position(|n| n.handle == node)
    }

    pub(crate) fn node(&self, node: CUgraphNode) -> Outcome<&Node> {
        self.nodes.iter().find(|n| n.handle == node).ok_or(Code::INVALID_HANDLE)
    }

    /// True if every node is one of these or comes before one of them.
    pub(crate) fn all_before(&self, last: &[CUgraphNode]) -> bool {
        let mut reached = vec![false; self.nodes.len()];
        let mut open: Vec<usize> = last.iter().filter_map(|n| self.position(*n)).collect();
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut reached[at], true) {
                open.extend(self.nodes[at].after.iter().filter_map(|n| self.position(*n)));
            }
        }
        reached.iter().all(|r| *r)
    }

    /// The nodes as steps, each after its dependencies; None if there is a cycle.
    pub(crate) fn steps(&self) -> Option<Vec<Step>> {
        let mut order: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut place = vec![None; self.nodes.len()];
        while order.len() < self.nodes.len() {
            let before = order.len();
            for (at, node) in self.nodes.iter().enumerate() {
                let free = || {
                    node.after
                        .iter()
                        .all(|n| self.position(*n).is_some_and(|p| place[p].is_some()))
                };
                if place[at].is_none() && free() {
                    place[at] = Some(order.len());
                    order.push(at);
                }
            }
            if order.len() == before {
                return None;
            }
        }
        let step = |at: &usize| {
            let node = &self.nodes[*at];
            let after = node.after.iter().filter_map(|n| place[self.position(*n)?]).collect();
            Step {
                node: node.handle,
                work: node.work.clone(),
                after,
            }
        };
        Some(order.iter().map(step).collect())
    }

    /// The graph in the language of Graphviz.
    pub(crate) fn dot(&self) -> String {
        let mut text = String::from("digraph {\n");
        for node in &self.nodes {
            let what = match &node.work {
                Work::Kernel(k) => format!("{} {:?} x {:?}", k.function.kernel.name(), k.grid, k.block),
                Work::Copy(c) => format!("copy of {} bytes", c.width * c.height * c.depth),
                Work::Fill(f) => format!("fill of {} bytes", f.width * f.element * f.height),
                Work::Host(_) => "host function".into(),
                Work::Graph(steps) => format!("graph of {} nodes", steps.len()),
                Work::Empty | Work::Record(_) | Work::Wait(_) | Work::Free(_) => "empty".into(),
            };
            text += &format!("  n{} [label=\"{what}\"];\n", node.handle.0);
        }
        for (from, to) in self.edges() {
            text += &format!("  n{} -> n{};\n", from.0, to.0);
        }
        text + "}\n"
    }

    pub(crate) fn edges(&self) -> Vec<(CUgraphNode, CUgraphNode)> {
        self.nodes
            .iter()
            .flat_map(|n| n.after.iter().map(|a| (*a, n.handle)))
            .collect()
    }
}

/// A graph that can be launched.
pub(crate) struct GraphExec {
    pub(crate) context: CUcontext,
    pub(crate) steps: Arc<[Step]>,
}
