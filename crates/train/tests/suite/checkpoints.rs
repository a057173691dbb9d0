//! The checkpoints of a folder: how many there are, and those that are damaged or of another run.

use crate::common::{Net, images, loader, step};
use crate::resume::{names, options, small};
use kiln_cpu::Cpu;
use kiln_nn::optim::Sgd;
use kiln_train::{Checkpoint, Checkpoints, RunFolder, TrainError, TrainOptions, Trainer, Warning};

#[test]
fn only_the_last_checkpoints_are_kept() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("run");
    small(RunFolder::create(&path).unwrap(), false, options(2, None), 4).unwrap();
    let mut left: Vec<_> = names(&path)
        .into_iter()
        .filter(|n| n.starts_with("checkpoint"))
        .collect();
    left.sort();
    let expected = [7, 8].map(|step| {
        [
            format!("checkpoint-{step:09}.json"),
            format!("checkpoint-{step:09}.safetensors"),
        ]
    });
    assert_eq!(left, expected.concat());
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("run");
    let (_, weights) = small(RunFolder::create(&path).unwrap(), false, options(2, None), 4).unwrap();
    let newest = path.join("checkpoint-000000008.safetensors");
    let (manifest, good) = (path.join("checkpoint-000000008.json"), std::fs::read(&newest).unwrap());
    let text = std::fs::read_to_string(&manifest).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let harms: [(&str, &dyn Fn()); 6] = [
        ("not what was written", &|| std::fs::write(&newest, &flipped).unwrap()),
        ("bytes", &|| std::fs::write(&newest, &good[..good.len() - 1]).unwrap()),
        ("bytes", &|| {
            std::fs::write(&newest, [&good[..], b"x"].concat()).unwrap()
        }),
        ("missing", &|| std::fs::remove_file(&newest).unwrap()),
        ("EOF", &|| std::fs::write(&manifest, &text[..text.len() / 2]).unwrap()),
        ("names", &|| {
            std::fs::write(&manifest, text.replace("000000008.s", "000000007.s")).unwrap()
        }),
    ];
    for (why, harm) in harms {
        std::fs::write(&newest, &good).unwrap();
        std::fs::write(&manifest, &text).unwrap();
        harm();
        let folder = RunFolder::reopen(&path).unwrap();
        let checkpoint = Checkpoint::latest(&folder).unwrap();
        assert_eq!(checkpoint.manifest().step(), 7, "{why}");
        let (report, resumed) = small(folder, true, options(2, None), 4).unwrap();
        assert!(resumed == weights, "{why}");
        let Some(Warning::Damaged { reason, .. }) = report.warnings.first() else {
            panic!("{why}: {:?}", report.warnings);
        };
        assert!(reason.contains(why), "{reason}");
    }
}

#[test]
fn a_checkpoint_of_another_run_or_version_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("run");
    small(RunFolder::create(&path).unwrap(), false, options(2, None), 4).unwrap();
    let refused = |options: TrainOptions, batch: usize, why: &str| {
        let error = small(RunFolder::reopen(&path).unwrap(), true, options, batch).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(options(2, None), 8, "its batch size is 4, here it is 8");
    let accumulated = TrainOptions {
        accumulate: 2,
        ..options(2, None)
    };
    refused(accumulated, 4, "its accumulate is 1, here it is 2");
    for name in names(&path)
        .iter()
        .filter(|n| n.starts_with("checkpoint") && n.ends_with(".json"))
    {
        let text = std::fs::read_to_string(path.join(name)).unwrap();
        std::fs::write(path.join(name), text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    }
    refused(
        options(2, None),
        4,
        "it has version 2 of the format, and this program reads version 1",
    );
    for name in names(&path).iter().filter(|n| n.starts_with("checkpoint")) {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    refused(options(2, None), 4, "holds no checkpoint");
    assert!(RunFolder::reopen(parent.path().join("none")).is_err());
}

#[test]
fn options_of_checkpoints_are_checked() {
    for checkpoints in [
        Checkpoints {
            keep: 0,
            ..Default::default()
        },
        Checkpoints {
            every_steps: Some(0),
            ..Default::default()
        },
    ] {
        let options = TrainOptions {
            checkpoints: Some(checkpoints),
            ..Default::default()
        };
        let cpu = Cpu::new();
        let data = loader(images(4, 0), 4, false, 0);
        let error = Trainer::new(&cpu, options).fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.1), step, &data, None);
        assert!(matches!(error, Err(TrainError::InvalidArgument { .. })));
    }
}
