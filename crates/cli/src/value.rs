//! Named values that are printed as text or as JSON, in their order.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// A value of a structure that a device returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Decimal in both forms.
    Number(u64),
    /// Hexadecimal in text, as bit fields read best; a number in JSON, which has no other.
    Hex(u64),
    /// 128 bits: a string in JSON, as its readers keep only 53 bits of a number.
    Big(u128),
    /// A ratio; three decimals in text.
    Ratio(f64),
    Text(String),
    /// A truth; in text 0 or 1.
    Flag(bool),
    /// A list; JSON only, text shows lists in lines of their own.
    List(Vec<Value>),
    /// A structure; JSON only.
    Fields(Fields),
    /// What an `Option` does not have: its field is left out.
    Absent,
}

/// A bit field.
pub(crate) fn hex(number: impl Into<u64>) -> Value {
    Value::Hex(number.into())
}

/// Names and values in order. JSON keeps the order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(pub(crate) Vec<(String, Value)>);

/// [`Fields`] as they are written in JSON: `fields! { "name": value, "other": value }`.
macro_rules! fields {
    ($($name:literal: $value:expr),* $(,)?) => {
        $crate::value::Fields::new()$(.with($name, $value))*
    };
}
pub(crate) use fields;

impl Fields {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// One more field; none where there is no value.
    pub(crate) fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        match value.into() {
            Value::Absent => {}
            value => self.0.push((name.into(), value)),
        }
        self
    }

    /// `name   : value` lines, names padded to `width`; lists and structures are left out.
    pub(crate) fn write_lines(&self, out: &mut dyn std::io::Write, width: usize) -> std::io::Result<()> {
        for (name, value) in &self.0 {
            if !matches!(value, Value::List(_) | Value::Fields(_)) {
                writeln!(out, "{name:width$}: {value}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            // As C prints "%#x": zero has no prefix.
            Self::Hex(0) => f.write_str("0"),
            Self::Hex(number) => write!(f, "{number:#x}"),
            Self::Big(number) => number.fmt(f),
            Self::Ratio(ratio) => write!(f, "{ratio:.3}"),
            Self::Text(text) => text.fmt(f),
            Self::Flag(flag) => u8::from(*flag).fmt(f),
            Self::List(_) | Self::Fields(_) | Self::Absent => Ok(()),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) | Self::Hex(number) => serializer.serialize_u64(*number),
            Self::Big(number) => serializer.collect_str(number),
            Self::Ratio(ratio) => serializer.serialize_f64(*ratio),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::List(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                values.iter().try_for_each(|value| list.serialize_element(value))?;
                list.end()
            }
            Self::Fields(fields) => fields.serialize(serializer),
            Self::Absent => serializer.serialize_none(),
        }
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

macro_rules! from_number {
    ($($int:ty),*) => {$(
        impl From<$int> for Value {
            fn from(number: $int) -> Self {
                Self::Number(number.into())
            }
        }
    )*};
}

from_number!(u8, u16, u32, u64);

impl From<u128> for Value {
    fn from(number: u128) -> Self {
        Self::Big(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Fields> for Value {
    fn from(fields: Fields) -> Self {
        Self::Fields(fields)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_c_does_and_keep_their_order_in_json() {
        let fields = Fields::new()
            .with("vid", hex(0x1b36u16))
            .with("zero", hex(0u8))
            .with("mdts", 7u8)
            .with("big", u128::MAX)
            .with("waf", Value::Ratio(1.25))
            .with("sn", "S \"1\"")
            .with("list", vec![1u32, 2]);
        let mut text = Vec::new();
        fields.write_lines(&mut text, 5).expect("write");
        assert_eq!(
            String::from_utf8_lossy(&text),
            "vid  : 0x1b36\nzero : 0\nmdts : 7\nbig  : 340282366920938463463374607431768211455\nwaf  : 1.250\nsn   : S \"1\"\n"
        );
        assert_eq!(
            serde_json::to_string(&fields).expect("json"),
            r#"{"vid":6966,"zero":0,"mdts":7,"big":"340282366920938463463374607431768211455","waf":1.25,"sn":"S \"1\"","list":[1,2]}"#
        );
    }
}
