//! A run whose machine is watched.

use kiln_cpu::Cpu;
use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic};
use kiln_monitor::{Facts, Gpu, GpuState, Machine, Watch, verdict};
use kiln_nn::layers::{Flatten, Linear};
use kiln_nn::optim::Sgd;
use kiln_nn::{Init, Layer, Sequential};
use kiln_train::{EpochRecord, Output, TrainOptions, Trainer};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A GPU that is half busy and uses ten joules between two looks.
struct Fake(f64);

impl Gpu for Fake {
    fn name(&self) -> String {
        "fake".to_string()
    }
    fn state(&mut self) -> GpuState {
        self.0 += 10.0;
        GpuState {
            utilisation: Some(0.5),
            memory_used: Some(3),
            memory_total: Some(4),
            joules: Some(self.0),
            celsius: Some(66.0),
            ..Default::default()
        }
    }
}

/// A machine on which nothing can be read but a GPU.
fn bare() -> (tempfile::TempDir, Machine) {
    let root = tempfile::tempdir().unwrap();
    let machine = Machine::at(root.path()).with_gpu(Ok(Box::new(Fake(0.0))));
    (root, machine)
}

fn epochs(watch: Watch) -> Vec<EpochRecord> {
    let cpu = Cpu::new();
    let data = Arc::new(Synthetic::images(64, &[4, 4, 1], 2, 0).unwrap());
    let data = Loader::new(data, LoaderOptions::default()).unwrap();
    let init = &mut Init::new(&cpu, 0);
    let mut net = Sequential::new()
        .push(Flatten::default())
        .push(Linear::new(init, 16, 2).unwrap());
    let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
        Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
    };
    let options = TrainOptions {
        epochs: 2,
        ..Default::default()
    };
    let mut trainer = Trainer::new(&cpu, options).callback(watch);
    let report = trainer
        .fit(&mut net, &mut Sgd::new(0.1), step, &data, Some(&data))
        .unwrap();
    report.history.epochs().to_vec()
}

#[test]
fn records_have_what_the_machine_tells_and_nothing_else() {
    let (_root, machine) = bare();
    let lacks: Vec<&str> = machine.absent().iter().map(|a| a.what).collect();
    assert_eq!(lacks, ["processor", "memory", "temperature", "energy"]);
    let watch = Watch::start(machine, Duration::from_secs(3600)).unwrap();
    assert_eq!(watch.gpu(), Some("fake"));
    for epoch in epochs(watch) {
        let names: Vec<&str> = epoch.machine.keys().map(String::as_str).collect();
        let expected = [
            "gpu_celsius",
            "gpu_joules",
            "gpu_memory_bytes",
            "gpu_memory_used_share",
            "gpu_utilisation",
            "gpu_watts",
            "joules",
            "valid_gpu_joules",
            "valid_joules",
        ];
        assert_eq!(names, expected);
        // One look at the end of the epoch, after that at its begin, and so of its validation.
        assert_eq!(
            (epoch.machine["gpu_joules"], epoch.machine["gpu_utilisation"]),
            (10.0, 0.5)
        );
        assert_eq!((epoch.machine["valid_joules"], epoch.machine["joules"]), (10.0, 10.0));
        assert_eq!(epoch.machine["gpu_memory_used_share"], 0.75);
        let facts = Facts::of(&epoch, true);
        assert_eq!((facts.gpu_utilisation, facts.memory_used), (Some(0.5), None));
        assert!(!verdict(&facts).text.is_empty());
    }
}

#[test]
fn the_thread_reads_at_intervals_and_ends_with_the_last_watch() {
    let (_root, machine) = bare();
    let watch = Watch::start(machine, Duration::from_millis(1)).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let seen = loop {
        let sample = watch.sample();
        if sample.gpu.is_some_and(|gpu| gpu.joules > Some(50.0)) {
            break sample;
        }
        assert!(Instant::now() < until, "the machine is not read");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(seen.lap.gpu_utilisation, Some(0.5));
    // All looks since the start are in the first lap, whichever thread made them.
    let (first, total) = (watch.lap(), watch.clone());
    assert!(first.gpu_joules >= seen.gpu.unwrap().joules.map(|j| j - 10.0));
    drop(watch);
    assert!(total.lap().gpu_joules > Some(0.0));
}

#[cfg(target_os = "linux")]
#[test]
fn this_machine_is_read() {
    let watch = Watch::start(Machine::this(), Duration::from_secs(3600)).unwrap();
    let begin = Instant::now();
    let mut sum = 0u64;
    // Long enough for a tick of the processor's clock.
    while begin.elapsed() < Duration::from_millis(60) {
        sum = std::hint::black_box(sum + 1);
    }
    let lap = watch.lap();
    assert!(lap.seconds >= 0.06, "{lap:?}");
    let shares = [lap.cpu_utilisation, lap.memory_used].into_iter().flatten();
    assert!(
        shares.clone().count() == 2 && shares.clone().all(|s| (0.0..=1.0).contains(&s)),
        "{lap:?}"
    );
    assert!(lap.process_cores.is_some() && lap.process_memory > Some(1e6), "{lap:?}");
}
