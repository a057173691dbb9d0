use super::*;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

/// A new empty folder, removed when dropped.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kiln-files-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn replaces_whole_files_and_leaves_nothing_beside() {
    let dir = Scratch::new();
    let path = dir.path("last.safetensors");
    fs::write(dir.path(".last.safetensors.kiln-tmp"), b"from a killed run").unwrap();
    for bytes in [&b"one"[..], b"", &[7; 70_000]] {
        write_atomic(&path, bytes).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    assert_eq!(dir.names(), ["last.safetensors"]);
}

#[test]
fn only_regular_files_are_replaced() {
    let dir = Scratch::new();
    fs::write(dir.path("file"), b"kept").unwrap();
    symlink("file", dir.path("link")).unwrap();
    symlink("nowhere", dir.path("dangling")).unwrap();
    fs::create_dir(dir.path("folder")).unwrap();
    let fifo = Command::new("mkfifo").arg(dir.path("fifo")).status();
    assert!(fifo.unwrap().success());
    for (name, what) in [
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("folder", "a folder"),
        ("fifo", "a FIFO"),
    ] {
        for error in [
            write_atomic(dir.path(name), b"new").unwrap_err(),
            check_writable(dir.path(name)).unwrap_err(),
        ] {
            assert!(
                matches!(&error, FileError::NotRegular { path, found } if *path == dir.path(name) && *found == what),
                "{error}"
            );
        }
    }
    assert!(matches!(
        write_atomic("/dev/null", b"new"),
        Err(FileError::NotRegular { found: "a device", .. })
    ));
    assert_eq!(fs::read(dir.path("file")).unwrap(), b"kept");
    assert_eq!(dir.names(), ["dangling", "fifo", "file", "folder", "link"]);
}

#[test]
fn a_temporary_that_leads_elsewhere_is_not_written_through() {
    let dir = Scratch::new();
    fs::write(dir.path("precious"), b"kept").unwrap();
    symlink("precious", dir.path(".a.kiln-tmp")).unwrap();
    fs::hard_link(dir.path("precious"), dir.path(".b.kiln-tmp")).unwrap();
    assert!(matches!(
        write_atomic(dir.path("a"), b"new"),
        Err(FileError::NotRegular { .. })
    ));
    write_atomic(dir.path("b"), b"new").unwrap();
    assert_eq!(fs::read(dir.path("precious")).unwrap(), b"kept");
    assert_eq!(fs::read(dir.path("b")).unwrap(), b"new");
}

#[test]
fn long_names_and_wrong_ones() {
    let dir = Scratch::new();
    let path = dir.path(&"n".repeat(255));
    write_atomic(&path, b"bytes").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"bytes");
    assert_eq!(dir.names().len(), 1);
    for wrong in ["", "/", ".."] {
        let error = write_atomic(wrong, b"").unwrap_err();
        assert!(matches!(error, FileError::Io { .. }), "{error}");
    }
    for (path, part) in [
        (dir.path("no/such/file"), "no/such/file"),
        (dir.path(&"n".repeat(256)), "nnn"),
    ] {
        let error = write_atomic(path, b"x").unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn errors_of_writing_say_what_is_short() {
    let full = |kind: ErrorKind| FileError::of_write(Path::new("/disk/weights"), 4096, kind.into(), || Some(512));
    for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        assert_eq!(
            full(kind).to_string(),
            "/disk/weights: disk full: 4096 bytes needed, 512 bytes free; make room or choose another folder"
        );
    }
    assert!(matches!(
        full(ErrorKind::FileTooLarge),
        FileError::TooLarge { size: 4096, .. }
    ));
    assert!(matches!(
        full(ErrorKind::PermissionDenied),
        FileError::Io { action: "write", .. }
    ));
}

#[test]
fn only_temporaries_that_nobody_writes_are_removed() {
    let dir = Scratch::new();
    for name in [
        ".thesis.tmp",
        ".kiln-tmp",
        "a.kiln-tmp",
        ".stale.kiln-tmp",
        ".busy.kiln-tmp",
        "kept",
    ] {
        fs::write(dir.path(name), b"x").unwrap();
    }
    fs::create_dir(dir.path(".folder.kiln-tmp")).unwrap();
    let busy = fs::File::open(dir.path(".busy.kiln-tmp")).unwrap();
    busy.lock().unwrap();
    assert_eq!(Folder::open(&dir.0).unwrap().remove_stale().unwrap(), 1);
    assert_eq!(
        dir.names(),
        [
            ".busy.kiln-tmp",
            ".folder.kiln-tmp",
            ".kiln-tmp",
            ".thesis.tmp",
            "a.kiln-tmp",
            "kept"
        ]
    );
}

#[test]
fn a_folder_that_moved_is_written_where_it_is() {
    let dir = Scratch::new();
    fs::create_dir(dir.path("run")).unwrap();
    let folder = Folder::open(dir.path("run")).unwrap();
    folder.write("a", b"1").unwrap();
    assert!(folder.is_in_place() && !folder.is_removed());
    fs::rename(dir.path("run"), dir.path("moved")).unwrap();
    assert!(!folder.is_in_place() && !folder.is_removed());
    fs::create_dir(dir.path("run")).unwrap();
    folder.write("a", b"2").unwrap();
    assert_eq!(fs::read(dir.path("moved/a")).unwrap(), b"2");
    assert!(!dir.path("run/a").exists());
    fs::remove_dir_all(dir.path("moved")).unwrap();
    assert!(folder.is_removed());
    assert!(matches!(folder.write("a", b"3"), Err(FileError::Io { .. })));
}

#[test]
fn writers_of_one_file_wait_for_each_other() {
    let dir = Scratch::new();
    let path = dir.path("shared");
    std::thread::scope(|scope| {
        for writer in 0u8..4 {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..25 {
                    write_atomic(path, &vec![writer; 50_000]).unwrap();
                    let bytes = fs::read(path).unwrap();
                    assert_eq!(bytes.len(), 50_000);
                    assert!(bytes.iter().all(|&b| b == bytes[0]), "a torn file");
                }
            });
        }
    });
    assert_eq!(dir.names(), ["shared"]);
}

const CHILD: &str = "KILN_TEST_SAVES_INTO";
const LIMIT: &str = "KILN_TEST_LIMITED";

/// Not a test by itself: the process that [`a_killed_save_leaves_a_whole_file`] runs and kills.
#[test]
fn child_saves_until_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    for round in 0u8..=u8::MAX {
        write_atomic(&path, &vec![round; 300_000]).unwrap();
    }
}

fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("write::tests::{name}"), "--test-threads=1"]);
    command.stdout(Stdio::null());
    command
}

#[test]
fn a_killed_save_leaves_a_whole_file() {
    let dir = Scratch::new();
    let path = dir.path("weights");
    write_atomic(&path, &vec![0; 300_000]).unwrap();
    for round in 0..40u64 {
        let mut child = this_test("child_saves_until_killed").env(CHILD, &path).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(4 + round % 13));
        child.kill().unwrap();
        child.wait().unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 300_000);
        assert!(bytes.iter().all(|&b| b == bytes[0]), "a torn file");
        // One temporary file at most, however many writers were killed.
        assert!(dir.names().len() <= 2, "{:?}", dir.names());
    }
    Folder::open(&dir.0).unwrap().remove_stale().unwrap();
    assert_eq!(dir.names(), ["weights"]);
}

/// Not a test by itself: the process that [`a_limit_on_the_size_of_files_is_an_error`] runs under such a limit.
#[test]
fn child_writes_beyond_its_limit() {
    let Some(path) = std::env::var_os(LIMIT) else { return };
    write_atomic(&path, b"small").unwrap();
    let error = write_atomic(&path, &[1; 100_000]).unwrap_err();
    let FileError::TooLarge { size, limit, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((size, limit), (100_000, Some(51_200)));
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error() {
    let dir = Scratch::new();
    let child = this_test("child_writes_beyond_its_limit");
    // In that process SIGXFSZ has its default action, which is to end the process.
    let limited = Command::new("bash")
        .args(["-c", "ulimit -f 50 && exec \"$@\"", "bash"])
        .arg(child.get_program())
        .args(child.get_args())
        .env(LIMIT, dir.path("weights"))
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(limited.success(), "{limited}");
    assert_eq!(fs::read(dir.path("weights")).unwrap(), b"small");
    assert_eq!(dir.names(), ["weights"]);
}
