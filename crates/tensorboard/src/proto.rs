//! Messages in the encoding of Protocol Buffers.
//!
//! A field is its number and the form of its value, followed by the value. As in `proto3`, a field of a number or text that is
//! zero or empty is left out, unless it is one of several alternatives (`oneof`).

/// The bytes of a message.
#[derive(Debug, Default)]
pub(crate) struct Message(Vec<u8>);

/// The forms of values.
const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const BYTES: u32 = 2;
const FIXED_32: u32 = 5;

impl Message {
    pub(crate) fn new() -> Self {
        Message::default()
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, form: u32) {
        self.varint(u64::from(field << 3 | form));
    }

    /// An integer, `int32`, `int64` or an enum, of 0 or more.
    pub(crate) fn int(mut self, field: u32, value: u64) -> Self {
        if value != 0 {
            self.key(field, VARINT);
            self.varint(value);
        }
        self
    }

    /// A `double`.
    pub(crate) fn double(mut self, field: u32, value: f64) -> Self {
        if value.to_bits() != 0 {
            self.key(field, FIXED_64);
            self.0.extend(value.to_le_bytes());
        }
        self
    }

    /// A `float` that is one of several alternatives.
    pub(crate) fn chosen_float(mut self, field: u32, value: f32) -> Self {
        self.key(field, FIXED_32);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A list of `double`.
    pub(crate) fn doubles(self, field: u32, values: &[f64]) -> Self {
        let packed: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        match packed.is_empty() {
            true => self,
            false => self.chosen_bytes(field, &packed),
        }
    }

    /// `string` or `bytes`.
    pub(crate) fn bytes(self, field: u32, value: &[u8]) -> Self {
        match value.is_empty() {
            true => self,
            false => self.chosen_bytes(field, value),
        }
    }

    /// `string` or `bytes` that are an element of a list or one of several alternatives.
    pub(crate) fn chosen_bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.key(field, BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    /// A message inside of this one.
    pub(crate) fn message(self, field: u32, value: Message) -> Self {
        self.chosen_bytes(field, &value.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of <https://protobuf.dev/programming-guides/encoding>.
    #[test]
    fn fields_are_encoded_as_the_specification_shows() {
        assert_eq!(Message::new().int(1, 150).into_bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(
            Message::new().bytes(2, b"testing").into_bytes(),
            [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]
        );
        let inner = Message::new().int(1, 150);
        assert_eq!(
            Message::new().message(3, inner).into_bytes(),
            [0x1a, 0x03, 0x08, 0x96, 0x01]
        );
        assert!(
            Message::new()
                .int(1, 0)
                .double(2, 0.0)
                .bytes(3, b"")
                .into_bytes()
                .is_empty()
        );
        assert_eq!(Message::new().chosen_float(2, 0.0).into_bytes(), [0x15, 0, 0, 0, 0]);
    }
}
