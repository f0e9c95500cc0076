//! How the commands of a workload differ from each other.

use serde::{Deserialize, Serialize};

use super::scale::{bytes, trimmed};

/// What reads and writes of one size, one after the other, are not; empty for those.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Sizes of commands, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) size_mix: Vec<SizeShare>,
}

/// A size that some of the commands have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SizeShare {
    pub(crate) bytes: u64,
    /// Its share of the commands is this of the sum of all weights.
    pub(crate) weight: u32,
}

impl Shape {
    /// What there is to tell, each with its name.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        let weights: f64 = self.size_mix.iter().map(|size| f64::from(size.weight)).sum();
        let size = |size: &SizeShare| {
            let percent = format!("{:.2}", f64::from(size.weight) * 100.0 / weights);
            format!("{} {} %", bytes(size.bytes), trimmed(&percent))
        };
        if !self.size_mix.is_empty() {
            let sizes: Vec<String> = self.size_mix.iter().map(size).collect();
            facts.push(("Sizes", sizes.join(", ")));
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_workload_has_nothing_to_tell_and_no_words_in_json() {
        assert!(Shape::default().facts().is_empty());
        assert_eq!(serde_json::to_string(&Shape::default()).expect("JSON"), "{}");
        assert_eq!(serde_json::from_str::<Shape>("{}").expect("a shape"), Shape::default());
    }

    #[test]
    fn sizes_are_told_in_percent_whatever_their_weights() {
        let sizes = [(4096, 2), (1 << 20, 1)];
        let size_mix = sizes.map(|(bytes, weight)| SizeShare { bytes, weight }).to_vec();
        let shape = Shape { size_mix, ..Shape::default() };
        assert_eq!(shape.facts(), [("Sizes", "4 KiB 66.67 %, 1 MiB 33.33 %".to_owned())]);
    }
}
