//! Tables of what a field may hold, so that each code is written once with its value and its words.

/// `codes! { pub mod module: u8 { CODE = value, "Text"; ... } }` makes modules of constants, each documented
/// with its text. With `, named` behind the type a module also has `name`, which finds the text of a code.
macro_rules! codes {
    ($($(#[$doc:meta])* pub mod $module:ident: $int:ty { $($code:ident = $value:expr, $text:literal;)* })*) => {
        $(
            $(#[$doc])*
            pub mod $module {
                $(#[doc = concat!($text, ".")] pub const $code: $int = $value;)*
            }
        )*
    };
    (
        $(#[$doc:meta])* pub mod $module:ident: $int:ty, named { $($code:ident = $value:expr, $text:literal;)* }
    ) => {
        $(#[$doc])*
        pub mod $module {
            $(#[doc = concat!($text, ".")] pub const $code: $int = $value;)*

            /// The specification's name of a code, if it is one this crate knows.
            pub const fn name(code: $int) -> Option<&'static str> {
                match code {
                    $($code => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

/// `open_codes! { pub struct Name(u8), "word" { /// Doc. CODE = value, "Text"; ... } }` makes a number with
/// constants and their names: any value can be held, and one without a name is shown with `word`.
macro_rules! open_codes {
    (
        $(#[$meta:meta])* pub struct $name:ident($type:ty), $word:literal {
            $($(#[$doc:meta])* $code:ident = $value:expr, $text:literal;)*
        }
    ) => {
        $(#[$meta])*
        pub struct $name(pub $type);

        impl $name {
            $($(#[$doc])* pub const $code: Self = Self($value);)*

            /// The specification's name; `None` for values it reserves or leaves to vendors.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$code => Some($text),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!($word, " {:#04x}"), self.0),
                }
            }
        }
    };
}

/// `choices! { pub enum Name(3 bits) { /// Doc. Choice = value, ... } }` makes the enum of a field of up to 8
/// bits, with a last variant for the values that the specification reserves.
macro_rules! choices {
    (
        $(#[$meta:meta])* pub enum $name:ident($bits:literal bits) {
            $($(#[$doc:meta])* $choice:ident = $value:literal,)*
        }
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* $choice,)*
            /// The other values, which the specification reserves.
            Reserved(u8),
        }

        impl $name {
            /// From the field, whose bits are the lowest of `raw`.
            pub const fn from_raw(raw: u8) -> Self {
                match raw & (u8::MAX >> (8 - $bits)) {
                    $($value => Self::$choice,)*
                    other => Self::Reserved(other),
                }
            }

            /// The bits of the field.
            pub const fn raw(self) -> u8 {
                match self {
                    $(Self::$choice => $value,)*
                    Self::Reserved(other) => other & (u8::MAX >> (8 - $bits)),
                }
            }
        }
    };
}
