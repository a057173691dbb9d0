//! The devices of this build: tests of what is not the same with CUDA and without it.

use crate::common::{NO_DRIVER, names, run, succeeds};

#[test]
fn devices_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let lines = succeeds(dir.path(), &["devices", "--json"]).json();
    let devices = lines[0]["devices"].as_array().unwrap();
    assert_eq!(
        (&devices[0]["name"], &devices[0]["usable"]),
        (&"cpu".into(), &true.into())
    );
    let [set, bf16] = ["instruction_set", "bf16"].map(|key| devices[0][key].as_str().unwrap());
    let blocks = &devices[0]["products"]["f32"];
    let [mc, nc, kc] = ["mc", "nc", "kc"].map(|key| blocks[key].as_u64().unwrap());
    let text = succeeds(dir.path(), &["devices"]).stdout;
    let blocks = format!("blocks of MC {mc}, NC {nc}, KC {kc}");
    for part in ["thread", set, bf16, &blocks] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn a_doctor_examines_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let told = succeeds(dir.path(), &["doctor"]).stdout;
    let parts = [
        "kiln",
        "cpu",
        "folder    ok",
        "net",
        "are those of the processor",
        "readings  ",
    ];
    for part in parts {
        assert!(told.contains(part), "no `{part}` in: {told}");
    }
    #[cfg(target_os = "linux")]
    assert!(told.contains("readings  ok     processor, memory"), "{told}");
    let json = succeeds(dir.path(), &["doctor", "--json"]).json().remove(0);
    let findings = json["findings"].as_array().unwrap();
    for finding in findings {
        assert_eq!(finding["state"] == "ok", finding["advice"].is_null(), "{finding}");
    }
    assert!(
        findings
            .iter()
            .any(|f| ["CUDA", "driver"].iter().any(|part| f["part"] == *part))
    );
}

#[test]
fn a_device_that_cannot_be_had_is_refused_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let reason = match cfg!(feature = "cuda") {
        true => NO_DRIVER,
        false => "this build of kiln has no CUDA",
    };
    let cuda = ["train", "lenet", "--synthetic", "8", "--device", "cuda"];
    run(dir.path(), &[&cuda[..], &["--out", "run"]].concat()).fails(1, &[reason, "--device cpu"]);
    run(dir.path(), &cuda).fails(1, &[reason]);
    assert_eq!(names(dir.path()), [""; 0], "a run that cannot start leaves nothing");
}

#[test]
fn a_run_on_no_device_in_particular_takes_the_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let data = ["--synthetic", "16", "--batch", "8", "--epochs", "1"];
    let train = [&["train", "lenet", "--json", "--out", "run"][..], &data].concat();
    let lines = succeeds(dir.path(), &train).json();
    assert_eq!(lines[0]["config"]["device"]["name"], "cpu", "{}", lines[0]);
    let eval = succeeds(
        dir.path(),
        &["eval", "-w", "run/last.safetensors", "--synthetic", "16", "--json"],
    );
    assert!(eval.json()[0]["loss"].is_number(), "{}", eval.stdout);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_forecast_is_of_a_build_with_cuda() {
    let dir = tempfile::tempdir().unwrap();
    let forecast = run(dir.path(), &["forecast", "lenet", "--batch", "8", "--gpu", "h100"]);
    forecast.fails(1, &["this build of kiln has no CUDA", "--features cuda"]);
}
