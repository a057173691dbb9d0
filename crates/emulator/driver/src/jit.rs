//! The options of the JIT compiler. Only those for logs have an effect here.

use std::ffi::c_char;

use crate::config::Config;
use crate::error::{Code, Outcome};
use crate::types::{In, Out, put_text};

/// The reason why an image cannot be used, as a code and in words.
pub(crate) type Refusal = (Code, String);

/// Numbers of `CUjit_option`.
const WALL_TIME: i32 = 2;
const INFO_LOG: i32 = 3;
const INFO_LOG_SIZE: i32 = 4;
const ERROR_LOG: i32 = 5;
const ERROR_LOG_SIZE: i32 = 6;

/// Options with their values, and the array through which sizes and times are returned.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    options: Vec<(i32, usize)>,
    values: Out<usize>,
}

impl Default for Logs {
    fn default() -> Self {
        Self {
            options: Vec::new(),
            values: Out::NULL,
        }
    }
}

// SAFETY: the pointers are C's: the program promises that they are valid until the call, or the linker that they were
// given to, ends.
unsafe impl Send for Logs {}

impl Logs {
    pub(crate) fn new(count: u32, options: In<i32>, values: Out<usize>) -> Outcome<Self> {
        let given = In::<usize>::from_raw(values.raw()).list(count as usize)?;
        let options = options.list(count as usize)?;
        let options = options.into_iter().zip(given).collect();
        Ok(Self { options, values })
    }

    fn find(&self, option: i32) -> Option<usize> {
        self.options.iter().position(|(o, _)| *o == option)
    }

    fn put(&self, option: i32, value: usize) {
        if let Some(at) = self.find(option) {
            // SAFETY: the API says that sizes and times are given back in the array of values, which has this place.
            unsafe { self.values.raw().add(at).write_unaligned(value) };
        }
    }

    /// Writes a refusal into the error log and into the emulator's log.
    pub(crate) fn finish<T>(&self, config: &Config, what: &str, result: Result<T, Refusal>) -> Outcome<T> {
        let text = result.as_ref().err().map_or("", |(_, text)| text);
        for (log, size, text) in [(INFO_LOG, INFO_LOG_SIZE, ""), (ERROR_LOG, ERROR_LOG_SIZE, text)] {
            let room = self.find(size).map_or(0, |at| self.options[at].1 as u32 as usize);
            let buffer = self.find(log).map_or(0, |at| self.options[at].1) as *mut c_char;
            if !buffer.is_null() && room > 0 {
                put_text(text, buffer, room)?;
                self.put(size, text.len().min(room - 1));
            }
        }
        self.put(WALL_TIME, 0);
        result.map_err(|(code, text)| {
            if !text.starts_with("CUDA_") {
                config.say(format_args!("{what}: {text}"));
            }
            code
        })
    }
}
