//! Tensor maps: what `cp.async.bulk.tensor` knows of a tensor in device memory and of the boxes that it copies.
//!
//! A device's own layout of the 128 bytes is not documented; this one is the emulator's, and programs do not look inside.

use crate::machine::Run;

/// The first bytes of a map.
const MARK: [u8; 8] = *b"kilnTMAP";
/// The most dimensions.
const RANK: usize = 5;
/// Bytes of a line of each swizzle.
const SPANS: [u32; 4] = [0, 32, 64, 128];

/// A tensor and its boxes; dimensions begin with the one whose elements follow one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The address of the first element.
    pub address: u64,
    /// Bytes of an element.
    pub element: u32,
    /// Elements along each dimension: as many numbers as there are dimensions, 1 to 5.
    pub sizes: Vec<u64>,
    /// Bytes from one element to the next along each dimension but the first.
    pub strides: Vec<u64>,
    /// Elements of a box along each dimension.
    pub boxes: Vec<u32>,
    /// 0 for none, 1, 2 and 3 for a swizzle of 32, 64 and 128 bytes.
    pub swizzle: u8,
}

/// The reason why a tensor map is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorMapError {
    /// The driver API forbids it.
    Invalid(String),
    /// A device has it, the emulator does not.
    Unsupported(String),
}

impl TensorMap {
    /// The 128 bytes that hold the map.
    ///
    /// # Errors
    /// [`TensorMapError`] for a map against the rules of `cuTensorMapEncodeTiled`, or one that is not implemented.
    pub fn encode(&self) -> Result<[u8; 128], TensorMapError> {
        self.check()?;
        let mut bytes = [0u8; 128];
        bytes[..8].copy_from_slice(&MARK);
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16] = self.sizes.len() as u8;
        bytes[17] = self.element as u8;
        bytes[18] = self.swizzle;
        for (n, size) in self.sizes.iter().enumerate() {
            bytes[24 + 8 * n..][..8].copy_from_slice(&size.to_le_bytes());
        }
        for (n, stride) in self.strides.iter().enumerate() {
            bytes[64 + 8 * n..][..8].copy_from_slice(&stride.to_le_bytes());
        }
        for (n, side) in self.boxes.iter().enumerate() {
            bytes[96 + 4 * n..][..4].copy_from_slice(&side.to_le_bytes());
        }
        Ok(bytes)
    }

    /// The map that [`TensorMap::encode`] made these bytes of.
    pub(crate) fn decode(bytes: &[u8; 128]) -> Option<TensorMap> {
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let half = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let rank = usize::from(bytes[16]);
        if bytes[..8] != MARK || !(1..=RANK).contains(&rank) {
            return None;
        }
        let map = TensorMap {
            address: word(8)?,
            element: u32::from(bytes[17]),
            sizes: (0..rank).map(|n| word(24 + 8 * n)).collect::<Option<_>>()?,
            strides: (1..rank).map(|n| word(56 + 8 * n)).collect::<Option<_>>()?,
            boxes: (0..rank).map(|n| half(96 + 4 * n)).collect::<Option<_>>()?,
            swizzle: bytes[18],
        };
        map.check().is_ok().then_some(map)
    }

    fn check(&self) -> Result<(), TensorMapError> {
        let invalid = |message: String| Err(TensorMapError::Invalid(message));
        let rank = self.sizes.len();
        if !(1..=RANK).contains(&rank) || self.strides.len() != rank - 1 || self.boxes.len() != rank {
            return invalid(format!("{rank} dimensions; 1 to {RANK} can be"));
        }
        if !matches!(self.element, 1 | 2 | 4 | 8) || self.swizzle > 3 {
            return invalid(format!("elements of {} bytes, swizzle {}", self.element, self.swizzle));
        }
        if !self.address.is_multiple_of(16) {
            return invalid(format!("the address {:#x} is no multiple of 16", self.address));
        }
        if let Some(size) = self.sizes.iter().find(|size| !(1..=1 << 32).contains(*size)) {
            return invalid(format!("a dimension of {size} elements; 1 to 2^32 can be"));
        }
        if let Some(stride) = self.strides.iter().find(|s| !s.is_multiple_of(16) || **s >= 1 << 40) {
            return invalid(format!("a stride of {stride} bytes; multiples of 16 below 2^40 can be"));
        }
        if let Some(side) = self.boxes.iter().find(|side| !(1..=256).contains(*side)) {
            return invalid(format!("a box of {side} elements along a dimension; 1 to 256 can be"));
        }
        let (inner, span) = (self.boxes[0] * self.element, SPANS[usize::from(self.swizzle)]);
        if !inner.is_multiple_of(16) {
            return invalid(format!(
                "a box whose inner dimension has {inner} bytes, no multiple of 16"
            ));
        }
        if span != 0 && inner > span {
            return invalid(format!(
                "a box whose inner dimension has {inner} bytes, more than its swizzle of {span}"
            ));
        }
        if span != 0 && inner < span {
            let message = format!("a box whose inner dimension has {inner} bytes, fewer than its swizzle of {span}");
            return Err(TensorMapError::Unsupported(message));
        }
        Ok(())
    }

    /// The number of dimensions.
    pub(crate) fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The bits of an address in shared memory into which those three places above are mixed.
    pub(crate) fn swizzle_mask(&self) -> u64 {
        [0, 0x10, 0x30, 0x70][usize::from(self.swizzle)]
    }

    /// The rows of the box at a place, which go to shared memory from the offset `to` on. What lies outside of the tensor is
    /// zero.
    pub(crate) fn runs(&self, place: &[i64], to: u32) -> Vec<Run> {
        let len = self.boxes[0] * self.element;
        let rows: u32 = self.boxes[1..].iter().product();
        let inside = |at: i64, n: usize| (0..self.sizes[n] as i64).contains(&at);
        // Elements of a row before, and inside of, the tensor.
        let side = i64::from(self.boxes[0]);
        let lead = (-place[0]).clamp(0, side);
        let read = (self.sizes[0] as i64 - place[0]).clamp(lead, side) - lead;
        let row = |n: u32| {
            let (mut rest, mut from, mut there) = (n, self.address, read > 0);
            for (d, side) in self.boxes.iter().enumerate().skip(1) {
                let at = place[d] + i64::from(rest % side);
                rest /= side;
                there &= inside(at, d);
                from = from.wrapping_add((at as u64).wrapping_mul(self.strides[d - 1]));
            }
            let first = (place[0] + lead) as u64;
            let element = self.element;
            Run {
                from: from.wrapping_add(first.wrapping_mul(u64::from(element))),
                lead: if there { lead as u32 * element } else { 0 },
                read: if there { read as u32 * element } else { 0 },
                to: to + n * len,
                len,
            }
        };
        (0..rows).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{TensorMap, TensorMapError};

    fn map() -> TensorMap {
        TensorMap {
            address: 1 << 20,
            element: 2,
            sizes: vec![100, 7, 3],
            strides: vec![256, 4096],
            boxes: vec![64, 4, 2],
            swizzle: 3,
        }
    }

    #[test]
    fn a_map_survives_its_bytes() {
        for rank in 1..=5 {
            let map = TensorMap {
                sizes: vec![64, 7, 3, 1 << 32, 9][..rank].to_vec(),
                strides: vec![256, 4096, 16, (1 << 40) - 16][..rank - 1].to_vec(),
                boxes: vec![64, 256, 1, 2, 3][..rank].to_vec(),
                ..map()
            };
            assert_eq!(TensorMap::decode(&map.encode().unwrap()), Some(map));
        }
        assert_eq!(TensorMap::decode(&[0; 128]), None);
        assert_eq!(TensorMap::decode(&[0xff; 128]), None);
    }

    #[test]
    fn maps_against_the_rules_are_refused() {
        type Change = fn(&mut TensorMap);
        let wrong: [(&str, Change); 10] = [
            ("dimensions", |m| m.boxes = vec![64]),
            ("dimensions", |m| {
                (m.sizes, m.strides, m.boxes) = (vec![], vec![], vec![])
            }),
            ("multiple of 16", |m| m.address += 8),
            ("2^32", |m| m.sizes[1] = 0),
            ("2^32", |m| m.sizes[1] = (1 << 32) + 1),
            ("2^40", |m| m.strides[0] = 1 << 40),
            ("below 2^40", |m| m.strides[1] = 8),
            ("1 to 256", |m| m.boxes[1] = 257),
            ("multiple of 16", |m| (m.boxes[0], m.swizzle) = (63, 0)),
            ("more than its swizzle", |m| m.swizzle = 2),
        ];
        for (word, change) in wrong {
            let mut map = map();
            change(&mut map);
            match map.encode() {
                Err(TensorMapError::Invalid(message)) => assert!(message.contains(word), "{message}"),
                other => panic!("{word}: {other:?}"),
            }
        }
        let narrow = TensorMap {
            boxes: vec![32, 4, 2],
            ..map()
        };
        assert!(matches!(narrow.encode(), Err(TensorMapError::Unsupported(_))));
    }

    #[test]
    fn rows_of_a_box_are_cut_at_the_tensor() {
        let map = map();
        for place in [
            [0, 0, 0],
            [64, 5, 2],
            [-3, -1, -1],
            [90, 6, 1],
            [-64, 0, 0],
            [100, 0, 0],
            [0, 7, 0],
        ] {
            for (n, run) in map.runs(&place, 1024).iter().enumerate() {
                let (y, z) = (place[1] + n as i64 % 4, place[2] + n as i64 / 4);
                let there = (0..7).contains(&y) && (0..3).contains(&z);
                assert_eq!((run.to, run.len), (1024 + 128 * n as u32, 128));
                for x in 0..64u32 {
                    let at = place[0] + i64::from(x);
                    let read = (run.lead..run.lead + run.read).contains(&(2 * x));
                    assert_eq!(read, there && (0..100).contains(&at), "{place:?} row {n}, column {x}");
                    if read {
                        let from = run.from + u64::from(2 * x - run.lead);
                        assert_eq!(from, (1 << 20) + 2 * at as u64 + 256 * y as u64 + 4096 * z as u64);
                    }
                }
            }
        }
    }
}
