//! Reads what `ptxas -v` says, which nvcc passes on (`nvcc -Xptxas -v`).

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Bytes of registers that a thread of a kernel writes to its local memory and reads back, because they did not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spills {
    /// Bytes written.
    pub stores: u32,
    /// Bytes read.
    pub loads: u32,
}

/// Spills by architecture (ten times the compute capability) and kernel.
pub type All = HashMap<(u32, String), Spills>;

/// The spills of each kernel in a log. Lines of nvcc's other programs are skipped.
pub fn spills(log: &str) -> All {
    let mut all = All::new();
    let (mut architecture, mut kernel) = (None, None);
    for line in log.lines() {
        if let Some(rest) = line.split_once("Compiling entry function '").map(|(_, rest)| rest) {
            let digits = rest
                .rsplit_once("sm_")
                .map(|(_, a)| a.trim_end_matches(|c: char| !c.is_ascii_digit()));
            architecture = digits.and_then(|a| a.parse().ok());
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            kernel = Some(name.trim().to_string());
        } else if let (Some(of), Some(spills)) = (architecture, figures(line))
            && let Some(name) = kernel.take()
        {
            all.insert((of, name), spills);
        }
    }
    all
}

/// Reads `32 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads`.
fn figures(line: &str) -> Option<Spills> {
    let bytes = |what: &str| {
        let part = line.split(',').find_map(|part| part.trim().strip_suffix(what))?;
        part.trim().parse().ok()
    };
    Some(Spills {
        stores: bytes("bytes spill stores")?,
        loads: bytes("bytes spill loads")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spills_belong_to_their_kernel_and_architecture() {
        let log = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'tile' for 'sm_80'
ptxas info    : Function properties for tile
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 400 bytes cmem[0]
ptxas info    : Compile time = 3.1 ms
ptxas info    : Compiling entry function 'tile' for 'sm_90a'
ptxas info    : Function properties for tile
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
a line of another program";
        let all = spills(log);
        let of = |architecture: u32| all[&(architecture, "tile".to_string())];
        assert_eq!(all.len(), 2);
        assert_eq!(of(80), Spills { stores: 12, loads: 20 });
        assert_eq!(of(90), Spills::default());
        assert!(spills("").is_empty() && spills("no log\n1 bytes spill stores").is_empty());
    }
}
