//! `cargo xtask test`: tidy, then every test of the workspace, what took how long, and one closing line that adds them up.

mod output;
mod times;

pub(crate) use times::Times;

use crate::browser;
use crate::fuzz;
use crate::gpu_gates;
use crate::package;
use crate::tidy;
use crate::toolkit::{self, Toolkit};
use crate::workspace::{Outcome, cargo, line};
use output::{Output, Total};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Instant;

#[derive(clap::Args)]
#[command(after_help = "\
`cargo xtask test` runs on every machine and needs a Rust toolchain, and no GPU: the CUDA kernels run on the emulated
driver, once plain and once in its checker mode, which has fewer cases of each property and whose findings are counted: one is
a failure. They need nvcc to compile, and nvcc a C++ compiler; where there is no nvcc, Python gets it (see `cargo xtask
toolkit`), and where there is no Python either, the CUDA crates are left out and a line says so.
At its end stand the seconds of builds, of every suite and of the ten slowest tests, and the tests that failed. A test's time is that between its begin
and its end, with others of its suite beside it; how it is found is said in xtask/src/test/output.rs.
--full takes hours on two cores. To the everyday run it adds: sizes that tests cut down otherwise (KILN_TEST_FULL=1), the
program as it is built without CUDA, every property on seven more seeds, each fuzz target for a minute, the crates' packages
(`cargo xtask package`), and reports of runs in a browser if there is one (`cargo xtask browser`).
What follows `--` goes to `cargo test`:
  cargo xtask test -- -p kiln-nn gradcheck")]
pub(crate) struct Args {
    /// Test what users run: optimised, with the release profile
    #[arg(long)]
    pub(crate) release: bool,
    /// The seed that properties draw their cases from: a number, or `random` for new cases at each run
    #[arg(long, default_value_t, value_name = "SEED")]
    pub(crate) seed: Seed,
    /// Also what takes too long for every day: see below
    #[arg(long)]
    pub(crate) full: bool,
    /// Passed to `cargo test` in place of `--workspace`
    #[arg(last = true)]
    pub(crate) cargo: Vec<String>,
}

/// The source of the cases of properties. They are fixed by default, so that a change is judged by what it changed;
/// plain `cargo test` draws new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seed {
    Fixed(u64),
    Random,
}

impl Seed {
    /// Another seed for each number.
    fn after(self, more: u64) -> Self {
        match self {
            Seed::Fixed(seed) => Seed::Fixed(seed.wrapping_add(more)),
            Seed::Random => Seed::Random,
        }
    }
}

impl Default for Seed {
    fn default() -> Self {
        Seed::Fixed(2026)
    }
}

impl std::fmt::Display for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Seed::Fixed(seed) => seed.fmt(f),
            Seed::Random => f.write_str("random"),
        }
    }
}

impl std::str::FromStr for Seed {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "random" => Ok(Seed::Random),
            number => number
                .parse()
                .map(Seed::Fixed)
                .map_err(|_| format!("`{number}` is neither a number nor `random`")),
        }
    }
}

/// The tests that run kernels: the ops, the device layer, the program.
const CHECKED: [&str; 10] = [
    "emulated", "large", "cuda", "kernels", "eager", "lazy", "random", "memory", "errors", "peers",
];

/// The program as it is built without CUDA: where the workspace is tested with it, `--full` runs those tests of the program that its
/// devices change on this build as well. Chosen by its targets and not as a package: cargo unites the features of dependencies
/// over the packages that are chosen, and would build all of them anew for other features.
const WITHOUT_CUDA: [&str; 6] = ["--no-fail-fast", "--workspace", "--test", "suite", "--", "devices::"];

/// The packages with properties, whose cases a seed draws.
const PROPERTIES: [&str; 7] = [
    "kiln-cpu",
    "kiln-data",
    "kiln-nn",
    "kiln-npy",
    "kiln-testkit",
    "kiln-tokenizer",
    "kiln-train",
];
/// The same of those that nvcc compiles.
const CUDA_PROPERTIES: [&str; 3] = ["kiln-cuda", "kiln-device", "kiln-example-kernel"];
/// The seeds that `--full` draws cases from besides the everyday one.
const MORE_SEEDS: u64 = 7;
/// The cases of each property under the checker of the emulated driver, unless with `--full`: it watches every kernel, and more shapes are
/// what the plain run is for.
const CHECKED_CASES: &str = "6";
/// The seconds that `--full` gives each fuzz target.
const FUZZ_SECONDS: u64 = 60;

pub(crate) fn run(args: &Args) -> Outcome {
    run_timed(args, &mut Times::default())
}

/// Runs the tests and shows `times`, theirs added, before the closing lines.
pub(crate) fn run_timed(args: &Args, times: &mut Times) -> Outcome {
    let tidy = tidy::run()?;
    let mut run = Run {
        args,
        total: Total::default(),
        times,
    };
    let mut well = true;
    let mut notes = Vec::new();
    if args.cargo.is_empty() {
        let toolkit = toolkit::ensure();
        let mut words = vec!["--no-fail-fast".to_string()];
        words.extend(toolkit.selection());
        well &= run.cargo_test("", &words, args.seed, &[])?;
        match &toolkit {
            Toolkit::Ready => {
                if args.full {
                    well &= run.cargo_test("without CUDA: ", &WITHOUT_CUDA.map(String::from), args.seed, &[])?;
                }
                let (passed, findings) = run.checked(words)?;
                well &= passed && findings == Some(0);
                notes.push(match findings {
                    Some(n) => format!("the checker of the emulated driver: {n} findings"),
                    None => "the checker of the emulated driver: FAILED, it watched no kernel".to_string(),
                });
            }
            Toolkit::Missing(why) => notes.push(format!("CUDA was left out: {why}")),
        }
        if matches!(toolkit, Toolkit::Ready) {
            let gates = || gpu_gates::run(&gpu_gates::Args::all());
            // A failure too, so that the times and the counts of the tests are still shown.
            let gates = run.times.step("gates of the GPU", gates).unwrap_or_else(|why| {
                println!("{why}");
                false
            });
            notes.push(format!(
                "launches and memory of steps on a GPU: {}",
                if gates { "ok" } else { "FAILED (see above)" }
            ));
            well &= gates;
        }
        if args.full {
            well &= run.more_seeds(&toolkit)?;
            let fuzz = || fuzz::run(&fuzz::Args::all(FUZZ_SECONDS));
            well &= run.times.step("fuzz targets", fuzz)?;
            well &= run.times.step("packages", package::run)?;
            match browser::find() {
                Some(_) => well &= run.times.step("reports in a browser", browser::run)?,
                None => notes.push("no Chromium: reports were not opened in a browser".to_string()),
            }
        }
    } else {
        well &= run.cargo_test("", &args.cargo, args.seed, &[])?;
    }

    let Run { total, times, .. } = run;
    println!("\n{times}");
    for note in notes {
        println!("{note}");
    }
    println!("tidy: {}", if tidy { "ok" } else { "FAILED (see above)" });
    if well && total.passed == 0 {
        println!("no test ran");
    }
    // Here too, since a suite's own list of them stands hundreds of lines above.
    for failure in &total.failures {
        println!("{failure}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    );
    Ok(tidy && well && total.passed > 0)
}

/// The tests of one `cargo xtask test`, so far.
struct Run<'a> {
    args: &'a Args,
    total: Total,
    times: &'a mut Times,
}

impl Run<'_> {
    /// Draws other cases of every property, which is what more cases of each would be.
    fn more_seeds(&mut self, toolkit: &Toolkit) -> Outcome {
        let mut packages = PROPERTIES.to_vec();
        if matches!(toolkit, Toolkit::Ready) {
            packages.extend(CUDA_PROPERTIES);
        }
        let mut words = vec!["--no-fail-fast", "--tests"];
        words.extend(packages.iter().flat_map(|name| ["--package", name]));
        let words: Vec<String> = words.into_iter().map(String::from).collect();
        let mut well = true;
        for more in 1..=MORE_SEEDS {
            let seed = self.args.seed.after(more);
            well &= self.cargo_test(&format!("seed {seed}: "), &words, seed, &[])?;
        }
        Ok(well)
    }

    /// Runs every kernel once more, watched by the emulated driver's checker; whether all passed, and how many findings there
    /// were. A finding is an error of the call, so a test that met one failed; the count has those that no test waited for.
    /// `None` when the checker was never at work. The selection of packages is the same, so nothing is built anew.
    fn checked(&mut self, mut words: Vec<String>) -> Result<(bool, Option<usize>), String> {
        for name in CHECKED {
            words.extend(["--test".to_string(), name.to_string()]);
        }
        let file = std::env::temp_dir().join(format!("kiln-findings-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let findings = file.to_string_lossy();
        let mut env = vec![("KILN_EMULATOR_CHECK", "1"), ("KILN_EMULATOR_FINDINGS", &*findings)];
        if !self.args.full {
            env.push(("PROPTEST_CASES", CHECKED_CASES));
        }
        let passed = self.cargo_test("checked: ", &words, self.args.seed, &env)?;
        // The driver makes the file when it starts.
        let text = std::fs::read_to_string(&file).ok();
        let _ = std::fs::remove_file(&file);
        for finding in text.iter().flat_map(|t| t.lines()) {
            println!("finding: {finding}");
        }
        Ok((passed, text.map(|t| t.lines().count())))
    }

    /// Builds what `cargo test WORDS` runs, then runs it; its output passes through as it comes and is read on the way.
    fn cargo_test(&mut self, label: &str, words: &[String], seed: Seed, env: &[(&str, &str)]) -> Outcome {
        let test = |more: &[&str]| {
            let mut all = vec!["test"];
            all.extend(more);
            if self.args.release {
                all.push("--release");
            }
            all.extend(words.iter().map(String::as_str));
            let mut command = cargo(all);
            command.envs(env.iter().copied());
            if let Seed::Fixed(seed) = seed {
                command.env("PROPTEST_RNG_SEED", seed.to_string());
            }
            if self.args.full {
                command.env("KILN_TEST_FULL", "1");
            }
            command
        };
        let shown: String = env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let mut command = test(&[]);
        println!("$ {shown}{}", line(&command));
        // Examples in documentation are compiled while they are tested, and cargo refuses to do one without the other.
        let mut names = HashMap::new();
        if !words.iter().any(|word| word == "--doc") {
            let mut build = test(&["--no-run", "--message-format=json-render-diagnostics"]);
            let build = build.stderr(Stdio::inherit());
            let built = self.times.step(format!("{label}build of the tests"), || build.output());
            let built = built.map_err(|e| format!("cannot run `{}`: {e}", line(&command)))?;
            if !built.status.success() {
                println!("the tests do not build: {}", built.status);
                return Ok(false);
            }
            names = suites(&String::from_utf8_lossy(&built.stdout));
        }
        // One pipe for both, so that cargo's lines stay between those of the tests that they announce.
        let cannot = |e| format!("cannot run `{}`: {e}", line(&test(&[])));
        let (reader, writer) = std::io::pipe().map_err(cannot)?;
        command.stdout(writer.try_clone().map_err(cannot)?).stderr(writer);
        let failed = self.total.failed;
        let mut child = command.spawn().map_err(cannot)?;
        // Its ends of the pipe, or reading would not come to an end.
        drop(command);
        let (start, mut out) = (Instant::now(), std::io::stdout());
        let mut output = Output {
            names,
            label,
            threads: threads(words),
            total: &mut self.total,
            times: self.times,
            open: None,
        };
        for text in BufReader::new(reader).split(b'\n') {
            let text = text.map_err(|e| format!("cannot read the tests' output: {e}"))?;
            output.line(&String::from_utf8_lossy(&text), start.elapsed().as_secs_f64());
            // A closed pipe (`| head`) must not end the tests.
            let _ = out.write_all(&text).and_then(|()| out.write_all(b"\n"));
        }
        output.end(start.elapsed().as_secs_f64());
        let status = child.wait().map_err(|e| format!("cannot wait for the tests: {e}"))?;
        if !status.success() && self.total.failed == failed {
            println!("cargo test did not finish: {status}");
        }
        Ok(status.success())
    }
}

/// The tests that libtest runs at once.
fn threads(words: &[String]) -> usize {
    let asked = words
        .iter()
        .enumerate()
        .find_map(|(at, word)| match word.strip_prefix("--test-threads") {
            Some("") => words.get(at + 1).cloned(),
            Some(rest) => rest.strip_prefix('=').map(String::from),
            None => None,
        });
    let asked = asked.or_else(|| std::env::var("RUST_TEST_THREADS").ok());
    let all = || std::thread::available_parallelism().map_or(1, |n| n.get());
    asked.and_then(|n| n.parse().ok()).unwrap_or_else(all)
}

/// The suites of a build by the names of their programs, as one would ask cargo for them: `kiln-nn --test weights`.
fn suites(messages: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for message in messages.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()) {
        let (target, text) = (&message["target"], |value: &Value| value.as_str().map(String::from));
        let (Some(program), Some(id)) = (text(&message["executable"]), text(&message["package_id"])) else {
            continue;
        };
        // `path+file:///home/kiln/crates/nn#kiln-nn@0.1.0`, or `…/xtask#0.1.0` where the folder has the package's name.
        let (path, rest) = id.split_once('#').unwrap_or((&id, ""));
        let package = rest
            .split_once('@')
            .map_or(path.rsplit('/').next().unwrap_or(path), |(name, _)| name);
        let (kind, name) = (target["kind"][0].as_str(), target["name"].as_str().unwrap_or_default());
        let name = match kind {
            Some(kind @ ("test" | "bin" | "example" | "bench")) => format!("{package} --{kind} {name}"),
            _ => format!("{package} --lib"),
        };
        let program = program.rsplit(['/', '\\']).next().unwrap_or_default();
        found.insert(program.to_string(), name);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Seed, Toolkit, WITHOUT_CUDA, suites, threads};
    use serde_json::json;

    #[test]
    fn seeds_are_numbers_or_random() {
        assert_eq!("7".parse(), Ok(Seed::Fixed(7)));
        assert_eq!("random".parse(), Ok(Seed::Random));
        assert!("soon".parse::<Seed>().is_err());
    }

    #[test]
    fn without_nvcc_all_but_what_it_compiles_is_tested() {
        let has = |words: &[String], wanted: &[&str]| words.windows(wanted.len()).any(|w| w == wanted);
        let ready = Toolkit::Ready.selection();
        assert!(
            has(&ready, &["--workspace"]) && !has(&ready, &["--exclude"]),
            "{ready:?}"
        );
        assert!(
            has(&ready, &["--features", "kiln-cli/cuda,kiln-benches/cuda"]),
            "{ready:?}"
        );
        let missing = Toolkit::Missing("no nvcc".to_string()).selection();
        assert!(
            has(&missing, &["--workspace"]) && !has(&missing, &["--features"]),
            "{missing:?}"
        );
        for package in ["kiln-kernels", "kiln-cuda", "kiln-device", "kiln-example-kernel"] {
            assert!(has(&missing, &["--exclude", package]), "{missing:?}");
        }
        assert_eq!(missing.len(), 1 + 2 * 4, "{missing:?}");
        assert!(!WITHOUT_CUDA.contains(&"--features"));
    }

    #[test]
    fn more_seeds_are_other_seeds() {
        assert_eq!(Seed::Fixed(u64::MAX).after(2), Seed::Fixed(1));
        assert_eq!(Seed::Random.after(2), Seed::Random);
    }

    #[test]
    fn suites_are_named_as_cargo_takes_them() {
        let message = |executable: &str, id: &str, kind: &str, name: &str| {
            let target = json!({ "kind": [kind], "name": name });
            json!({ "executable": executable, "package_id": id, "target": target }).to_string()
        };
        let messages = [
            message(
                "/t/debug/deps/weights-1",
                "path+file:///k/crates/nn#kiln-nn@0.1.0",
                "test",
                "weights",
            ),
            message(
                "/t/debug/deps/kiln_nn-2",
                "path+file:///k/crates/nn#kiln-nn@0.1.0",
                "lib",
                "kiln_nn",
            ),
            message("/t/debug/deps/xtask-3", "path+file:///k/xtask#0.1.0", "bin", "xtask"),
            json!({ "reason": "build-finished", "executable": null }).to_string(),
            "no JSON".to_string(),
        ];
        let expected = [
            ("weights-1", "kiln-nn --test weights"),
            ("kiln_nn-2", "kiln-nn --lib"),
            ("xtask-3", "xtask --bin xtask"),
        ];
        let expected = expected.map(|(program, name)| (program.to_string(), name.to_string()));
        assert_eq!(suites(&messages.join("\n")), expected.into());
    }

    #[test]
    fn threads_are_those_asked_for() {
        let words = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
        assert_eq!(threads(&words(&["-p", "kiln-nn", "--", "--test-threads", "3"])), 3);
        assert_eq!(threads(&words(&["--", "--test-threads=5", "conv"])), 5);
        assert!(threads(&[]) >= 1);
    }
}
