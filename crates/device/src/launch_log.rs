//! The launch log: what a recorded graph launches, with the size of every argument.
//!
//! `KILN_LAUNCH_LOG` names a file that is made anew and gets a line of JSON for each capture that begins and each launch within one:
//!
//! ```json
//! {"capture":"begin"}
//! {"kernel":"scale","grid":[8,1,1],"block":[128,1,1],"shared":0,"args":["e8030000",4000,null],"kept":[]}
//! ```
//!
//! An argument is its bytes in hexadecimal digits in their order in memory, the bytes of a block, or null for a bare address. `kept` has
//! the bytes of blocks that were kept since the launch before ([`Stream::keep`](crate::Stream::keep)), whose addresses the kernel finds
//! in its arguments. A driver's own trace has addresses alone, from which nobody can tell how long a tensor is.

use crate::geometry::Geometry;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

struct Log {
    file: File,
    /// Bytes of the blocks that were kept since the last launch.
    kept: Vec<usize>,
}

/// An argument, as the log has it.
pub(crate) enum Logged<'a> {
    Value(&'a [u8]),
    Block(usize),
    Pointer,
}

/// The log, if there is one. A file that cannot be made leaves the program without.
fn log() -> Option<&'static Mutex<Log>> {
    static LOG: OnceLock<Option<Mutex<Log>>> = OnceLock::new();
    let made = LOG.get_or_init(|| {
        let path = std::env::var_os("KILN_LAUNCH_LOG").filter(|path| !path.is_empty())?;
        let file = File::create(path).ok()?;
        Some(Mutex::new(Log { file, kept: Vec::new() }))
    });
    made.as_ref()
}

fn with(write: impl FnOnce(&mut Log)) {
    if let Some(log) = log() {
        write(&mut log.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Log {
    fn line(&mut self, text: &str) {
        // A full disk leaves a log that ends early, which its reader sees.
        let _ = self.file.write_all(text.as_bytes());
    }
}

/// A capture begins.
pub(crate) fn begin() {
    with(|log| {
        log.kept.clear();
        log.line("{\"capture\":\"begin\"}\n");
    });
}

/// A block of so many bytes is kept for the next launch.
pub(crate) fn keep(bytes: usize) {
    with(|log| log.kept.push(bytes));
}

/// A launch within a capture.
pub(crate) fn launch<'a>(kernel: &str, geometry: Geometry, args: impl Iterator<Item = Logged<'a>>) {
    with(|log| {
        let kept = std::mem::take(&mut log.kept);
        let text = line(kernel, geometry, args, &kept);
        log.line(&text);
    });
}

fn line<'a>(kernel: &str, geometry: Geometry, args: impl Iterator<Item = Logged<'a>>, kept: &[usize]) -> String {
    let ([gx, gy, gz], [bx, by, bz]) = (geometry.grid, geometry.block);
    let mut text = format!(
        "{{\"kernel\":\"{kernel}\",\"grid\":[{gx},{gy},{gz}],\"block\":[{bx},{by},{bz}],\"shared\":{},\"args\":[",
        geometry.shared
    );
    // Writing to a string cannot fail.
    for (n, arg) in args.enumerate() {
        if n > 0 {
            text.push(',');
        }
        let _ = match arg {
            Logged::Value(bytes) => {
                text.push('"');
                for byte in bytes {
                    let _ = write!(text, "{byte:02x}");
                }
                text.push('"');
                Ok(())
            }
            Logged::Block(bytes) => write!(text, "{bytes}"),
            Logged::Pointer => write!(text, "null"),
        };
    }
    let _ = writeln!(text, "],\"kept\":{kept:?}}}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_a_line_with_the_sizes_of_its_arguments() {
        let geometry = Geometry {
            grid: [8, 1, 1],
            block: [128, 1, 1],
            shared: 16,
        };
        let args = [Logged::Value(&[0xe8, 3, 0, 0]), Logged::Block(4000), Logged::Pointer];
        let wanted = "{\"kernel\":\"scale\",\"grid\":[8,1,1],\"block\":[128,1,1],\"shared\":16,\"args\":[\"e8030000\",4000,null],\
            \"kept\":[8, 16]}\n";
        assert_eq!(line("scale", geometry, args.into_iter(), &[8, 16]), wanted);
    }
}
