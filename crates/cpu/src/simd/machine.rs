//! The processor that this program runs on, as described by its CPUID instruction.

use crate::simd::isa::{Isa, has_bf16_pairs};
use crate::simd::tiles;
use std::fmt;

/// A data or unified cache of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The level; 1 is the nearest to the core.
    pub level: u32,
    /// The size in bytes.
    pub size: usize,
    /// The associativity: the number of lines in a set.
    pub ways: usize,
    /// The largest number of hardware threads that share the cache.
    pub threads: usize,
}

/// A processor: its name, instruction set and caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The processor's brand string; empty if it has none.
    pub name: String,
    /// The instruction set that products and convolutions use on it: `avx512`, `avx2` or `portable`. Machines with the same
    /// instruction set give the same bits.
    pub instruction_set: &'static str,
    /// What multiplies bf16: `amx` (the tiles of a matrix unit), `avx512_bf16` (the products of pairs of AVX-512) or `widened`
    /// (the instructions for f32). Machines with the same instruction set and the same of these give the same bits in bf16.
    pub bf16: &'static str,
    /// The data and unified caches by level; empty if the processor does not report them.
    pub caches: Vec<Cache>,
}

impl Machine {
    /// The processor that this thread runs on.
    pub fn this() -> Self {
        let instruction_set = Isa::available()[0].name();
        let bf16 = match (tiles::available(), has_bf16_pairs()) {
            (true, _) => "amx",
            (_, true) => "avx512_bf16",
            _ => "widened",
        };
        #[cfg(target_arch = "x86_64")]
        let (name, caches) = (processor::name(), processor::caches());
        #[cfg(not(target_arch = "x86_64"))]
        let (name, caches) = (String::new(), Vec::new());
        Machine {
            name,
            instruction_set,
            bf16,
            caches,
        }
    }
}

/// Formats a machine as `AMD EPYC 9B14, avx512, bf16 by avx512_bf16, L1 32 KiB, L2 1 MiB, L3 32 MiB for 16 threads`.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{}, ", self.name)?;
        }
        write!(f, "{}, bf16 ", self.instruction_set)?;
        match self.bf16 {
            "widened" => f.write_str("widened")?,
            unit => write!(f, "by {unit}")?,
        }
        for cache in &self.caches {
            let (size, unit) = match cache.size {
                size if size.is_multiple_of(1 << 20) => (size >> 20, "MiB"),
                size => (size >> 10, "KiB"),
            };
            write!(f, ", L{} {size} {unit}", cache.level)?;
            if cache.level > 2 {
                write!(f, " for {} threads", cache.threads)?;
            }
        }
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
mod processor {
    use super::Cache;
    use crate::simd::cpuid::leaf;

    /// The brand string in the leaves 0x8000_0002 to 0x8000_0004, of sixteen characters each.
    pub(super) fn name() -> String {
        if leaf(0x8000_0000, 0).eax < 0x8000_0004 {
            return String::new();
        }
        let words = (0x8000_0002..=0x8000_0004u32).flat_map(|n| {
            let r = leaf(n, 0);
            [r.eax, r.ebx, r.ecx, r.edx]
        });
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&bytes)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The caches from leaf 4, or from AMD's 0x8000_001D, which has the same fields.
    pub(super) fn caches() -> Vec<Cache> {
        let (highest, extended) = (leaf(0, 0).eax, leaf(0x8000_0000, 0).eax);
        let topology = extended >= 0x8000_0001 && leaf(0x8000_0001, 0).ecx >> 22 & 1 == 1;
        let number = match () {
            () if topology && extended >= 0x8000_001d => 0x8000_001d,
            () if highest >= 4 => 4,
            () => return Vec::new(),
        };
        let mut caches = Vec::new();
        // A processor has a handful of caches; the limit guards against one that never reports the end.
        for sub in 0..16 {
            let r = leaf(number, sub);
            // 1 is data, 2 instructions, 3 both.
            match r.eax & 31 {
                0 => break,
                2 => continue,
                _ => {}
            }
            let field = |word: u32, from: u32, bits: u32| (word >> from & ((1 << bits) - 1)) as usize + 1;
            let (line, parts, ways) = (field(r.ebx, 0, 12), field(r.ebx, 12, 10), field(r.ebx, 22, 10));
            caches.push(Cache {
                level: r.eax >> 5 & 7,
                size: line * parts * ways * (r.ecx as usize + 1),
                ways,
                threads: field(r.eax, 14, 12),
            });
        }
        caches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_tells_its_caches_in_order() {
        let machine = Machine::this();
        assert!(["avx512", "avx2", "portable"].contains(&machine.instruction_set));
        assert!(["amx", "avx512_bf16", "widened"].contains(&machine.bf16));
        assert!(machine.caches.is_sorted_by_key(|c| c.level), "{machine:?}");
        for cache in &machine.caches {
            assert!(
                cache.size >= 1 << 12 && cache.ways > 0 && cache.threads > 0,
                "{machine:?}"
            );
        }
    }

    #[test]
    fn a_machine_reads_as_a_line() {
        let cache = |level, size, threads| Cache {
            level,
            size,
            ways: 8,
            threads,
        };
        let machine = Machine {
            name: "EPYC".to_string(),
            instruction_set: "avx512",
            bf16: "amx",
            caches: vec![cache(1, 32 << 10, 2), cache(2, 1 << 20, 2), cache(3, 32 << 20, 16)],
        };
        assert_eq!(
            machine.to_string(),
            "EPYC, avx512, bf16 by amx, L1 32 KiB, L2 1 MiB, L3 32 MiB for 16 threads"
        );
    }
}
