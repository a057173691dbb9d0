//! The launches of a step, as a log of kiln-device has them (`KILN_LAUNCH_LOG`).

use serde::Deserialize;

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// A value, by its bytes in memory.
    Value(Vec<u8>),
    /// The bytes of a block of memory whose address is passed.
    Block(u64),
    /// An address alone, or none.
    Pointer,
}

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The kernel's name.
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
    /// The arguments.
    pub args: Vec<Arg>,
    /// Bytes of the blocks whose addresses lie within the arguments.
    pub kept: Vec<u64>,
}

impl Launch {
    /// Blocks of the grid.
    pub fn blocks(&self) -> f64 {
        self.grid.iter().map(|n| f64::from(*n)).product()
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Bytes of the blocks of memory among its arguments, in their order.
    pub fn blocks_given(&self) -> impl Iterator<Item = u64> + '_ {
        self.args.iter().filter_map(|arg| match arg {
            Arg::Block(bytes) => Some(*bytes),
            _ => None,
        })
    }

    /// Bytes of all blocks of memory that it is given.
    pub fn given(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks_given().chain(self.kept.iter().copied())
    }

    /// The bytes of the value of this size, if an argument has it.
    pub fn value(&self, size: usize) -> Option<&[u8]> {
        self.args.iter().find_map(|arg| match arg {
            Arg::Value(bytes) if bytes.len() == size => Some(&bytes[..]),
            _ => None,
        })
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Bytes(u64),
    Value(String),
    Nothing(()),
}

#[derive(Deserialize)]
struct Line {
    kernel: String,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    args: Vec<Entry>,
    kept: Vec<u64>,
}

/// The launches of the last capture of a log.
///
/// # Errors
/// The line that cannot be read.
pub fn last_capture(log: &str) -> Result<Vec<Launch>, String> {
    let mut launches = Vec::new();
    for line in log.lines() {
        if line.starts_with("{\"capture\"") {
            launches.clear();
            continue;
        }
        let read: Line = serde_json::from_str(line).map_err(|e| format!("`{line}` in the launch log: {e}"))?;
        let args = read.args.into_iter().map(|arg| match arg {
            Entry::Bytes(bytes) => Ok(Arg::Block(bytes)),
            Entry::Nothing(()) => Ok(Arg::Pointer),
            Entry::Value(text) => bytes(&text)
                .map(Arg::Value)
                .ok_or_else(|| format!("`{text}` in the launch log is no value")),
        });
        launches.push(Launch {
            kernel: read.kernel,
            grid: read.grid,
            block: read.block,
            shared: read.shared,
            args: args.collect::<Result<_, _>>()?,
            kept: read.kept,
        });
    }
    Ok(launches)
}

/// The bytes of hexadecimal digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_capture_is_read() {
        let log = r#"{"capture":"begin"}
{"kernel":"old","grid":[1,1,1],"block":[1,1,1],"shared":0,"args":[],"kept":[]}
{"capture":"begin"}
{"kernel":"scale","grid":[8,2,1],"block":[128,1,1],"shared":16,"args":["e803",4000,null],"kept":[8]}
"#;
        let launches = last_capture(log).unwrap();
        let [scale] = &launches[..] else { panic!("{launches:?}") };
        assert_eq!(
            (scale.kernel.as_str(), scale.blocks(), scale.threads()),
            ("scale", 16.0, 128)
        );
        assert_eq!(scale.args, [Arg::Value(vec![0xe8, 3]), Arg::Block(4000), Arg::Pointer]);
        assert_eq!(scale.given().sum::<u64>(), 4008);
        assert_eq!(scale.value(2), Some(&[0xe8, 3][..]));
        assert_eq!(last_capture(""), Ok(Vec::new()));
        assert!(last_capture("{\"kernel\":1}").is_err());
        assert!(last_capture(&log.replace("e803", "e80")).is_err());
    }
}
