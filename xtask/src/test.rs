//! `cargo xtask test`: tidy, then every test of the workspace, and one closing line that adds them up.

use crate::tidy;
use crate::toolkit::{self, Toolkit};
use crate::workspace::{Outcome, cargo, line};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Instant;

#[derive(clap::Args)]
#[command(after_help = "\
`cargo xtask test` runs on every machine and needs a Rust toolchain, and no GPU: the CUDA kernels run on the emulated
driver, once plain and once in its checker mode, whose findings are counted: one is a failure. They need nvcc to compile,
and nvcc a C++ compiler; where there is no nvcc, Python gets it (see `cargo xtask toolkit`), and where there is no Python
either, the CUDA crates are left out and a line says so.
What follows `--` goes to `cargo test`:
  cargo xtask test -- -p kiln-nn gradcheck")]
pub(crate) struct Args {
    /// Test what users run: optimised, with the release profile
    #[arg(long)]
    pub(crate) release: bool,
    /// The seed that properties draw their cases from: a number, or `random` for new cases at each run
    #[arg(long, default_value_t, value_name = "SEED")]
    pub(crate) seed: Seed,
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
const CHECKED: [&str; 9] = [
    "emulated", "large", "cuda", "eager", "lazy", "random", "memory", "errors", "peers",
];

/// The program as it is built without CUDA: where the workspace is tested with it, this is tested as well.
const WITHOUT_CUDA: [&str; 3] = ["--no-fail-fast", "--package", "kiln-cli"];

/// The packages to build: all, or all but those that nvcc compiles.
pub(crate) fn selection(toolkit: &Toolkit) -> Vec<String> {
    let words: &[&str] = match toolkit {
        Toolkit::Ready => &["--workspace", "--features", "kiln-cli/cuda,kiln-benches/cuda"],
        // The device layer builds without nvcc; its tests run kernels.
        Toolkit::Missing(_) => &[
            "--workspace",
            "--exclude",
            "kiln-kernels",
            "--exclude",
            "kiln-cuda",
            "--exclude",
            "kiln-device",
        ],
    };
    words.iter().map(|w| w.to_string()).collect()
}

pub(crate) fn run(args: &Args) -> Outcome {
    let tidy = tidy::run()?;
    let mut total = Total::default();
    let mut well = true;
    let mut notes = Vec::new();
    if args.cargo.is_empty() {
        let toolkit = toolkit::ensure();
        let mut words = vec!["--no-fail-fast".to_string()];
        words.extend(selection(&toolkit));
        well &= cargo_test(args, &words, &[], &mut total)?;
        match &toolkit {
            Toolkit::Ready => {
                well &= cargo_test(args, &WITHOUT_CUDA.map(String::from), &[], &mut total)?;
                let (passed, findings) = checked(args, words, &mut total)?;
                well &= passed && findings == Some(0);
                notes.push(match findings {
                    Some(n) => format!("the checker of the emulated driver: {n} findings"),
                    None => "the checker of the emulated driver: FAILED, it watched no kernel".to_string(),
                });
            }
            Toolkit::Missing(why) => notes.push(format!("CUDA was left out: {why}")),
        }
    } else {
        well &= cargo_test(args, &args.cargo, &[], &mut total)?;
    }

    println!();
    for note in notes {
        println!("{note}");
    }
    println!("tidy: {}", if tidy { "ok" } else { "FAILED (see above)" });
    if well && total.passed == 0 {
        println!("no test ran");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    );
    Ok(tidy && well && total.passed > 0)
}

/// Runs every kernel once more, watched by the emulated driver's checker; whether all passed, and how many findings there
/// were. A finding is an error of the call, so a test that met one failed; the count has those that no test waited for.
/// `None` when the checker was never at work. The selection of packages is the same, so nothing is built anew.
fn checked(args: &Args, mut words: Vec<String>, total: &mut Total) -> Result<(bool, Option<usize>), String> {
    for name in CHECKED {
        words.extend(["--test".to_string(), name.to_string()]);
    }
    let file = std::env::temp_dir().join(format!("kiln-findings-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let env = [
        ("KILN_EMULATOR_CHECK", "1"),
        ("KILN_EMULATOR_FINDINGS", &*file.to_string_lossy()),
    ];
    let passed = cargo_test(args, &words, &env, total)?;
    // The driver makes the file when it starts.
    let text = std::fs::read_to_string(&file).ok();
    let _ = std::fs::remove_file(&file);
    for finding in text.iter().flat_map(|t| t.lines()) {
        println!("finding: {finding}");
    }
    Ok((passed, text.map(|t| t.lines().count())))
}

/// Runs `cargo test WORDS`; its output passes through as it comes, and libtest's own result lines are added up.
fn cargo_test(args: &Args, words: &[String], env: &[(&str, &str)], total: &mut Total) -> Outcome {
    let mut all = vec!["test"];
    if args.release {
        all.push("--release");
    }
    all.extend(words.iter().map(String::as_str));
    let mut command = cargo(all);
    command.envs(env.iter().copied());
    if let Seed::Fixed(seed) = args.seed {
        command.env("PROPTEST_RNG_SEED", seed.to_string());
    }
    let shown: String = env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    println!("$ {shown}{}", line(&command));
    let start = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run `{}`: {e}", line(&command)))?;
    let (failed, mut out) = (total.failed, std::io::stdout());
    if let Some(stdout) = child.stdout.take() {
        for text in BufReader::new(stdout).split(b'\n') {
            let text = text.map_err(|e| format!("cannot read the tests' output: {e}"))?;
            total.read(&String::from_utf8_lossy(&text));
            // A closed pipe (`| head`) must not end the tests.
            let _ = out.write_all(&text).and_then(|()| out.write_all(b"\n"));
        }
    }
    let status = child.wait().map_err(|e| format!("cannot wait for the tests: {e}"))?;
    if !status.success() && total.failed == failed {
        println!("cargo test did not finish: {status}");
    }
    println!("took {:.0} s, building included", start.elapsed().as_secs_f64());
    Ok(status.success())
}

/// The sum of libtest's result lines.
#[derive(Default, Debug, PartialEq)]
struct Total {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Total {
    /// Adds `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn read(&mut self, text: &str) {
        let Some(rest) = text.strip_prefix("test result: ") else {
            return;
        };
        let counts = rest.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let count = words.next().and_then(|n| n.parse().ok()).unwrap_or(0);
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed") => self.failed += count,
                Some("ignored") => self.skipped += count,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Seed, Toolkit, Total, WITHOUT_CUDA, selection};

    #[test]
    fn seeds_are_numbers_or_random() {
        assert_eq!("7".parse(), Ok(Seed::Fixed(7)));
        assert_eq!("random".parse(), Ok(Seed::Random));
        assert!("soon".parse::<Seed>().is_err());
    }

    #[test]
    fn without_nvcc_all_but_what_it_compiles_is_tested() {
        let has = |words: &[String], wanted: &[&str]| words.windows(wanted.len()).any(|w| w == wanted);
        let ready = selection(&Toolkit::Ready);
        assert!(
            has(&ready, &["--workspace"]) && !has(&ready, &["--exclude"]),
            "{ready:?}"
        );
        assert!(
            has(&ready, &["--features", "kiln-cli/cuda,kiln-benches/cuda"]),
            "{ready:?}"
        );
        let missing = selection(&Toolkit::Missing("no nvcc".to_string()));
        assert!(
            has(&missing, &["--workspace"]) && !has(&missing, &["--features"]),
            "{missing:?}"
        );
        for package in ["kiln-kernels", "kiln-cuda", "kiln-device"] {
            assert!(has(&missing, &["--exclude", package]), "{missing:?}");
        }
        assert_eq!(missing.len(), 1 + 2 * 3, "{missing:?}");
        assert!(!WITHOUT_CUDA.contains(&"--features"));
    }

    #[test]
    fn result_lines_add_up() {
        let mut total = Total::default();
        for text in [
            "running 3 tests",
            "test a ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            "test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s",
        ] {
            total.read(text);
        }
        let expected = Total {
            passed: 5,
            failed: 4,
            skipped: 1,
        };
        assert_eq!(total, expected);
    }
}
