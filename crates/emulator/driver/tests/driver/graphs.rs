//! Graphs: nodes and edges, instantiation, replay and update.

use std::ffi::c_void;

use kiln_emulator::*;

use super::harness::{alloc, peek, process, start, stream, upload};

fn test(name: &str, options: &[(&str, &str)], body: impl FnOnce()) {
    process(&format!("graphs::{name}"), options, body);
}

fn graph() -> CUgraph {
    let mut graph = CUgraph::default();
    cu!(cuGraphCreate((&mut graph).into(), 0));
    graph
}

fn fill(graph: CUgraph, after: &[CUgraphNode], dst: u64, value: u32) -> CUgraphNode {
    let params = MemsetParams {
        dst,
        pitch: 0,
        value,
        element: 4,
        width: 1,
        height: 1,
    };
    let mut node = CUgraphNode::default();
    let context = CUcontext::default();
    cu!(cuGraphAddMemsetNode(
        (&mut node).into(),
        graph,
        after.into(),
        after.len(),
        (&params).into(),
        context
    ));
    node
}

fn line(dst: u64, src: u64) -> Memcpy3D {
    let side = |device| Side3D {
        memory: 2,
        device,
        ..Side3D::default()
    };
    Memcpy3D {
        src: side(src),
        dst: side(dst),
        width: 4,
        height: 1,
        depth: 1,
    }
}

fn copy(graph: CUgraph, after: &[CUgraphNode], dst: u64, src: u64) -> CUgraphNode {
    let (mut node, context) = (CUgraphNode::default(), CUcontext::default());
    let params = line(dst, src);
    cu!(cuGraphAddMemcpyNode(
        (&mut node).into(),
        graph,
        after.into(),
        after.len(),
        (&params).into(),
        context
    ));
    node
}

fn instantiate(graph: CUgraph) -> CUgraphExec {
    let mut exec = CUgraphExec::default();
    cu!(cuGraphInstantiateWithFlags((&mut exec).into(), graph, 0));
    exec
}

fn run(exec: CUgraphExec) {
    let s = stream(1);
    cu!(cuGraphUpload(exec, s));
    cu!(cuGraphLaunch(exec, s));
    cu!(cuStreamSynchronize(s));
    cu!(cuStreamDestroy_v2(s));
}

#[test]
fn edges_order_and_nothing_else_does() {
    test("edges_order_and_nothing_else_does", &[("STREAMS", "random:7")], || {
        start(0);
        let at = alloc(8);
        let (tied, loose) = (graph(), graph());
        let first = fill(tied, &[], at, 1);
        copy(tied, &[first], at + 4, at);
        copy(loose, &[], at + 4, at);
        fill(loose, &[], at, 1);
        let (tied, loose) = (instantiate(tied), instantiate(loose));
        let mut seen = Vec::new();
        for _ in 0..40 {
            upload(at, &[0, 0]);
            run(tied);
            assert_eq!(peek(at, 2), [1, 1]);
            upload(at, &[0, 0]);
            run(loose);
            seen.push(peek(at + 4, 1)[0]);
        }
        assert!(seen.contains(&0) && seen.contains(&1), "{seen:?}");
    });
}

#[test]
fn nodes_and_edges_can_be_asked_for_and_changed() {
    test("nodes_and_edges_can_be_asked_for_and_changed", &[], || {
        start(0);
        let (at, g) = (alloc(8), graph());
        let (a, b, c) = (fill(g, &[], at, 1), fill(g, &[], at, 2), fill(g, &[], at, 3));
        let mut bad = CUgraphNode::default();
        let twice = [a, a];
        cu!(cuGraphAddEmptyNode((&mut bad).into(), g, twice[..].into(), 2) => INVALID_VALUE);
        cu!(cuGraphAddDependencies(g, [a, b][..].into(), [b, c][..].into(), 2));
        cu!(cuGraphAddDependencies(g, (&a).into(), (&b).into(), 1) => INVALID_VALUE);
        cu!(cuGraphAddDependencies(g, (&a).into(), (&a).into(), 1) => INVALID_VALUE);
        let (mut from, mut to, mut n) = ([CUgraphNode::default(); 4], [CUgraphNode::default(); 4], 4);
        cu!(cuGraphGetEdges(
            g,
            (&mut from[0]).into(),
            (&mut to[0]).into(),
            (&mut n).into()
        ));
        assert_eq!((n, &from[..2], &to[..2]), (2, &[a, b][..], &[b, c][..]));
        n = 4;
        cu!(cuGraphNodeGetDependencies(c, (&mut from[0]).into(), (&mut n).into()));
        assert_eq!((n, from[0]), (1, b));
        n = 4;
        cu!(cuGraphNodeGetDependentNodes(a, (&mut from[0]).into(), (&mut n).into()));
        assert_eq!((n, from[0]), (1, b));
        n = 4;
        cu!(cuGraphGetRootNodes(g, (&mut from[0]).into(), (&mut n).into()));
        assert_eq!((n, from[0]), (1, a));
        run(instantiate(g));
        assert_eq!(peek(at, 1), [3]);
        let path = std::env::temp_dir().join(format!("kiln-emulator-{}.dot", std::process::id()));
        let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        cu!(cuGraphDebugDotPrint(g, text.as_ptr(), 0));
        let dot = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(
            (dot.matches("fill of 4 bytes").count(), dot.matches("->").count()),
            (3, 2),
            "{dot}"
        );
        // A circle cannot be run.
        cu!(cuGraphAddDependencies(g, (&c).into(), (&a).into(), 1));
        let mut exec = CUgraphExec::default();
        cu!(cuGraphInstantiateWithFlags((&mut exec).into(), g, 0) => INVALID_VALUE);
        cu!(cuGraphRemoveDependencies(g, (&c).into(), (&a).into(), 1));
        cu!(cuGraphRemoveDependencies(g, (&c).into(), (&a).into(), 1) => INVALID_VALUE);
        cu!(cuGraphDestroyNode(c));
        run(instantiate(g));
        assert_eq!(peek(at, 1), [2]);
        cu!(cuGraphDestroy(g));
        cu!(cuGraphDestroy(g) => INVALID_VALUE);
        let mut kind = 0;
        cu!(cuGraphNodeGetType(a, (&mut kind).into()) => INVALID_VALUE);
    });
}

#[test]
fn parameters_are_read_and_set() {
    test("parameters_are_read_and_set", &[], || {
        start(0);
        let (at, g) = (alloc(12), graph());
        upload(at, &[1, 2, 3]);
        let f = fill(g, &[], at, 5);
        let c = copy(g, &[f], at + 4, at);
        let (mut kinds, mut params, mut description) = ([9; 2], MemsetParams::default(), Memcpy3D::default());
        cu!(cuGraphNodeGetType(f, (&mut kinds[0]).into()));
        cu!(cuGraphNodeGetType(c, (&mut kinds[1]).into()));
        assert_eq!(kinds, [2, 1]);
        cu!(cuGraphMemsetNodeGetParams(f, (&mut params).into()));
        cu!(cuGraphMemcpyNodeGetParams(c, (&mut description).into()));
        assert_eq!((params.dst, params.value, params.element, params.width), (at, 5, 4, 1));
        assert_eq!(
            (description.dst.device, description.src.device, description.width),
            (at + 4, at, 4)
        );
        cu!(cuGraphMemcpyNodeGetParams(f, (&mut description).into()) => INVALID_VALUE);
        let exec = instantiate(g);
        params.value = 6;
        cu!(cuGraphMemsetNodeSetParams(f, (&params).into()));
        run(exec);
        assert_eq!(peek(at, 3), [5, 5, 3]);
        let context = CUcontext::default();
        cu!(cuGraphExecMemsetNodeSetParams(exec, f, (&params).into(), context));
        cu!(cuGraphExecMemcpyNodeSetParams(
            exec,
            c,
            (&line(at + 8, at)).into(),
            context
        ));
        cu!(cuGraphExecMemcpyNodeSetParams(exec, f, (&line(at + 8, at)).into(), context) => INVALID_VALUE);
        run(exec);
        assert_eq!(peek(at, 3), [6, 5, 6]);
        params.element = 3;
        cu!(cuGraphMemsetNodeSetParams(f, (&params).into()) => INVALID_VALUE);
        params.element = 4;
        params.dst = at + 12;
        cu!(cuGraphMemsetNodeSetParams(f, (&params).into()) => INVALID_VALUE);
    });
}

#[test]
fn updates_need_the_same_topology() {
    test("updates_need_the_same_topology", &[], || {
        start(0);
        let at = alloc(8);
        let make = |value: u32, joined: bool, swap: bool| {
            let g = graph();
            let first = fill(g, &[], at, value);
            let after = if joined { vec![first] } else { Vec::new() };
            if swap {
                fill(g, &after, at + 4, 0)
            } else {
                copy(g, &after, at + 4, at)
            };
            g
        };
        let exec = instantiate(make(1, true, false));
        let update = |g: CUgraph, code: Code| {
            let (mut node, mut result) = (CUgraphNode::default(), 9);
            // SAFETY: both places live for the call.
            let got = unsafe { cuGraphExecUpdate(exec, g, (&mut node).into(), (&mut result).into()) };
            assert_eq!(got, code);
            result
        };
        assert_eq!(update(make(2, true, false), Code::SUCCESS), 0);
        run(exec);
        assert_eq!(peek(at, 2), [2, 2]);
        assert_eq!(update(make(3, false, false), Code::GRAPH_EXEC_UPDATE_FAILURE), 2);
        assert_eq!(update(make(3, true, true), Code::GRAPH_EXEC_UPDATE_FAILURE), 3);
        let mut info = UpdateInfo::default();
        cu!(cuGraphExecUpdate_v2(exec, graph(), (&mut info).into()) => GRAPH_EXEC_UPDATE_FAILURE);
        assert_eq!(info.result, 2);
        run(exec);
        assert_eq!(peek(at, 2), [2, 2]);
    });
}

unsafe extern "C" fn double(data: *mut c_void) {
    // SAFETY: the test gives a number of its own, and waits for the graph before it looks.
    unsafe { *data.cast::<u32>() *= 2 };
}

#[test]
fn children_clones_and_host_nodes_run() {
    for order in ["eager", "random:1", "random:9"] {
        test("children_clones_and_host_nodes_run", &[("STREAMS", order)], || {
            start(0);
            let (at, inner, outer) = (alloc(8), graph(), graph());
            let first = fill(inner, &[], at, 4);
            copy(inner, &[first], at + 4, at);
            let mut number = 21u32;
            let params = HostParams {
                function: Some(double),
                data: (&raw mut number).cast(),
            };
            let [mut host, mut child, mut last] = [CUgraphNode::default(); 3];
            cu!(cuGraphAddHostNode(
                (&mut host).into(),
                outer,
                In::NULL,
                0,
                (&params).into()
            ));
            cu!(cuGraphAddChildGraphNode(
                (&mut child).into(),
                outer,
                (&host).into(),
                1,
                inner
            ));
            cu!(cuGraphAddEmptyNode((&mut last).into(), outer, (&child).into(), 1));
            fill(outer, &[last], at, 8);
            let mut clone = CUgraph::default();
            cu!(cuGraphClone((&mut clone).into(), outer));
            cu!(cuGraphDestroy(outer));
            cu!(cuGraphDestroy(inner));
            let mut kind = 9;
            let (mut nodes, mut n) = ([CUgraphNode::default(); 8], 8);
            cu!(cuGraphGetNodes(clone, (&mut nodes[0]).into(), (&mut n).into()));
            assert_eq!(n, 4);
            cu!(cuGraphNodeGetType(nodes[1], (&mut kind).into()));
            assert_eq!(kind, 4);
            run(instantiate(clone));
            assert_eq!((number, peek(at, 2)), (42, vec![8, 4]));
            let (exec, mut other) = (instantiate(clone), 5u32);
            let mut params = HostParams {
                function: None,
                data: std::ptr::null_mut(),
            };
            cu!(cuGraphHostNodeGetParams(nodes[0], (&mut params).into()));
            assert!(params.function.is_some());
            params.data = (&raw mut other).cast();
            cu!(cuGraphExecHostNodeSetParams(exec, nodes[0], (&params).into()));
            run(exec);
            assert_eq!((number, other), (42, 10));
            params.function = None;
            cu!(cuGraphHostNodeSetParams(nodes[0], (&params).into()) => INVALID_VALUE);
        });
    }
}

#[test]
fn a_node_that_outlives_its_memory_is_a_fault() {
    test("a_node_that_outlives_its_memory_is_a_fault", &[], || {
        start(0);
        let (at, g, s) = (alloc(4), graph(), stream(1));
        fill(g, &[], at, 1);
        let exec = instantiate(g);
        run(exec);
        cu!(cuMemFree_v2(at));
        cu!(cuGraphLaunch(exec, s) => ILLEGAL_ADDRESS);
        cu!(cuStreamSynchronize(s) => ILLEGAL_ADDRESS);
        assert_eq!(kilnEmulatorFindings(), 1);
    });
}
