//! Graphs: nodes, and which come after which.

use std::ffi::c_char;

use crate::graph_exec::Step;
use crate::state::{State, driver};
use crate::types::{CUcontext, CUgraph, CUgraphNode, In, Out, name, put_list};
use crate::work::Work;
use crate::{Code, Outcome};

/// One graph.
#[derive(Clone)]
pub(crate) struct Graph {
    pub(crate) context: CUcontext,
    /// In the order in which they were added.
    pub(crate) nodes: Vec<Node>,
}

/// One node.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) handle: CUgraphNode,
    pub(crate) work: Work,
    /// What it comes after.
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

    fn position(&self, node: CUgraphNode) -> Option<usize> {
        self.nodes.iter().position(|n| n.handle == node)
    }

    pub(crate) fn node(&self, node: CUgraphNode) -> Outcome<&Node> {
        self.nodes.iter().find(|n| n.handle == node).ok_or(Code::INVALID_HANDLE)
    }

    /// Whether every node is one of these or comes before one of them.
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

    /// The nodes as steps, each after what it comes after; None if they go in a circle.
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
    fn dot(&self) -> String {
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

    fn edges(&self) -> Vec<(CUgraphNode, CUgraphNode)> {
        self.nodes
            .iter()
            .flat_map(|n| n.after.iter().map(|a| (*a, n.handle)))
            .collect()
    }
}

impl State {
    pub(crate) fn graph(&self, graph: CUgraph) -> Outcome<&Graph> {
        self.graphs.get(&graph).ok_or(Code::INVALID_VALUE)
    }

    /// The graph that a node belongs to, wherever it is.
    pub(crate) fn graph_of(&mut self, node: CUgraphNode) -> Outcome<&mut Graph> {
        let graph = self.nodes.get(&node).ok_or(Code::INVALID_VALUE)?;
        self.graphs.get_mut(graph).ok_or(Code::INVALID_VALUE)
    }

    /// Adds a node after others of the same graph.
    pub(crate) fn add_node(&mut self, graph: CUgraph, after: Vec<CUgraphNode>, work: Work) -> Outcome<CUgraphNode> {
        let node = CUgraphNode(self.handle());
        let found = self.graphs.get_mut(&graph).ok_or(Code::INVALID_VALUE)?;
        let twice = after.iter().enumerate().any(|(n, a)| after[..n].contains(a));
        if twice || after.iter().any(|n| found.position(*n).is_none()) {
            return Err(Code::INVALID_VALUE);
        }
        found.add(node, work, after);
        self.nodes.insert(node, graph);
        Ok(node)
    }
}

fn change_edges(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    n: usize,
    change: impl Fn(&mut Node, CUgraphNode) -> Outcome,
) -> Outcome {
    let mut state = driver()?.lock();
    let found = state.graphs.get_mut(&graph).ok_or(Code::INVALID_VALUE)?;
    for (from, to) in from.list(n)?.into_iter().zip(to.list(n)?) {
        found.position(from).filter(|_| from != to).ok_or(Code::INVALID_VALUE)?;
        let at = found.position(to).ok_or(Code::INVALID_VALUE)?;
        change(&mut found.nodes[at], from)?;
    }
    Ok(())
}

fn connect(node: &mut Node, from: CUgraphNode) -> Outcome {
    if node.after.contains(&from) {
        return Err(Code::INVALID_VALUE);
    }
    node.after.push(from);
    Ok(())
}

fn disconnect(node: &mut Node, from: CUgraphNode) -> Outcome {
    let at = node.after.iter().position(|a| *a == from).ok_or(Code::INVALID_VALUE)?;
    node.after.remove(at);
    Ok(())
}

fn edges(graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: Out<usize>) -> Outcome {
    let state = driver()?.lock();
    let edges = state.graph(graph)?.edges();
    if from.is_null() != to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let room = count.get()?;
    put_list(&edges.iter().map(|e| e.0).collect::<Vec<_>>(), from, count)?;
    if !to.is_null() {
        count.put(room)?;
        put_list(&edges.iter().map(|e| e.1).collect::<Vec<_>>(), to, count)?;
    }
    Ok(())
}

fn neighbours(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>, before: bool) -> Outcome {
    let mut state = driver()?.lock();
    let edges = state.graph_of(node)?.edges();
    let ours = edges
        .iter()
        .filter(|(from, to)| if before { *to == node } else { *from == node });
    put_list(
        &ours
            .map(|(from, to)| if before { *from } else { *to })
            .collect::<Vec<_>>(),
        nodes,
        count,
    )
}

export! {
    fn cuGraphCreate(graph: Out<CUgraph>, flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = driver()?.lock();
        let context = state.current()?;
        let handle = CUgraph(state.handle());
        graph.put(handle)?;
        state.graphs.insert(handle, Graph::new(context));
        Ok(())
    }

    fn cuGraphDestroy(graph: CUgraph) {
        let mut state = driver()?.lock();
        state.graphs.remove(&graph).ok_or(Code::INVALID_VALUE)?;
        state.nodes.retain(|_, owner| *owner != graph);
        Ok(())
    }

    fn cuGraphClone(clone: Out<CUgraph>, original: CUgraph) {
        let mut state = driver()?.lock();
        let mut copy = state.graph(original)?.clone();
        let handle = CUgraph(state.handle());
        let new: Vec<_> = copy.nodes.iter().map(|n| (n.handle, CUgraphNode(state.handle()))).collect();
        let renamed = |old: CUgraphNode| new.iter().find(|(o, _)| *o == old).map_or(old, |(_, n)| *n);
        for node in &mut copy.nodes {
            node.handle = renamed(node.handle);
            node.after.iter_mut().for_each(|a| *a = renamed(*a));
        }
        clone.put(handle)?;
        state.nodes.extend(new.iter().map(|(_, n)| (*n, handle)));
        state.graphs.insert(handle, copy);
        Ok(())
    }

    fn cuGraphGetNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) {
        let state = driver()?.lock();
        put_list(&state.graph(graph)?.nodes.iter().map(|n| n.handle).collect::<Vec<_>>(), nodes, count)
    }

    fn cuGraphGetRootNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) {
        let state = driver()?.lock();
        let roots = state.graph(graph)?.nodes.iter().filter(|n| n.after.is_empty());
        put_list(&roots.map(|n| n.handle).collect::<Vec<_>>(), nodes, count)
    }

    fn cuGraphGetEdges(graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: Out<usize>) {
        edges(graph, from, to, count)
    }

    fn cuGraphGetEdges_v2(
        graph: CUgraph,
        from: Out<CUgraphNode>,
        to: Out<CUgraphNode>,
        _data: Out<u64>,
        count: Out<usize>,
    ) {
        edges(graph, from, to, count)
    }

    fn cuGraphNodeGetDependencies(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) {
        neighbours(node, nodes, count, true)
    }

    fn cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) {
        neighbours(node, nodes, count, false)
    }

    fn cuGraphNodeGetDependencies_v2(
        node: CUgraphNode, nodes: Out<CUgraphNode>, _data: Out<u64>, count: Out<usize>,
    ) {
        neighbours(node, nodes, count, true)
    }

    fn cuGraphNodeGetDependentNodes_v2(
        node: CUgraphNode, nodes: Out<CUgraphNode>, _data: Out<u64>, count: Out<usize>,
    ) {
        neighbours(node, nodes, count, false)
    }

    fn cuGraphAddDependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) {
        change_edges(graph, from, to, count, connect)
    }

    fn cuGraphAddDependencies_v2(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, _data: In<u64>, count: usize,
    ) {
        change_edges(graph, from, to, count, connect)
    }

    fn cuGraphRemoveDependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) {
        change_edges(graph, from, to, count, disconnect)
    }

    fn cuGraphRemoveDependencies_v2(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, _data: In<u64>, count: usize,
    ) {
        change_edges(graph, from, to, count, disconnect)
    }

    fn cuGraphDestroyNode(node: CUgraphNode) {
        let mut state = driver()?.lock();
        let graph = state.graph_of(node)?;
        graph.nodes.retain(|n| n.handle != node);
        for other in &mut graph.nodes {
            other.after.retain(|a| *a != node);
        }
        state.nodes.remove(&node);
        Ok(())
    }

    fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, _flags: u32) {
        let text = driver()?.lock().graph(graph)?.dot();
        std::fs::write(name(path)?, text).map_err(|_| Code::OPERATING_SYSTEM)
    }

    fn cuGraphNodeGetType(node: CUgraphNode, kind: Out<i32>) {
        let mut state = driver()?.lock();
        kind.put(state.graph_of(node)?.node(node)?.work.node_type())
    }
}

impl Work {
    /// The number that the API has for such a node.
    pub(crate) fn node_type(&self) -> i32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(_) => 2,
            Self::Host(_) => 3,
            Self::Graph(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
            Self::Free(_) => 11,
        }
    }
}
