//! The framing of records in event files, that of TensorFlow's `TFRecord`: the length, a checksum of it, the bytes, a checksum of
//! them.

use crc::{CRC_32_ISCSI, Crc};

const CRC_32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The CRC-32C of bytes, rotated and moved so that the checksum of bytes with checksums in them is a good one.
fn masked(bytes: &[u8]) -> u32 {
    CRC_32C.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Appends a record to `file`.
pub(crate) fn append(file: &mut Vec<u8>, bytes: &[u8]) {
    let length = (bytes.len() as u64).to_le_bytes();
    file.extend(length);
    file.extend(masked(&length).to_le_bytes());
    file.extend(bytes);
    file.extend(masked(bytes).to_le_bytes());
}
