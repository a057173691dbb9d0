//! Changes of inputs, which depend on a number alone.

/// A small generator of random numbers (splitmix64), the same on every platform.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }
}

/// The length in bytes to which changed inputs are cut.
const LONGEST: usize = 1 << 16;

/// The input with this number: one of `seeds` with a few changes, or random bytes.
pub fn input(seeds: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    if seeds.is_empty() || random.below(16) == 0 {
        let len = random.below(257);
        return (0..len).map(|_| random.bits() as u8).collect();
    }
    let mut input = seeds[random.below(seeds.len())].clone();
    let other = &seeds[random.below(seeds.len())];
    for _ in 0..1 + random.below(6) {
        change(&mut input, other, &mut random);
    }
    input.truncate(LONGEST);
    input
}

/// Numbers to be written over sizes.
const LIES: [u64; 10] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

fn change(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(input.len());
    let len = 1 + random.below((input.len() - at).clamp(1, 64));
    let end = (at + len).min(input.len());
    match random.below(9) {
        0 if !input.is_empty() => input[at] ^= 1 << random.below(8),
        1 if !input.is_empty() => input[at] = random.bits() as u8,
        2 => input.truncate(at),
        3 => drop(input.drain(at..end)),
        4 => {
            let again = input[at..end].to_vec();
            drop(input.splice(at..at, again));
        }
        5 => {
            // A wrong number, in a width and byte order that formats use.
            let lie = LIES[random.below(LIES.len())];
            let width = [1, 2, 4, 8][random.below(4)];
            let mut bytes = lie.to_le_bytes()[..width].to_vec();
            if random.below(2) == 0 {
                bytes.reverse();
            }
            let end = (at + width).min(input.len());
            drop(input.splice(at..end, bytes));
        }
        6 => digits(input, at, random),
        7 => {
            let from = random.below(other.len());
            let to = (from + len).min(other.len());
            drop(input.splice(at..end, other[from..to].iter().copied()));
        }
        _ => input.insert(at, random.bits() as u8),
    }
}

/// Replaces the next decimal number in a text.
fn digits(input: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(from) = input[at..].iter().position(u8::is_ascii_digit).map(|i| at + i) else {
        return;
    };
    let to = input[from..].iter().position(|b| !b.is_ascii_digit());
    let to = to.map_or(input.len(), |i| from + i);
    let lie = LIES[random.below(LIES.len())].to_string();
    drop(input.splice(from..to, lie.into_bytes()));
}
