use super::*;
use kiln_files::FileError;
use std::os::unix::fs::symlink;

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn another_run_is_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let first = RunFolder::create(dir.path().join("a/b")).unwrap();
    first.write(RunFolder::LAST, b"weights").unwrap();
    let path = first.path().to_path_buf();
    let error = RunFolder::create(&path).unwrap_err();
    assert!(matches!(error, TrainError::Busy { .. }), "{error}");
    let pid = format!("process {} on ", std::process::id());
    assert!(error.to_string().contains(&pid), "{error}");
    // A clone keeps the folder locked.
    let clone = first.clone();
    drop(first);
    assert!(matches!(RunFolder::create(&path), Err(TrainError::Busy { .. })));
    drop(clone);
    let error = RunFolder::create(&path).unwrap_err();
    assert!(matches!(error, TrainError::Occupied { .. }), "{error}");
    assert!(error.to_string().contains("last.safetensors"), "{error}");
    assert_eq!(names(&path), [RunFolder::LAST]);
    assert_eq!(fs::read(path.join(RunFolder::LAST)).unwrap(), b"weights");
}

#[test]
fn a_run_that_ended_leaves_no_lock_and_an_empty_folder_may_be_taken() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let folder = RunFolder::create(dir.path().join("run")).unwrap();
        assert_eq!(names(folder.path()), [MARK]);
    }
    assert_eq!(names(&dir.path().join("run")), [""; 0]);
}

#[test]
fn numbered_folders_count_up() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..3)
        .map(|_| RunFolder::numbered(dir.path().join("runs"), "net-0").unwrap())
        .map(|f| f.path().file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["net-0", "net-0-2", "net-0-3"]);
}

#[test]
fn one_of_many_gets_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = dir.path().join(round.to_string());
        let got = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..4).map(|_| scope.spawn(|| RunFolder::create(&path))).collect();
            let tries: Vec<_> = tries.into_iter().map(|t| t.join().unwrap()).collect();
            for refused in tries.iter().filter_map(|t| t.as_ref().err()) {
                assert!(matches!(refused, TrainError::Busy { .. }), "{refused}");
            }
            tries.into_iter().flatten().count()
        });
        assert_eq!(got, 1);
    }
}

#[test]
fn a_folder_of_someones_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for (number, theirs) in [".thesis.tmp", ".draft.kiln", "x", ".kiln-tmp", "a.kiln-tmp"]
        .iter()
        .enumerate()
    {
        let path = dir.path().join(number.to_string());
        fs::create_dir(&path).unwrap();
        fs::write(path.join(theirs), b"mine").unwrap();
        fs::write(path.join(".last.safetensors.kiln-tmp"), b"of a killed run").unwrap();
        let before = names(&path);
        let error = RunFolder::create(&path).unwrap_err();
        assert!(
            matches!(&error, TrainError::Occupied { found, .. } if found.contains(theirs)),
            "{error}"
        );
        assert_eq!(names(&path), before);
        // The same with the lock file of a killed run.
        fs::write(path.join(MARK), b"").unwrap();
        assert!(matches!(RunFolder::create(&path), Err(TrainError::Occupied { .. })));
        assert_eq!(names(&path).len(), before.len() + 1);
    }
}

#[test]
fn what_a_killed_run_left_is_removed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let left = [MARK, ".last.safetensors.kiln-tmp", ".config.json.kiln-tmp"];
    let leave = |path: &Path| {
        fs::create_dir_all(path).unwrap();
        left.iter()
            .for_each(|name| fs::write(path.join(name), b"half").unwrap());
    };
    // Removed by the next run, in a folder where nothing was finished.
    let path = dir.path().join("empty");
    leave(&path);
    let folder = RunFolder::create(&path).unwrap();
    assert_eq!(names(&path), [MARK]);
    // Nothing is removed while a run is in progress.
    fs::write(path.join(left[1]), b"half").unwrap();
    assert_eq!(RunFolder::tidy(&path), 0);
    assert_eq!(names(&path), [MARK, left[1]]);
    drop(folder);
    // Removed by `tidy`, in the folder of a run that has saved something.
    let path = dir.path().join("run");
    leave(&path);
    for name in [RunFolder::LAST, ".thesis.tmp"] {
        fs::write(path.join(name), b"whole").unwrap();
    }
    assert_eq!(RunFolder::tidy(&path), 3);
    assert_eq!(names(&path), [".thesis.tmp", RunFolder::LAST]);
    assert_eq!(RunFolder::tidy(&path), 0);
    // Nothing is removed from a folder without a lock file.
    fs::write(path.join(left[1]), b"half").unwrap();
    assert_eq!(RunFolder::tidy(&path), 0);
    assert_eq!(RunFolder::tidy(dir.path().join("absent")), 0);
}

#[test]
fn what_is_no_folder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("file"), b"").unwrap();
    fs::create_dir(path("folder")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(path("fifo")).status();
    assert!(fifo.unwrap().success());
    for (link, to) in [("to-file", "file"), ("to-nowhere", "nowhere"), ("to-folder", "folder")] {
        symlink(to, path(link)).unwrap();
    }
    for (name, part) in [
        ("file", "is a regular file"),
        ("fifo", "is a FIFO"),
        ("to-file", "is a link to a regular file"),
        ("to-nowhere", "is a link to nowhere"),
    ] {
        for error in [
            RunFolder::create(path(name)).unwrap_err(),
            RunFolder::numbered(path(name), "run").unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(matches!(error, TrainError::NotAFolder { .. }), "{text}");
            assert!(text.contains(part) && text.contains(name), "{text}");
        }
    }
    let error = RunFolder::create(path("file/run")).unwrap_err();
    assert!(matches!(error, TrainError::File(FileError::Io { .. })), "{error}");
    assert!(error.to_string().contains("file/run"), "{error}");
    for wrong in ["", "a\nb", "\u{1b}[2J"] {
        let error = RunFolder::create(wrong).unwrap_err();
        assert!(matches!(error, TrainError::InvalidArgument { .. }), "{error}");
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
    // A link to a folder is followed: run folders may be on another disk.
    let linked = RunFolder::create(path("to-folder")).unwrap();
    linked.write(RunFolder::CONFIG, b"{}").unwrap();
    assert!(path("folder/config.json").exists());
}

#[test]
fn a_mark_that_is_no_file_is_not_ours() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(MARK)).unwrap();
    let error = RunFolder::create(dir.path()).unwrap_err();
    assert!(error.to_string().contains("is a folder, not a regular file"), "{error}");
    assert_eq!(RunFolder::tidy(dir.path()), 0);
    assert_eq!(names(dir.path()), [MARK]);
}

#[test]
fn a_note_with_room_is_overwritten_where_it_lies() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(dir.path().join("run")).unwrap();
    let value = |text: &str| serde_json::json!({ "reason": text });
    folder
        .write_json_with_room("note.json", &value("running"), 256)
        .unwrap();
    let of = |name: &str| fs::metadata(folder.file(name)).map(|m| (m.ino(), m.size())).unwrap();
    let before = of("note.json");
    assert_eq!(before.1, 256);
    folder.overwrite_json("note.json", &value("failed")).unwrap();
    // Neither another file nor a longer one, and still JSON.
    assert_eq!(of("note.json"), before);
    let read: serde_json::Value = serde_json::from_slice(&folder.read("note.json").unwrap()).unwrap();
    assert_eq!(read, value("failed"));
    let error = folder
        .overwrite_json("note.json", &value(&"x".repeat(256)))
        .unwrap_err();
    assert!(error.to_string().contains("too little room"), "{error}");
    assert!(folder.overwrite_json("none.json", &value("failed")).is_err());
    assert!(folder.read("none.json").is_err());
}

#[test]
fn a_moved_folder_is_read_where_it_is_and_a_folder_in_use_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("run"), dir.path().join("moved"));
    let folder = RunFolder::create(&path).unwrap();
    folder.write("a", b"mine").unwrap();
    assert!(RunFolder::is_in_use(&path) && !RunFolder::is_in_use(dir.path()) && !RunFolder::is_in_use(&moved));
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a"), b"theirs").unwrap();
    assert_eq!(folder.read("a").unwrap(), b"mine");
    assert!(RunFolder::is_in_use(&moved) && !RunFolder::is_in_use(&path));
    drop(folder);
    assert!(!RunFolder::is_in_use(&moved));
    // The mark of a run that was killed.
    fs::write(moved.join(MARK), b"").unwrap();
    assert!(!RunFolder::is_in_use(&moved));
}
