//! The values of `--matrix`, and the points that they make together.

use std::str::FromStr;

use unvme::Size;

use super::settings::Settings;
use crate::numbers;

/// Points of all axes together.
const POINTS_MAX: usize = 10_000;

/// Words for settings that are known by others.
const SHORT: [(&str, &str); 5] = [
    ("size", "io-size"),
    ("mix", "read-percent"),
    ("placement", "fdp-pid"),
    ("bs", "io-size"),
    ("nsid", "namespace-id"),
];
/// Settings that are sizes: ranges of them are shown as such.
const SIZES: [&str; 4] = ["io-size", "range", "offset", "amount"];
/// Settings whose values have commas: a semicolon is between two of them.
const LISTS: [&str; 4] = ["cores", "device", "fdp-pid", "size-mix"];

/// One `SETTING=LIST`.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// The setting: a long option without its dashes.
    pub(super) name: String,
    /// Its values as shown, and what they set.
    pub(super) values: Vec<(String, Settings)>,
}

/// A point of the sweep: what each axis has there, and all of them laid over each other.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Name and value, in the order of the axes.
    pub(super) at: Vec<(String, String)>,
    pub(super) settings: Settings,
}

impl FromStr for Axis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, list)) = text.split_once('=') else {
            return Err(
                "expected SETTING=LIST, such as threads=1,2 or depth=1..256 or size=4K,128K".to_owned()
            );
        };
        let name = SHORT.iter().find(|(short, _)| *short == name).map_or(name, |(_, long)| *long);
        let separator = if LISTS.contains(&name) { ';' } else { ',' };
        let mut values: Vec<(String, Settings)> = Vec::new();
        for part in list.split(separator) {
            for value in expanded(name, part)? {
                if !values.iter().any(|(known, _)| *known == value) {
                    let settings = Settings::one(name, &value)?;
                    values.push((value, settings));
                }
            }
        }
        Ok(Self { name: name.to_owned(), values })
    }
}

/// The values of `A..B`, each twice the one before; anything else is one value.
fn expanded(name: &str, part: &str) -> Result<Vec<String>, String> {
    // What is no number is a value of its own, such as a path.
    let Some((first, last)) = part.split_once("..") else { return Ok(vec![part.to_owned()]) };
    let (Ok(first), Ok(last)) = (numbers::bytes(first), numbers::bytes(last)) else {
        return Ok(vec![part.to_owned()]);
    };
    if first > last {
        return Err(format!("`{part}` goes backwards"));
    }
    if first == 0 {
        return Err(format!("`{part}`: 0 cannot be doubled; expected a list"));
    }
    let doubled = std::iter::successors(Some(first), |value| value.checked_mul(2));
    let shown = |value: u64| if SIZES.contains(&name) { Size(value).to_string() } else { value.to_string() };
    Ok(doubled.take_while(|&value| value <= last).map(shown).collect())
}

/// All combinations, the last axis the fastest; one without any axis. Errors: a usage error, in words.
pub(super) fn places(axes: &[Axis]) -> Result<Vec<Place>, String> {
    let mut places = vec![Place { at: Vec::new(), settings: Settings::default() }];
    for (index, axis) in axes.iter().enumerate() {
        if axes[..index].iter().any(|other| other.name == axis.name) {
            return Err(format!("--matrix: {} is given twice", axis.name));
        }
        if places.len().saturating_mul(axis.values.len()) > POINTS_MAX {
            return Err(format!("--matrix: these are more than {POINTS_MAX} points; expected fewer values"));
        }
        let with = |place: &Place, (value, settings): &(String, Settings)| Place {
            at: place.at.iter().cloned().chain([(axis.name.clone(), value.clone())]).collect(),
            settings: settings.clone().over(&place.settings),
        };
        places =
            places.iter().flat_map(|place| axis.values.iter().map(move |value| with(place, value))).collect();
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        let axis: Axis = text.parse().expect(text);
        axis.values.into_iter().map(|(value, _)| value).collect()
    }

    #[test]
    fn a_range_doubles_and_a_list_is_taken_as_it_is() {
        assert_eq!(values("threads=1,2"), ["1", "2"]);
        assert_eq!(values("depth=1..256"), ["1", "2", "4", "8", "16", "32", "64", "128", "256"]);
        assert_eq!(values("depth=3..20,4,3"), ["3", "6", "12", "4"]);
        assert_eq!(values("depth=4095"), ["4095"]);
        assert_eq!(values("size=4K..16K,1M"), ["4K", "8K", "16K", "1M"]);
        assert_eq!(values("device=mem:block:1G,fdp;mem:block:2G"), ["mem:block:1G,fdp", "mem:block:2G"]);
        assert_eq!(values("placement=0,1;0-3"), ["0,1", "0-3"]);
        assert_eq!(values("size-mix=4K:1;4K:1,8K:2"), ["4K:1", "4K:1,8K:2"]);
        assert_eq!(values("cores=0;1;0-1;0,3"), ["0", "1", "0-1", "0,3"]);
        assert_eq!(values("workload=randread,randwrite"), ["randread", "randwrite"]);
    }

    #[test]
    fn anything_else_says_what_was_expected() {
        for (text, expected) in [
            ("depth", "expected SETTING=LIST"),
            ("verify=1", "`verify` is not a setting; expected one of device"),
            ("depth=", "cannot parse integer from empty string"),
            ("depth=0", "0 is not in 1..=4095"),
            ("depth=4096", "4096 is not in 1..=4095"),
            ("threads=1025", "1025 is not in 1..=1024"),
            ("depth=0..4", "0 cannot be doubled"),
            ("depth=8..4", "`8..4` goes backwards"),
            ("depth=1,,2", "cannot parse integer from empty string"),
            ("depth=-1", "invalid value '-1'"),
            ("depth=x", "invalid value 'x'"),
            ("workload=scan", "invalid value 'scan'"),
        ] {
            let error = text.parse::<Axis>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn axes_are_combined_with_the_last_one_fastest() {
        let axes = ["depth=1,2", "size=4K,8K"].map(|text| text.parse::<Axis>().expect(text));
        let all = places(&axes).expect("four points");
        let at = |index: usize| (all[index].settings.depth(), all[index].settings.io_size());
        assert_eq!([at(0), at(1), at(2), at(3)], [(1, 4096), (1, 8192), (2, 4096), (2, 8192)]);
        assert_eq!(
            all[3].at,
            [("depth".to_owned(), "2".to_owned()), ("io-size".to_owned(), "8K".to_owned())]
        );
        assert_eq!(places(&[]).expect("one point").len(), 1);
        let twice = ["depth=1", "depth=2"].map(|text| text.parse::<Axis>().expect(text));
        assert_eq!(places(&twice).expect_err("twice"), "--matrix: depth is given twice");
    }
}
