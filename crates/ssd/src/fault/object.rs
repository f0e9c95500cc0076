//! JSON objects whose keys are known, and what their values can be. What is wrong is told with the key.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::word::{number, shortened};

/// An object whose keys are known.
pub(super) trait Keyed: Default {
    const KEYS: &'static [&'static str];

    /// Takes the value of one of the keys.
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;

    /// All of it together.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// One as JSON.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Keyed> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfKeys<T>(PhantomData<T>);

        impl<'de, T: Keyed> Visitor<'de> for OfKeys<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object with keys of {}", T::KEYS.join(", "))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                read(map)
            }
        }

        deserializer.deserialize_map(OfKeys(PhantomData)).map(Self)
    }
}

/// Reads one to its end.
pub(super) fn read<'de, T: Keyed, A: MapAccess<'de>>(mut map: A) -> Result<T, A::Error> {
    let mut object = T::default();
    let mut seen = Vec::new();
    while let Some(key) = map.next_key::<String>()? {
        let Some(known) = T::KEYS.iter().find(|known| **known == key) else {
            let known = T::KEYS.join(", ");
            let reason = format!("`{}` is not known here; keys are {known}", shortened(&key));
            return Err(de::Error::custom(reason));
        };
        if seen.contains(known) {
            return Err(de::Error::custom(format!("`{known}` is there twice")));
        }
        seen.push(known);
        // What names no place yet is given the one behind the value; a nested key keeps its own.
        object.take(known, &mut map).map_err(|error| de::Error::custom(format!("{known}: {error}")))?;
    }
    object.check().map_err(de::Error::custom)?;
    Ok(object)
}

/// The next value, as `convert` understands it.
pub(super) fn value<'de, A: MapAccess<'de>, T>(
    map: &mut A,
    convert: impl FnOnce(&Scalar) -> Result<T, String>,
) -> Result<T, A::Error> {
    let scalar = map.next_value::<Scalar>()?;
    convert(&scalar).map_err(de::Error::custom)
}

/// A value that is no object and no array.
pub(super) enum Scalar {
    Number(u64),
    Fraction(f64),
    Flag(bool),
    Text(String),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl Visitor<'_> for Any {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a string, true or false")
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar, E> {
                u64::try_from(value).map(Scalar::Number).map_err(|_| E::custom(format!("{value} is below 0")))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar::Fraction(value))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar::Flag(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(value.to_owned()))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl Scalar {
    pub(super) fn number(&self) -> Result<u64, String> {
        match self {
            Self::Number(value) => Ok(*value),
            Self::Text(text) => number(text).ok_or_else(|| self.refused("a number, such as 100 or \"0x64\"")),
            _ => Err(self.refused("a number")),
        }
    }

    /// A number of a type with fewer bits.
    pub(super) fn narrow<T: TryFrom<u64>>(&self, max: u64) -> Result<T, String> {
        T::try_from(self.number()?).map_err(|_| self.refused(&format!("a number up to {max}")))
    }

    pub(super) fn flag(&self) -> Result<bool, String> {
        match self {
            Self::Flag(flag) => Ok(*flag),
            _ => Err(self.refused("true or false")),
        }
    }

    pub(super) fn fraction(&self) -> Result<f64, String> {
        match self {
            Self::Fraction(value) => Ok(*value),
            Self::Number(value) => Ok(*value as f64),
            _ => Err(self.refused("a fraction, such as 0.001")),
        }
    }

    pub(super) fn parse<T: FromStr<Err = String>>(&self) -> Result<T, String> {
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::Number(value) => value.to_string(),
            _ => return Err(self.refused("a string")),
        };
        text.parse().map_err(|expected: String| format!("`{}`: {expected}", shortened(&text)))
    }

    pub(super) fn refused(&self, expected: &str) -> String {
        format!("`{self}` is not possible; expected {expected}")
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => value.fmt(f),
            Self::Fraction(value) => value.fmt(f),
            Self::Flag(value) => value.fmt(f),
            Self::Text(text) => f.write_str(&shortened(text)),
        }
    }
}
