//! The launch trace: what the device was asked to do, a line of JSON each, in the order in which it was done.
//!
//! ```json
//! {"kernel":"scale","grid":[8,1,1],"block":[128,1,1],"shared":0,"device":0,"params":["0x7f0000000200","0x3e8"]}
//! {"copy":"host to device","bytes":4000}
//! {"fill":4096}
//! {"allocate":4000,"at":"0x7f0000000200","device":0,"used":4000}
//! {"free":4000,"at":"0x7f0000000200","device":0,"used":0}
//! ```
//!
//! A parameter is its bytes as one little-endian number in hexadecimal digits, whatever its size. `used` has the bytes that are allocated
//! on the device after the call, so the largest of them is the peak. Kernels, copies and fills of a graph appear each time it is
//! launched, between `{"graph":"begin"}` and `{"graph":"end"}`.

use std::fmt::{Arguments, Write as _};

use kiln_simulator::memory::Range;

use crate::config::Config;
use crate::json_lines::JsonLines;
use crate::objects::work::Kernel;

/// The file that the trace goes to, if there is one.
pub(crate) struct Trace(Option<JsonLines>);

impl Trace {
    /// Makes the file anew; says so when that cannot be done, and goes on without.
    pub(crate) fn new(config: &Config) -> Self {
        Self(JsonLines::new(config, config.trace.as_deref(), "trace"))
    }

    fn line(&self, text: Arguments<'_>) {
        if let Some(file) = &self.0 {
            file.line(text);
        }
    }

    pub(crate) fn kernel(&self, kernel: &Kernel) {
        if self.0.is_none() {
            return;
        }
        let function = &kernel.function.kernel;
        let mut params = String::new();
        for param in function.params() {
            let bytes = &kernel.params[param.offset as usize..][..param.size as usize];
            let first = bytes.iter().rposition(|b| *b != 0).unwrap_or(0);
            params += if params.is_empty() { "\"0x" } else { ",\"0x" };
            for (n, byte) in bytes[..=first].iter().rev().enumerate() {
                // Writing to a string cannot fail.
                let _ = if n == 0 {
                    write!(params, "{byte:x}")
                } else {
                    write!(params, "{byte:02x}")
                };
            }
            params.push('"');
        }
        let ([gx, gy, gz], [bx, by, bz]) = (kernel.grid, kernel.block);
        self.line(format_args!(
            r#"{{"kernel":"{}","grid":[{gx},{gy},{gz}],"block":[{bx},{by},{bz}],"shared":{},"device":{},"params":[{params}]}}"#,
            function.name(),
            kernel.shared,
            kernel.device,
        ));
    }

    pub(crate) fn copy(&self, to_host: bool, from_host: bool, bytes: u64) {
        let side = |host| if host { "host" } else { "device" };
        let (from, to) = (side(from_host), side(to_host));
        self.line(format_args!(r#"{{"copy":"{from} to {to}","bytes":{bytes}}}"#));
    }

    pub(crate) fn fill(&self, bytes: u64) {
        self.line(format_args!(r#"{{"fill":{bytes}}}"#));
    }

    pub(crate) fn graph(&self, what: &str) {
        self.line(format_args!(r#"{{"graph":"{what}"}}"#));
    }

    pub(crate) fn allocate(&self, range: &Range, used: u64) {
        self.memory("allocate", range, used);
    }

    pub(crate) fn free(&self, range: &Range, used: u64) {
        self.memory("free", range, used);
    }

    fn memory(&self, what: &str, range: &Range, used: u64) {
        let Range { base, len, device, .. } = range;
        self.line(format_args!(
            r#"{{"{what}":{len},"at":"{base:#x}","device":{device},"used":{used}}}"#
        ));
    }
}
