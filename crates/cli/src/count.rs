//! Counted things.

use std::fmt::Display;

/// A number of things by their singular: `1 pair`, `2 pairs`.
pub(crate) fn count<N: Display + PartialEq + From<u8>>(number: N, thing: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_thing_is_singular_and_none_are_several() {
        assert_eq!([0u64, 1, 2].map(|pairs| count(pairs, "pair")), ["0 pairs", "1 pair", "2 pairs"]);
        assert_eq!(count(1usize, "byte"), "1 byte");
    }
}
