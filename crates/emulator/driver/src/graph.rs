//! Graphs: nodes and their dependencies.

use std::ffi::c_char;

use crate::error::{Code, Outcome};
use crate::objects::graph::{Graph, Node};
use crate::objects::work::Work;
use crate::state::{State, driver};
use crate::types::{CUgraph, CUgraphNode, In, Out, name, put_list};

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
