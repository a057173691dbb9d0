//! `kiln verify-resume`: kills runs, resumes them, and compares them with one that never stopped.

mod compare;
mod runs;

use crate::args::VerifyResumeArgs;
use crate::config::{self, Settings};
use crate::error::{Error, Result, code};
use crate::output::{self, counted, line};
use crate::signals::Signals;
use kiln_files::shown_path;
use runs::Runs;
use serde_json::json;
use std::path::Path;

/// Checkpoints of a run, if the settings do not say after how many steps they are written.
const CHECKPOINTS: u64 = 10;

pub(crate) fn run(args: VerifyResumeArgs) -> Result<u8> {
    let mut settings = Settings::of(config::combined(&args.config)?)?;
    let steps = args.steps.get();
    settings.max_steps = Some(steps);
    let every = settings.checkpoints.every_steps.unwrap_or((steps / CHECKPOINTS).max(1));
    settings.checkpoints.every_steps = Some(every);
    let device = settings.device.name.unwrap_or_default();
    let config = settings.config(&String::from(device));
    let signals = Signals::install()?;
    let held = match &settings.out {
        Some(path) => Place::Kept(path),
        None => {
            Place::Temporary(tempfile::tempdir().map_err(|e| Error::failure(format!("no folder for the runs: {e}")))?)
        }
    };
    let runs = Runs::new(held.path(), &config, every, signals.stop_handle())?;
    let verified = verify(&args, &runs, held.path());
    match signals.exit_code() {
        Some(code) => Ok(code),
        None => verified,
    }
}

/// The folder that holds the folders of the runs.
enum Place<'a> {
    Kept(&'a Path),
    Temporary(tempfile::TempDir),
}

impl Place<'_> {
    fn path(&self) -> &Path {
        match self {
            Place::Kept(path) => path,
            Place::Temporary(folder) => folder.path(),
        }
    }
}

fn verify(args: &VerifyResumeArgs, runs: &Runs, folder: &Path) -> Result<u8> {
    let say = |text: &str| {
        if !args.json {
            line(text);
        }
    };
    let whole = runs.whole("whole")?;
    let steps = whole.steps;
    if steps < 2 {
        return Err(Error::usage(format!("the run ends after {}", counted(steps, "step")))
            .help("there is nothing to stop in the middle of: give it more data or more epochs"));
    }
    say(&format!("a run that never stops: {}", counted(steps, "step")));
    let (mut kills, mut differing) = (0, 0);
    for number in 1..=args.runs.get() {
        let name = format!("killed-{number}");
        let killed = runs.killed(&name, whole, args.kills.get(), args.during_save)?;
        kills += killed.len() as u64;
        let difference = compare::differs(&folder.join("whole"), &folder.join(&name), steps)?;
        differing += u64::from(difference.is_some());
        let found = difference.unwrap_or_else(|| "equal".to_string());
        if args.json {
            output::json(&json!({ "event": "run", "run": number, "resumed": killed, "found": found }));
        }
        say(&format!(
            "run {number} of {}: {}; {found}",
            args.runs.get(),
            told(&killed)
        ));
    }
    let (equal, of) = (args.runs.get() - differing, args.runs.get());
    if args.json {
        output::json(&json!({ "event": "end", "steps": steps, "runs": of, "equal": equal, "kills": kills }));
    }
    if kills == 0 {
        return Err(Error::failure("no run could be killed: each ended before").help("ask for more steps with --steps"));
    }
    say(&format!(
        "{equal} of {of} runs, killed {} and resumed, equal the run that never stopped: weights, optimizer and history",
        counted(kills, "time")
    ));
    if args.config.flags.out.is_some() {
        say(&format!("the runs are in {}", shown_path(folder)));
    }
    Ok(match differing {
        0 => 0,
        _ => code::FAILURE,
    })
}

/// The kills of a run, by the steps from which it was resumed, in words.
fn told(killed: &[u64]) -> String {
    match killed {
        [] => "ended before it could be killed".to_string(),
        few if few.len() < 5 => {
            let steps: Vec<_> = few.iter().map(u64::to_string).collect();
            format!("killed, resumed from step {}", steps.join(", "))
        }
        many => format!("killed {}", counted(many.len() as u64, "time")),
    }
}
