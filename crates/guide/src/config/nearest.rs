//! Which of the words that were possible somebody meant.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// No word that is possible is longer, so a longer one is no slip of the finger.
const CHARS_MAX: usize = 48;

/// The candidate that `word` is a misspelling of, if there is one.
pub(super) fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    if word.chars().count() > CHARS_MAX {
        return None;
    }
    // Differences in case and hyphens are spelling, not another word.
    let plain = |text: &str| text.trim().to_lowercase().replace(['-', ' '], "_");
    let word = plain(word);
    let slips_max = if word.len() < 4 { 1 } else { 2 };
    candidates
        .iter()
        .map(|candidate| (distance(&word, &plain(candidate)), *candidate))
        .min_by_key(|(slips, _)| *slips)
        .filter(|(slips, candidate)| *slips <= slips_max && *slips < candidate.len())
        .map(|(_, candidate)| candidate)
}

/// Characters to insert, delete or replace to make one of the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (index, a) in from.chars().enumerate() {
        let mut diagonal = index;
        let mut left = index.saturating_add(1);
        let mut cells = row.iter_mut();
        if let Some(first) = cells.next() {
            *first = left;
        }
        for (cell, b) in cells.zip(to.chars()) {
            let replaced = diagonal.saturating_add(usize::from(a != b));
            diagonal = *cell;
            left = replaced.min(left.min(diagonal).saturating_add(1));
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_slips() {
        for (a, b, slips) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("slab", "slab", 0),
            ("slba", "slab", 2),
        ] {
            assert_eq!(distance(a, b), slips, "{a} {b}");
        }
    }

    #[test]
    fn a_misspelling_finds_its_word_and_another_word_none() {
        let words = ["slab_size", "ssd_type", "log_file"];
        for (word, meant) in [
            ("slab_sise", Some("slab_size")),
            ("Slab-Size", Some("slab_size")),
            ("slabsize", Some("slab_size")),
            ("log_level", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, &words), meant, "{word}");
        }
        assert_eq!(nearest("no", &["on", "off"]), None);
        assert_eq!(nearest("onn", &["on", "off"]), Some("on"));
    }
}
