//! Reads what `nvdisasm -c -hex` prints.
//!
//! A function begins with a line `.text.NAME:`. An instruction takes two lines: its address, its text and the lower half of its encoding;
//! the upper half. A label stands on a line of its own before the instruction that it names:
//!
//! ```text
//! .text.scale:
//!         /*0000*/                   LDC R1, c[0x0][0x28] ;            /* 0x00000a00ff017b82 */
//!                                                                      /* 0x000ff00000000800 */
//! .L_x_0:
//!         /*0010*/              @!P0 BRA `(.L_x_0) ;                   /* 0xfffffffc00fc8947 */
//!                                                                      /* 0x000fea000383ffff */
//! ```
//!
//! The targets of a jump through a table are in a comment of nvdisasm's own: `(*"BRANCH_TARGETS .L_x_1,.L_x_2"*)`.

use std::collections::HashMap;

/// A function of a listing. Functions that it calls and nobody else does lie behind it, in the same list.
#[derive(Clone, Debug, PartialEq)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its instructions, in the order of their addresses.
    pub instructions: Vec<Instruction<'a>>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction<'a> {
    /// Bytes from the beginning of the function.
    pub address: u32,
    /// The predicate that it is executed under, such as `!P0`; empty if there is none.
    pub predicate: &'a str,
    /// The opcode with its modifiers, such as `LDG.E.128`.
    pub opcode: &'a str,
    /// The rest of its text.
    pub operands: &'a str,
    /// The instructions that it may jump to, as places in the function's list; of a call, none.
    pub targets: Vec<usize>,
    /// The two halves of its 128 bits, the lower first.
    pub encoding: [u64; 2],
}

impl Instruction<'_> {
    /// The opcode without its modifiers: `LDG` of `LDG.E.128`.
    pub fn name(&self) -> &str {
        self.opcode.split('.').next().unwrap_or_default()
    }

    /// True if this is one of the opcode's modifiers: `128` of `LDG.E.128`.
    pub fn has(&self, modifier: &str) -> bool {
        self.opcode.split('.').skip(1).any(|m| m == modifier)
    }

    /// The clocks for which its warp issues nothing after it, from 0 to 15: the least time from this instruction to the warp's next.
    ///
    /// Compilers schedule by it, since GPUs from Volta on do not look whether the result of an instruction with a fixed latency is
    /// there. It is bits 105 to 108 of the 128. Above them are a bit to yield, the barriers that this instruction sets (3 + 3 bits), those
    /// that it waits for (6) and the operands to keep for the next one (4): Jia, Maggioni, Staiger and Scarpazza, "Dissecting the
    /// NVIDIA Volta GPU Architecture via Microbenchmarking", arXiv 1804.06826, section 2.1. Turing, Ampere, Hopper and Blackwell have
    /// kept this layout.
    pub fn stall(&self) -> u32 {
        (self.encoding[1] >> 41 & 0xf) as u32
    }

    /// True if control can go on behind it.
    pub(crate) fn falls_through(&self) -> bool {
        match self.name() {
            // A second condition stands among the operands: `BRA P1, …`, `BRA.DIV UR4, …`.
            "BRA" | "JMP" => !self.predicate.is_empty() || self.operands.contains(','),
            "CALL" => !self.predicate.is_empty() || !self.is_branch(),
            "BRX" | "BRXU" | "JMX" | "JMXU" | "EXIT" | "RET" | "KILL" => !self.predicate.is_empty(),
            _ => true,
        }
    }

    /// True if it ends a block: control may go elsewhere than to the instruction behind it. A call comes back, but for one of a label
    /// instead of a function: a far jump, as compilers for sm_80 leave loops by.
    pub(crate) fn is_branch(&self) -> bool {
        if self.name() == "CALL" {
            return self.operands.contains("`(.L");
        }
        matches!(
            self.name(),
            "BRA" | "JMP" | "BRX" | "BRXU" | "JMX" | "JMXU" | "EXIT" | "RET" | "KILL"
        )
    }
}

/// The functions of a listing. Lines that are something else are skipped.
///
/// # Errors
/// A text that names the line with an instruction that cannot be read, or a jump to a label that there is not.
pub fn parse(text: &str) -> Result<Vec<Function<'_>>, String> {
    let mut functions: Vec<Function<'_>> = Vec::new();
    let mut labels: HashMap<&str, usize> = HashMap::new();
    // Labels are known at the end of a function: jumps go forward too.
    let mut jumps: Vec<(usize, Vec<&str>)> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let wrong = |what: &str| format!("line {}: {what}: {}", number + 1, line.trim());
        if let Some(label) = line.strip_suffix(':').filter(|l| !l.starts_with([' ', '\t'])) {
            if let Some(name) = label.strip_prefix(".text.") {
                resolve(&mut functions, &mut labels, &mut jumps)?;
                functions.push(Function {
                    name,
                    instructions: Vec::new(),
                });
            } else if let Some(function) = functions.last() {
                labels.insert(label, function.instructions.len());
            }
            continue;
        }
        let Some((address, rest)) = line.trim_start().strip_prefix("/*").and_then(|l| l.split_once("*/")) else {
            continue;
        };
        let function = functions
            .last_mut()
            .ok_or_else(|| wrong("an instruction before any function"))?;
        let address = u32::from_str_radix(address, 16).map_err(|_| wrong("no address"))?;
        let (code, low) = rest
            .rsplit_once("/*")
            .ok_or_else(|| wrong("an instruction without encoding"))?;
        let low = half(low).ok_or_else(|| wrong("no encoding"))?;
        let high = lines.next().and_then(|(_, l)| half(l.trim_start().strip_prefix("/*")?));
        let high = high.ok_or_else(|| wrong("the second half of the encoding is missing"))?;
        let mut targets = Vec::new();
        let instruction = instruction(code, address, [low, high], &mut targets);
        if !targets.is_empty() {
            jumps.push((function.instructions.len(), targets));
        }
        function.instructions.push(instruction);
    }
    resolve(&mut functions, &mut labels, &mut jumps)?;
    Ok(functions)
}

/// `0x000ff00000000800 */` as a number.
fn half(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().strip_suffix("*/")?.trim().strip_prefix("0x")?, 16).ok()
}

/// Reads `@!P0 BRA P1, `(.L_x_3) ;` and puts the labels that it may jump to into `targets`.
fn instruction<'a>(code: &'a str, address: u32, encoding: [u64; 2], targets: &mut Vec<&'a str>) -> Instruction<'a> {
    let code = code.trim().trim_end_matches(';').trim_end();
    let (code, note) = code.split_once("(*\"").unwrap_or((code, ""));
    let code = code.trim();
    let (predicate, code) = match code.strip_prefix('@') {
        Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
        None => ("", code),
    };
    let code = code.trim_start();
    let (opcode, operands) = code.split_once(' ').unwrap_or((code, ""));
    let instruction = Instruction {
        address,
        predicate,
        opcode,
        operands: operands.trim(),
        targets: Vec::new(),
        encoding,
    };
    if instruction.is_branch() && instruction.name() != "RET" {
        if let Some((_, label)) = operands.split_once("`(") {
            targets.extend(label.split(')').next());
        }
        if let Some(list) = note.strip_prefix("BRANCH_TARGETS ") {
            targets.extend(
                list.split('"')
                    .next()
                    .into_iter()
                    .flat_map(|l| l.split(','))
                    .map(str::trim),
            );
        }
    }
    instruction
}

/// Writes the places of labels into the instructions of the last function that jump to them.
fn resolve<'a>(
    functions: &mut [Function<'a>],
    labels: &mut HashMap<&'a str, usize>,
    jumps: &mut Vec<(usize, Vec<&'a str>)>,
) -> Result<(), String> {
    if let Some(function) = functions.last_mut() {
        let count = function.instructions.len();
        for (at, names) in jumps.drain(..) {
            for name in names {
                let target = labels.get(name).copied().filter(|target| *target < count);
                let target = target.ok_or_else(|| format!("{}: there is no label {name}", function.name))?;
                function.instructions[at].targets.push(target);
            }
        }
    }
    labels.clear();
    Ok(())
}
