//! The layout of a wire structure, checked when it is compiled.

/// `layout!(Name, bytes, { field: offset, ... })` asserts the size of a wire structure and the offsets of its
/// late fields, and makes its default all zeroes: `Default` cannot be derived for long arrays.
macro_rules! layout {
    ($name:ident, $bytes:literal, { $($field:ident: $offset:literal),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$name>() == $bytes);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };

        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    };
}
