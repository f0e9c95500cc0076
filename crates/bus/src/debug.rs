//! `Debug` of what holds parts that cannot be shown.

/// `debug_parts!(Queue { id(), mode(), depth });` implements `Debug` for a type that is shown by some of its
/// fields and methods, followed by dots for the rest.
#[macro_export]
macro_rules! debug_parts {
    ($name:ident $(<$lifetime:lifetime>)? { $($part:ident $(($($none:tt)*))?),* }) => {
        impl std::fmt::Debug for $name $(<$lifetime>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($part), &self.$part $(($($none)*))?))*
                    .finish_non_exhaustive()
            }
        }
    };
}
