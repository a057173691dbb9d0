//! `kiln tokenize`: texts as files of tokens, for texts that are larger than the memory.

use crate::args::TokenizeArgs;
use crate::error::Result;
use crate::output::{self, counted, line, thousands};
use kiln_data::{DataError, TokenizeStep, write_tokens};
use kiln_files::shown_path;
use serde_json::json;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// The time between two looks at the progress, on a terminal and elsewhere.
const ON_TERMINAL: Duration = Duration::from_millis(200);
const ELSEWHERE: Duration = Duration::from_secs(10);

/// Shows how far the work is: in one line of a terminal, as lines elsewhere, both on standard error.
struct Shown {
    terminal: bool,
    last: Instant,
}

impl Shown {
    fn tell(&mut self, step: TokenizeStep) -> std::io::Result<()> {
        let pause = if self.terminal { ON_TERMINAL } else { ELSEWHERE };
        if self.last.elapsed() < pause {
            return Ok(());
        }
        self.last = Instant::now();
        let text = match step {
            TokenizeStep::Counting(done) => format!("counting: {} characters", thousands(done)),
            TokenizeStep::Learning(done) => format!("learning the tokenizer: {} characters", thousands(done)),
            TokenizeStep::Writing(done, of) => {
                let percent = 100.0 * done as f64 / of.max(1) as f64;
                format!("writing: {percent:.0} % of {} characters", thousands(of))
            }
        };
        match self.terminal {
            true => write!(stderr(), "\r\x1b[K{text}").and_then(|()| stderr().flush()),
            false => writeln!(stderr(), "{text}"),
        }
    }

    fn end(&self) -> std::io::Result<()> {
        match self.terminal {
            true => write!(stderr(), "\r\x1b[K"),
            false => Ok(()),
        }
    }
}

pub(crate) fn run(args: TokenizeArgs) -> Result<u8> {
    let mut shown = Shown {
        terminal: stderr().is_terminal(),
        last: Instant::now(),
    };
    let index = write_tokens(&args.files, &args.tokenizer, &args.out, &mut |step| {
        // A terminal that is gone does not end the work.
        let _ = shown.tell(step);
        Ok::<(), DataError>(())
    });
    let _ = shown.end();
    let index = index?;
    if args.json {
        output::json(&json!({ "folder": args.out.display().to_string(), "index": index }));
        return Ok(0);
    }
    let all = index.train.tokens + index.test.tokens;
    let characters = index.train.characters + index.test.characters;
    line(&format!(
        "saved: {}, {} of {} ({:.2} characters a token), {} of them held back",
        shown_path(&args.out),
        counted(all, "token"),
        counted(characters, "character"),
        characters as f64 / all.max(1) as f64,
        thousands(index.test.tokens)
    ));
    line(&format!("kiln train gpt-mini --data {}", shown_path(&args.out)));
    Ok(0)
}
