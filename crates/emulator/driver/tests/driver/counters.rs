//! The file of counters.

use kiln_emulator::*;

use super::harness::{alloc, child, kernel, launch, peek, process, start, stream, upload};

#[test]
fn a_launch_is_a_line_of_what_it_did() {
    let path = std::env::temp_dir().join(format!("kiln-counters-{}", std::process::id()));
    let path = std::env::var_os("KILN_EMULATOR_COUNTERS").map_or(path, Into::into);
    for more in [("CHECK", "0"), ("CHECK", "1"), ("STREAMS", "lazy")] {
        let options = [("COUNTERS", path.to_str().unwrap()), more];
        process("counters::a_launch_is_a_line_of_what_it_did", &options, || {
            start(0);
            let (scale, stop) = (kernel("scale"), kernel("stop"));
            let (at, s) = (alloc(4000), stream(1));
            upload(at, &[5; 1000]);
            assert_eq!(launch(scale, 8, 128, 0, s, &[at, 1000]), Code::SUCCESS);
            cu!(cuStreamSynchronize(s));
            assert_eq!(peek(at, 1000), [15; 1000]);
            // A launch that fails has no line.
            let _ = launch(stop, 1, 32, 0, s, &[]);
            cu!(cuStreamSynchronize(s) => LAUNCH_FAILED);
        });
        if child() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let [line] = lines[..] else { panic!("{lines:#?}") };
        let start = r#"{"kernel":"scale","grid":[8,1,1],"block":[128,1,1],"shared":0,"blocks":8,"warps":4,"wave":"#;
        assert!(line.starts_with(start), "{line}");
        for part in [
            // 1000 words: 31 warps of 4 sectors and one of 8 lanes, in which the branch past the end splits.
            r#""branches":32,"split_branches":1,"#,
            r#""line":28,"opcode":"ld.global.u32","file":"","source_line":0,"loop":null,"space":"global","class":"load","requests":32,"sectors":125,"minimum":125,"bytes":4000}"#,
            r#""class":"store","requests":32,"sectors":125,"minimum":125,"bytes":4000}"#,
            // Of 128 threads each: 4 lines, 3.25 of the last one; all of the array and the factor; all blocks are one wave.
            r#""lines_read":{"block":{"count":8,"sum":40,"min":5,"max":5},"wave":{"count":1,"sum":33,"min":33,"max":33},"launch":33}"#,
            r#""lines_written":{"block":{"count":8,"sum":32,"min":4,"max":4},"wave":{"count":1,"sum":32,"min":32,"max":32},"launch":32}"#,
            r#""loops":[],"#,
            r#""waits":[]}"#,
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told() {
    let said = process(
        "counters::a_file_that_cannot_be_written_is_told",
        &[("COUNTERS", "/nowhere/at/all")],
        || _ = start(0),
    );
    assert!(
        child() || said.contains("cannot write the counters /nowhere/at/all"),
        "{said}"
    );
}
