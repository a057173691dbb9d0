//! The launch trace, with and without execution.

use std::path::PathBuf;

use kiln_emulator::*;

use super::harness::{alloc, child, kernel, launch, peek, process, start, stream, upload};

/// Runs a test in a process of its own with a trace; returns the lines of the trace, none in the process itself.
fn traced(test: &str, options: &[(&str, &str)], body: impl FnOnce()) -> Vec<String> {
    let path = std::env::temp_dir().join(format!("kiln-trace-{test}-{}", std::process::id()));
    let path = std::env::var_os("KILN_EMULATOR_TRACE").map_or(path, PathBuf::from);
    let mut all = options.to_vec();
    all.push(("TRACE", path.to_str().unwrap()));
    process(&format!("trace::{test}"), &all, body);
    if child() {
        return Vec::new();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    text.lines().map(String::from).collect()
}

/// The lines that begin with this key.
fn of<'a>(lines: &'a [String], key: &str) -> Vec<&'a str> {
    let start = format!("{{\"{key}\":");
    lines.iter().filter_map(|line| line.strip_prefix(&start)).collect()
}

#[test]
fn every_launch_copy_and_allocation_is_a_line() {
    for options in [
        vec![("STREAMS", "eager")],
        vec![("STREAMS", "lazy")],
        vec![("EXECUTE", "0")],
    ] {
        let lines = traced("every_launch_copy_and_allocation_is_a_line", &options, || {
            start(0);
            let scale = kernel("scale");
            let (at, s) = (alloc(4000), stream(1));
            upload(at, &[5; 1000]);
            assert_eq!(launch(scale, 8, 128, 0, s, &[at, 1000]), Code::SUCCESS);
            cu!(cuStreamSynchronize(s));
            let executed = std::env::var_os("KILN_EMULATOR_EXECUTE").is_none();
            assert_eq!(peek(at, 1000), [if executed { 15 } else { 0 }; 1000]);
            cu!(cuMemsetD32_v2(at, 7, 1000));
            assert_eq!(peek(at, 1000), [if executed { 7 } else { 0 }; 1000]);
            let other = alloc(1 << 20);
            cu!(cuMemcpyDtoD_v2(other, at, 4000));
            assert_eq!(peek(other, 1000), [if executed { 7 } else { 0 }; 1000]);
            cu!(cuMemFree_v2(at));
        });
        if lines.is_empty() {
            continue;
        }
        let kernels = of(&lines, "kernel");
        assert_eq!(kernels.len(), 1, "{options:?} {lines:#?}");
        let rest =
            kernels[0].strip_prefix(r#""scale","grid":[8,1,1],"block":[128,1,1],"shared":0,"device":0,"params":["0x"#);
        assert!(rest.is_some_and(|r| r.ends_with(r#"","0x3e8"]}"#)), "{kernels:?}");
        let copies = of(&lines, "copy");
        assert_eq!(
            copies
                .iter()
                .filter(|c| **c == r#""host to device","bytes":4000}"#)
                .count(),
            1
        );
        assert_eq!(
            copies
                .iter()
                .filter(|c| **c == r#""device to host","bytes":4000}"#)
                .count(),
            3
        );
        assert_eq!(
            copies
                .iter()
                .filter(|c| **c == r#""device to device","bytes":4000}"#)
                .count(),
            1
        );
        assert_eq!(of(&lines, "fill"), ["4000}"]);
        let used = |key| -> Vec<u64> {
            let number = |line: &str| line.rsplit("\"used\":").next()?.trim_end_matches('}').parse().ok();
            of(&lines, key).into_iter().filter_map(number).collect()
        };
        // The variables of modules are in the device's memory too.
        let (allocated, freed) = (used("allocate"), used("free"));
        let [first, second] = allocated[..] else {
            panic!("{lines:#?}")
        };
        assert!(first >= 4000, "{lines:#?}");
        assert_eq!((second - first, freed), (1 << 20, vec![second - 4000]));
    }
}

#[test]
fn graphs_are_marked_at_each_launch() {
    let lines = traced("graphs_are_marked_at_each_launch", &[], || {
        start(0);
        let (at, s) = (alloc(4), stream(1));
        cu!(cuStreamBeginCapture_v2(s, 0));
        cu!(cuMemsetD32Async(at, 1, 1, s));
        let (mut graph, mut exec) = (CUgraph::default(), CUgraphExec::default());
        cu!(cuStreamEndCapture(s, (&mut graph).into()));
        cu!(cuGraphInstantiateWithFlags((&mut exec).into(), graph, 0));
        cu!(cuGraphLaunch(exec, s));
        cu!(cuGraphLaunch(exec, s));
        cu!(cuStreamSynchronize(s));
    });
    let of_graphs: Vec<_> = lines
        .iter()
        .filter(|l| !l.contains("used"))
        .map(String::as_str)
        .collect();
    let once = [r#"{"graph":"begin"}"#, r#"{"fill":4}"#, r#"{"graph":"end"}"#];
    assert!(child() || of_graphs == [once, once].concat(), "{lines:#?}");
}

#[test]
fn memory_that_no_host_has_is_only_addresses_without_execution() {
    let options = [("EXECUTE", "0"), ("MEMORY", "80000000000")];
    let lines = traced(
        "memory_that_no_host_has_is_only_addresses_without_execution",
        &options,
        || {
            start(0);
            let at = alloc(70_000_000_000);
            cu!(cuMemsetD32_v2(at, 1, 15_000_000_000));
            cu!(cuMemcpyDtoD_v2(at, at + 30_000_000_000, 30_000_000_000));
            assert_eq!(peek(at + 69_000_000_000, 4), [0; 4]);
        },
    );
    assert!(child() || of(&lines, "fill") == ["60000000000}"], "{lines:#?}");
}

#[test]
fn a_trace_that_cannot_be_written_is_told() {
    let said = process(
        "trace::a_trace_that_cannot_be_written_is_told",
        &[("TRACE", "/nowhere/at/all")],
        || _ = start(0),
    );
    assert!(
        child() || said.contains("cannot write the trace /nowhere/at/all"),
        "{said}"
    );
}
