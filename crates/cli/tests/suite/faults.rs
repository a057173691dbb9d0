//! Disks that fill up or become read-only, memory that runs out, and signals, each while a run writes checkpoints: the run says what
//! happened, and goes on afterwards to the bits of one that nothing has happened to.
#![cfg(target_os = "linux")]

use crate::common::{Ran, kiln, names, run, succeeds};
use crate::signals::{code_within, send, start};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A file system of its own in memory, of some KiB, which is taken away at the end.
struct Disk {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Disk {
    /// `None`, with a line that says so, where this user may not mount one.
    fn new(kib: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        let made = mount(&["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"], &path);
        if !made {
            eprintln!("skipped: this user may not mount a file system, so no disk can be filled");
        }
        made.then_some(Disk { path, _dir: dir })
    }

    /// Writes a file that leaves so many KiB free.
    fn fill(&self, leave: u64) {
        let mut filler = std::fs::File::create(self.path.join("filler")).unwrap();
        let page = vec![1u8; 4096];
        let mut written = 0u64;
        while filler.write_all(&page).is_ok() {
            written += 4096;
        }
        filler.set_len(written.saturating_sub(leave << 10)).unwrap();
    }

    fn drain(&self) {
        std::fs::remove_file(self.path.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn mount(options: &[&str], at: &Path) -> bool {
    let ran = Command::new("mount").args(options).arg(at).output();
    ran.is_ok_and(|ran| ran.status.success())
}

/// The arguments of a run with a checkpoint after each update, to be stopped by what happens to it.
fn endless(out: &str) -> Vec<&str> {
    let sizes = ["--synthetic", "40", "--batch", "8", "--epochs", "1000000"];
    let rest = [
        "--schedule",
        "constant",
        "--checkpoint-steps",
        "1",
        "--device",
        "cpu",
        "--tensorboard",
    ];
    [&["train", "lenet"][..], &sizes, &rest, &["--out", out]].concat()
}

/// The step of the newest checkpoint in a folder.
fn newest(folder: &Path) -> u64 {
    let found = std::fs::read_dir(folder).unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.strip_prefix("checkpoint-")?.strip_suffix(".json")?.parse().ok()
    });
    found.max().expect("there is a checkpoint")
}

fn said(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

/// Goes on with a run for three updates, and compares with a run of that length that nothing has happened to.
fn goes_on(dir: &Path, out: &str) {
    let path = dir.join(out);
    let temporary: Vec<String> = names(&path)
        .into_iter()
        .filter(|name| name.ends_with(".kiln-tmp"))
        .collect();
    assert_eq!(temporary, [""; 0]);
    let steps = (newest(&path) + 3).to_string();
    succeeds(dir, &["train", "--resume", out, "--max-steps", &steps]);
    let calm = tempfile::tempdir().unwrap();
    let mut args = endless("calm");
    args.extend(["--max-steps", &steps]);
    succeeds(calm.path(), &args);
    let weights = |folder: PathBuf| std::fs::read(folder.join("last.safetensors")).unwrap();
    assert!(
        weights(path) == weights(calm.path().join("calm")),
        "after {steps} updates"
    );
}

#[test]
fn a_disk_that_fills_up_ends_the_run_and_leaves_its_last_checkpoint() {
    // With room for the small files alone, for none, and for a part of a checkpoint.
    for leave in [16, 0, 200] {
        let Some(disk) = Disk::new(6 << 10) else { return };
        let mut child = start(&disk.path, &endless("run"), "epoch 2/");
        disk.fill(leave);
        assert_eq!(code_within(&mut child, 60), Some(1));
        let said = said(&mut child);
        for part in ["error: ", "disk full", "bytes needed", "bytes free", "run/"] {
            assert!(said.contains(part), "{leave}: no `{part}` in {said}");
        }
        assert!(!said.contains("panicked"), "{said}");
        let end = ended(&disk.path.join("run"));
        assert_eq!(end["reason"], "failed", "{leave}: {end}");
        assert!(end["error"].as_str().unwrap().contains("disk full"), "{leave}: {end}");
        disk.drain();
        goes_on(&disk.path, "run");
    }
}

/// The contents of a run's `summary.json`.
fn ended(folder: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder.join("summary.json")).unwrap()).unwrap()
}

/// The page of a run, and its difference from itself, say how it ended.
fn reports(dir: &Path, out: &str, end: &str) {
    let page = dir.join(out).join("report.html");
    succeeds(dir, &["report", out, "--brief"]);
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains(end), "no `{end}` in the page");
    let diff = succeeds(dir, &["diff", out, out]).stdout;
    assert!(diff.contains(end), "no `{end}` in {diff}");
}

/// A run that is killed while the disk takes its time over a checkpoint: the lock on its temporary file is held.
#[test]
fn a_kill_while_a_checkpoint_is_written_leaves_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut child = start(dir.path(), &endless("run"), "epoch 2/");
    let held = newest(&path) + 20;
    let name = format!(".checkpoint-{held:09}.safetensors.kiln-tmp");
    let lock = std::fs::File::create(path.join(name)).unwrap();
    lock.lock().unwrap();
    while newest(&path) < held - 1 {
        assert!(child.try_wait().unwrap().is_none(), "the run has ended");
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(50));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(lock);
    assert_eq!((newest(&path), &ended(&path)["reason"]), (held - 1, &"running".into()));
    reports(dir.path(), "run", "killed, or could not write how it ended");
    // What was half written is removed by whatever opens the folder next.
    succeeds(
        dir.path(),
        &["eval", "--weights", "run", "--synthetic", "8", "--device", "cpu"],
    );
    goes_on(dir.path(), "run");
    assert_eq!(ended(&path)["reason"], "finished");
}

#[test]
fn a_read_only_file_system_is_an_error_and_the_run_goes_on_afterwards() {
    let Some(disk) = Disk::new(8 << 10) else { return };
    let mut first = endless("run");
    first.extend(["--max-steps", "4"]);
    succeeds(&disk.path, &first);
    assert!(mount(&["-o", "remount,ro"], &disk.path));
    let refused = run(&disk.path, &["train", "--resume", "run"]);
    refused.fails(1, &["Read-only file system", "run"]);
    let refused = run(&disk.path, &endless("other"));
    refused.fails(1, &["Read-only file system", "other"]);
    assert!(mount(&["-o", "remount,rw"], &disk.path));
    goes_on(&disk.path, "run");
}

#[test]
fn a_folder_that_becomes_read_only_ends_the_run_and_leaves_its_last_checkpoint() {
    /// A user without privileges, whom permissions stop.
    const NOBODY: u32 = 65534;
    let dir = tempfile::tempdir().unwrap();
    let privileged = rustix::process::geteuid().is_root();
    let mut command = kiln(dir.path(), &endless("run"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if privileged {
        std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return eprintln!("skipped: no other user can start the program: {e}"),
    };
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains("epoch 2/")),
        "{}",
        said(&mut child)
    );
    std::thread::spawn(move || lines.for_each(drop));
    let path = dir.path().join("run");
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o500);
    assert_eq!(code_within(&mut child, 60), Some(1));
    mode(0o700);
    let said = said(&mut child);
    assert!(
        said.contains("error: run/") && said.contains("Permission denied"),
        "{said}"
    );
    // What could not be removed then is removed by whatever opens the folder next.
    succeeds(
        dir.path(),
        &["eval", "--weights", "run", "--synthetic", "8", "--device", "cpu"],
    );
    goes_on(dir.path(), "run");
}

#[test]
fn a_limit_on_the_size_of_files_leaves_the_run_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = endless("run");
    first.extend(["--max-steps", "4"]);
    succeeds(dir.path(), &first);
    let resumed = kiln(dir.path(), &["train", "--resume", "run", "--max-steps", "8"]);
    let mut limited = Command::new("bash");
    limited
        .args(["-c", "ulimit -f 100 && exec \"$@\"", "bash"])
        .arg(resumed.get_program());
    limited.args(resumed.get_args()).current_dir(dir.path());
    limited.env("KILN_CUDA_DRIVER", crate::common::NO_DRIVER);
    Ran::of(limited.output().unwrap()).fails(1, &["run/", "(102400 bytes)", "ulimit -f"]);
    assert_eq!(newest(&dir.path().join("run")), 4);
    goes_on(dir.path(), "run");
}

#[test]
fn a_folder_in_the_place_of_the_runs_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("run"), dir.path().join("moved"));
    std::fs::create_dir(&moved).unwrap();
    std::fs::write(moved.join("theirs"), b"mine").unwrap();
    let mut child = start(dir.path(), &endless("run"), "epoch 2/");
    // At no time is there no folder at the path of the run.
    renameat_with(CWD, &path, CWD, &moved, RenameFlags::EXCHANGE).unwrap();
    let before = newest(&moved);
    // Over the ends of two epochs, at which weights are saved and read again for TensorBoard.
    while newest(&moved) <= before + 10 {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the run has ended with {status}: {}", said(&mut child));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    send(&child, Signal::INT);
    assert_eq!(code_within(&mut child, 60), Some(130));
    assert!(said(&mut child).contains("the folder was moved"));
    assert_eq!(names(&path), ["theirs"]);
    goes_on(dir.path(), "moved");
}

/// True while a checkpoint is being written: its temporary file is there.
fn writes(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.any(|name| name.starts_with(".checkpoint-") && name.ends_with(".kiln-tmp"))
}

#[test]
fn a_signal_while_a_checkpoint_is_written_stops_the_run_with_a_whole_one() {
    let dir = tempfile::tempdir().unwrap();
    for (out, signals, codes) in [
        ("int", &[Signal::INT][..], &[130][..]),
        ("term", &[Signal::TERM], &[143]),
        // The system may hand out the second one first, and the run may be at its end when the other comes.
        ("twice", &[Signal::INT, Signal::TERM], &[130, 143]),
    ] {
        let mut child = start(dir.path(), &endless(out), "epoch 2/");
        let path = dir.path().join(out);
        while !writes(&path) {
            assert!(child.try_wait().unwrap().is_none(), "the run has ended");
        }
        for signal in signals {
            send(&child, *signal);
        }
        let code = code_within(&mut child, 5).expect("it ends by itself");
        assert!(codes.contains(&code), "{out}: {code}");
        if signals.len() == 2 {
            // What the second signal cut off is removed by whatever opens the folder next.
            succeeds(
                dir.path(),
                &["eval", "--weights", out, "--synthetic", "8", "--device", "cpu"],
            );
        }
        goes_on(dir.path(), out);
    }
}

#[test]
fn memory_that_runs_out_ends_the_run_and_it_goes_on_with_more() {
    let dir = tempfile::tempdir().unwrap();
    // Batches of 8 fit, and those of 100 in which the validation is done do not.
    let sizes = ["--synthetic", "500", "--batch", "8", "--memory", "2M"];
    let rest = ["--checkpoint-steps", "20", "--device", "cpu", "--epochs", "2", "--out"];
    let args = |out, memory: bool| {
        let sizes = if memory { &sizes[..] } else { &sizes[..4] };
        [&["train", "lenet"][..], sizes, &rest, &[out]].concat()
    };
    let ran = run(dir.path(), &args("run", true));
    // The checkpoint is that of the last step before the validation, not the one of step 60.
    let newest = newest(&dir.path().join("run"));
    assert_eq!(newest, 63);
    ran.fails(
        1,
        &[
            "error: validation after step 63 (epoch 1): ",
            "cpu: out of memory",
            "bytes requested",
            "bytes free",
            "help: ",
            "kiln train --resume run and a smaller --valid-batch",
        ],
    );
    run(dir.path(), &["train", "--resume", "run", "--memory", "2M"]).fails(1, &["cpu: out of memory"]);
    let smaller = run(dir.path(), &["train", "--resume", "run", "--batch", "4"]);
    smaller.fails(2, &["`batch` is a setting of the run", "device.memory"]);
    succeeds(dir.path(), &args("calm", false));
    let weights = |out: &str| std::fs::read(dir.path().join(out).join("last.safetensors")).unwrap();
    std::fs::create_dir(dir.path().join("same")).unwrap();
    for entry in std::fs::read_dir(dir.path().join("run")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join("same").join(path.file_name().unwrap())).unwrap();
    }
    for (out, more) in [("run", ["--memory", "1G"]), ("same", ["--valid-batch", "8"])] {
        succeeds(dir.path(), &[&["train", "--resume", out][..], &more].concat());
        assert!(weights(out) == weights("calm"), "{more:?}");
    }
}
