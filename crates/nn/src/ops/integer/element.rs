//! The host's types of integers, and how tensors keep them.

use kiln_core::{Element, Error, Result, host};
use std::borrow::Cow;

/// A number or truth value of the host that integer tensors are made of and read as: i32, and i64, u32, u64 and usize, which
/// must fit i32; u8 and bool for masks.
///
/// ```
/// # use kiln_nn::Indices;
/// # let cpu = kiln_cpu::Cpu::new();
/// let ids = Indices::from_slice(&cpu, &[3i64, -1], &[2])?;
/// assert_eq!(ids.to_vec::<i64>()?, [3, -1]);
/// assert!(Indices::from_slice(&cpu, &[1i64 << 40], &[1]).is_err());
/// let mask = Indices::from_slice(&cpu, &[true, false], &[2])?;
/// assert_eq!(mask.to_vec::<u8>()?, [1, 0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub trait IntegerValue: Copy + 'static {
    /// The element type of the tensor: i32, or u8 for masks.
    type Stored: Element;

    /// The values as elements.
    ///
    /// # Errors
    /// A value that does not fit, memory.
    fn stored(values: &[Self]) -> Result<Cow<'_, [Self::Stored]>>;

    /// The elements as values.
    ///
    /// # Errors
    /// An element that does not fit, memory.
    fn read(elements: Vec<Self::Stored>) -> Result<Vec<Self>>;
}

macro_rules! elements {
    ($($type:ty),*) => {$(
        impl IntegerValue for $type {
            type Stored = $type;
            fn stored(values: &[Self]) -> Result<Cow<'_, [$type]>> {
                Ok(values.into())
            }
            fn read(elements: Vec<$type>) -> Result<Vec<Self>> {
                Ok(elements)
            }
        }
    )*};
}
elements!(i32, u8);

macro_rules! converted {
    ($($type:ty => $stored:ty, $expected:literal);* $(;)?) => {$(
        impl IntegerValue for $type {
            type Stored = $stored;
            fn stored(values: &[Self]) -> Result<Cow<'_, [$stored]>> {
                let fits = |&v: &$type| <$stored>::try_from(v).map_err(|_| does_not_fit(v, $expected));
                collect(values.iter().map(fits)).map(Into::into)
            }
            fn read(elements: Vec<$stored>) -> Result<Vec<Self>> {
                let fits = |v: $stored| <$type>::try_from(v).map_err(|_| does_not_fit(v, concat!("a ", stringify!($type))));
                collect(elements.into_iter().map(fits))
            }
        }
    )*};
}
converted! {
    i64 => i32, "a number that fits i32";
    u32 => i32, "a number that fits i32";
    u64 => i32, "a number that fits i32";
    usize => i32, "a number that fits i32";
}

impl IntegerValue for bool {
    type Stored = u8;
    fn stored(values: &[Self]) -> Result<Cow<'_, [u8]>> {
        host::collect(values.iter().map(|&v| u8::from(v))).map(Into::into)
    }
    fn read(elements: Vec<u8>) -> Result<Vec<Self>> {
        host::collect(elements.into_iter().map(|v| v != 0))
    }
}

fn does_not_fit(value: impl std::fmt::Display, expected: &'static str) -> Error {
    Error::invalid("indices", "values", value, expected)
}

/// The values, whose number is known, or the first error.
fn collect<T>(values: impl ExactSizeIterator<Item = Result<T>>) -> Result<Vec<T>> {
    let mut all = host::room(values.len())?;
    for value in values {
        all.push(value?);
    }
    Ok(all)
}
