//! CSV files.

use crate::common::Folder;
use kiln_data::csv::{Csv, CsvOptions, LabelKind};
use kiln_data::{BadRecords, DataError, Dataset, Place};
use proptest::collection::vec;
use proptest::prelude::*;

fn open(text: &[u8], options: &CsvOptions) -> Result<Csv, DataError> {
    let folder = Folder::new();
    Csv::open(folder.file("data.csv", text), options)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// What is written is what is read, wherever the label stands.
    #[test]
    fn round_trip(rows in vec((vec(-1e6f32..1e6, 3), 0..5i32), 1..34), label in 0..4usize, header in any::<bool>()) {
        let mut text = if header { "a,b,c,d\n".to_string() } else { String::new() };
        for (features, class) in &rows {
            let mut fields: Vec<String> = features.iter().map(f32::to_string).collect();
            fields.insert(label, class.to_string());
            text += &(fields.join(",") + "\n");
        }
        let mut options = CsvOptions::new(label, LabelKind::Class { classes: 5 });
        options.header = header;
        let csv = open(text.as_bytes(), &options).unwrap();
        prop_assert_eq!(csv.len(), rows.len());
        for (i, (features, class)) in rows.iter().enumerate() {
            let sample = csv.get(i).unwrap();
            prop_assert_eq!(&sample.input, features);
            prop_assert_eq!(sample.label, *class);
        }
    }

    #[test]
    fn noise_is_harmless(bytes in vec(any::<u8>(), 0..200)) {
        for kind in [LabelKind::Name, LabelKind::Number] {
            let mut options = CsvOptions::new(0, kind);
            options.header = false;
            options.bad = BadRecords::Skip;
            let _ = open(&bytes, &options);
        }
    }
}

#[test]
fn names_and_numbers() {
    // Names are met in another order than they sort.
    let text = b"length, kind ,width\n1.5,virginica, 2\n\"2.5\",setosa,3\n3.5,virginica,4\n";
    let csv = open(text, &CsvOptions::new("kind", LabelKind::Name)).unwrap();
    assert_eq!(csv.class_names(), ["setosa", "virginica"]);
    assert_eq!(csv.feature_names(), ["length", "width"]);
    let sample = csv.get(1).unwrap();
    assert_eq!((sample.input, sample.label), (vec![2.5, 3.0], 0));
    assert_eq!(csv.shape().unwrap().dims(), [2]);

    let csv = open(
        b"1;2;30\n4;5;60\n",
        &CsvOptions {
            header: false,
            delimiter: b';',
            ..CsvOptions::new(2, LabelKind::Number)
        },
    )
    .unwrap();
    let sample = csv.get(1).unwrap();
    assert_eq!((sample.input, sample.targets), (vec![4.0, 5.0], vec![60.0]));
    assert_eq!(csv.classes(), None);
}

#[test]
fn bad_lines_name_line_and_column() {
    let class = CsvOptions::new("y", LabelKind::Class { classes: 10 });
    let place = |text: &[u8], options: &CsvOptions| match open(text, options).unwrap_err() {
        DataError::Value { place, found, .. } => (place, found),
        other => panic!("{other}"),
    };
    let line = |line, column: Option<&str>| Place::Line {
        line,
        column: column.map(str::to_string),
    };
    for (text, at, found) in [
        (&b"x,y\n1,2\n1\n"[..], line(3, None), "1"),
        (b"x,y\n1,2\n1,2,3\n", line(3, None), "3"),
        (b"x,y\none,2\n", line(2, Some("x")), "\"one\""),
        (b"x,y\n,2\n", line(2, Some("x")), "\"\""),
        (b"x,y\nNaN,2\n", line(2, Some("x")), "\"NaN\""),
        (b"x,y\n1e99,2\n", line(2, Some("x")), "\"1e99\""),
        (b"x,y\n1,2\n1,2.5\n", line(3, Some("y")), "\"2.5\""),
    ] {
        assert_eq!(place(text, &class), (at, found.to_string()), "{}", text.escape_ascii());
    }
    assert!(matches!(
        place(b"x,y\n1,2\n\xff\xfe,2\n", &class).0,
        Place::Line { line: 3, .. }
    ));
    for label in ["10", "-1", "99999999999"] {
        let error = open(format!("x,y\n1,2\n1,{label}\n").as_bytes(), &class).unwrap_err();
        assert!(
            matches!(
                error,
                DataError::Label {
                    place: Place::Line { line: 3, .. },
                    classes: 10,
                    ..
                }
            ),
            "{error}"
        );
    }
    let no_header = CsvOptions {
        header: false,
        ..CsvOptions::new(1, LabelKind::Number)
    };
    assert_eq!(
        place(b"1,2\n3,x\n", &no_header),
        (line(2, Some("1")), "\"x\"".to_string())
    );
}

#[test]
fn skipped_lines_leave_no_trace() {
    let mut options = CsvOptions::new("y", LabelKind::Class { classes: 3 });
    options.bad = BadRecords::Skip;
    let csv = open(b"a,b,y\n1,2,0\n3,oops,1\n4,5,7\n6,7\n\xff,1,1\n8,9,2\n", &options).unwrap();
    assert_eq!(csv.len(), 2);
    assert_eq!(csv.get(1).unwrap().input, [8.0, 9.0]);
    let skipped = csv.skipped().unwrap();
    assert_eq!(skipped.count(), 4);
    let lines: Vec<String> = skipped.reasons().iter().map(ToString::to_string).collect();
    for (reason, line) in lines.iter().zip(["line 3", "line 4", "line 5", "line 6"]) {
        assert!(reason.contains(line), "{reason}");
    }
}

/// A quote that is never closed takes its own line with it, wherever it stands and whatever the other lines look like.
#[test]
fn an_open_quote_costs_one_line() {
    let mut options = CsvOptions::new("y", LabelKind::Class { classes: 10 });
    options.bad = BadRecords::Skip;
    for good in ["1,2,3\n", "1,2,\"3\"\n", "\"1\",2,3\r\n"] {
        for open_at in [0, 1, 2500, 4999, 5000] {
            let mut lines = vec![good; 5000];
            lines.insert(open_at, "4,5,\"6\n");
            let csv = open(format!("a,b,y\n{}", lines.concat()).as_bytes(), &options).unwrap();
            let skipped = csv.skipped().unwrap();
            assert_eq!((csv.len(), skipped.count()), (5000, 1), "{good:?} {open_at}");
            let reason = skipped.reasons()[0].to_string();
            assert!(reason.contains(&format!("line {}:", open_at + 2)), "{reason}");
        }
    }
    // Two quotes with good lines between them look like one field; the number of fields tells.
    let between = "a,b,y\n1,\"2,3\n4,5,6\n7,8,9\n1,2\",3,3\n1,2,3\n";
    let csv = open(between.as_bytes(), &options).unwrap();
    assert_eq!((csv.len(), csv.skipped().unwrap().count()), (3, 2));
    options.bad = BadRecords::Refuse;
    let error = open(b"a,b,y\n1,2,3\n1,\"2,3\n", &options).unwrap_err();
    assert!(
        matches!(
            &error,
            DataError::Value {
                place: Place::Line { line: 3, .. },
                what: "record",
                ..
            }
        ),
        "{error}"
    );
}

/// A field in quotes may hold line breaks, delimiters and doubled quotes; a record of several lines is one bad record.
#[test]
fn quoted_fields_go_over_lines() {
    let mut options = CsvOptions::new("y", LabelKind::Name);
    options.bad = BadRecords::Skip;
    let text = b"x,y\n1,\"two\nlines, \"\"quoted\"\"\"\nnan,\"3,\n4,cat\n\"\n2, \"cat\" \n";
    let csv = open(text, &options).unwrap();
    assert_eq!(csv.class_names(), ["cat", "two\nlines, \"quoted\""]);
    assert_eq!((csv.len(), csv.skipped().unwrap().count()), (2, 1));
    for delimiter in [b'"', b'\n', b'\r', 0xe9] {
        options.delimiter = delimiter;
        let refused = open(text, &options).unwrap_err();
        assert!(matches!(refused, DataError::InvalidArgument { .. }), "{refused}");
    }
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_not_opened() {
    let folder = Folder::new();
    let pipe = folder.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for path in [pipe.as_path(), std::path::Path::new("/dev/zero"), folder.path()] {
        for error in [
            Csv::open(path, &CsvOptions::new(0, LabelKind::Name)).unwrap_err(),
            kiln_data::idx::Idx::read(path).unwrap_err(),
            kiln_data::decode_image(path, 3, &Default::default()).unwrap_err(),
        ] {
            assert!(matches!(error, DataError::Io { action: "open", .. }), "{error}");
            assert!(error.to_string().contains("expected a regular file"), "{error}");
        }
    }
}

/// What a file holds cannot steer the terminal that shows the error.
#[test]
fn messages_are_plain_and_short() {
    let name = format!("\x1b[31m{}", "x".repeat(1 << 20));
    let long = format!("{name},y\nno\x1b[2J,1\n");
    let error = open(long.as_bytes(), &CsvOptions::new("y", LabelKind::Number)).unwrap_err();
    let text = error.to_string();
    assert!(text.len() < 1000 && text.contains(r"\u{1b}[31mxxx"), "{text}");
    assert!(!text.contains('\x1b'));
}

#[test]
fn files_that_cannot_be_data() {
    let options = CsvOptions::new("y", LabelKind::Number);
    assert!(matches!(open(b"", &options), Err(DataError::Missing { .. })));
    assert!(matches!(open(b"a,b\n1,2\n", &options), Err(DataError::Missing { .. })));
    assert!(matches!(open(b"x,y\n", &options), Err(DataError::Empty { .. })));
    assert!(matches!(open(b"y\n1\n", &options), Err(DataError::Value { .. })));
    assert!(matches!(
        open(b"\"y\n1\n", &options),
        Err(DataError::Value { what: "record", .. })
    ));
    let wide = [b"x".as_slice(), &vec![b','; 1 << 20], b"y\n"].concat();
    assert!(matches!(
        open(&wide, &options),
        Err(DataError::TooLarge { found: 1_048_577, .. })
    ));
    let small = CsvOptions {
        max_bytes: 5,
        ..options
    };
    assert!(matches!(
        open(b"x,y\n1,2\n", &small),
        Err(DataError::TooLarge { found: 8, limit: 5, .. })
    ));
    let number = CsvOptions {
        header: false,
        ..CsvOptions::new(2, LabelKind::Number)
    };
    assert!(matches!(open(b"1,2\n", &number), Err(DataError::Missing { .. })));
}
