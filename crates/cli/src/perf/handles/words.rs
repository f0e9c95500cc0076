//! `--handle`: what one handle does, and how: words of the workload among those of the policies.

use std::ops::Range;

use anyhow::Result;
use unvme::Block;
use unvme::handle::{POLICY_SYNTAX, Policies};

use super::super::job::mix;
use super::super::settings::Settings;
use crate::exit::usage;

/// Words of the workload, and the settings that they are.
const WORDS: [(&str, &str); 8] = [
    ("rw", "workload"),
    ("bs", "io-size"),
    ("depth", "depth"),
    ("mix", "read-percent"),
    ("dist", "dist"),
    ("rate", "rate"),
    ("offset", "offset"),
    ("range", "range"),
];

/// A handle as typed.
#[derive(Clone, Debug)]
pub(super) struct Words {
    pub(super) name: String,
    pub(super) settings: Settings,
    pub(super) policies: Policies,
}

impl Words {
    /// What `all` says of the partition holds for a handle that says nothing of it. Errors: a usage error
    /// that names the word, with what is known.
    pub(super) fn parse(text: &str, nth: usize, all: &Settings) -> Result<Self> {
        let mut words = Self {
            name: format!("handle{}", nth + 1),
            settings: Settings { range: all.range, offset: all.offset, ..Settings::default() },
            policies: Policies::default(),
        };
        let mut of_policies = Vec::new();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let wrong = |reason: String| usage(format!("--handle {text}: `{word}`: {reason}"));
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if key == "name" && !value.is_empty() {
                words.name = value.to_owned();
            } else if let Some((_, setting)) = WORDS.iter().find(|(known, _)| *known == key) {
                // Sizes as fio has them, too: 4k.
                let value =
                    if *setting == "workload" { value.to_owned() } else { value.to_ascii_uppercase() };
                let value = if *setting == "dist" { value.to_ascii_lowercase() } else { value };
                words.settings = Settings::one(setting, &value).map_err(wrong)?.over(&words.settings);
            } else if Policies::has_key(key) {
                of_policies.push(word);
            } else {
                let known: Vec<&str> = WORDS.iter().map(|(known, _)| *known).collect();
                return Err(wrong(format!(
                    "it is not known; known are name, {}, and {POLICY_SYNTAX}",
                    known.join(", ")
                )));
            }
        }
        words.policies = of_policies.join(",").parse().map_err(|e| usage(format!("--handle {text}: {e}")))?;
        let pattern = words.settings.pattern();
        if pattern.is_of_pairs() {
            let name = pattern.name();
            return Err(usage(format!(
                "--handle {text}: `rw={name}`: handles have blocks; use read, write, randread, randwrite, rw or randrw"
            )));
        }
        mix(&words.settings, 0)?;
        Ok(words)
    }

    /// Its partition, in blocks. Errors: a usage error about what is not on the namespace.
    pub(super) fn partition(&self, block: &Block) -> Result<Range<u64>> {
        let size = u64::from(block.block_bytes());
        let from = self.settings.offset.unwrap_or(0);
        let bytes = self.settings.range.unwrap_or(block.bytes().saturating_sub(from));
        let io = self.settings.io_size();
        let fits = from.checked_add(bytes).is_some_and(|end| end <= block.bytes());
        if !fits || !from.is_multiple_of(size) || !bytes.is_multiple_of(size) || bytes < io || bytes == 0 {
            let name = &self.name;
            return Err(usage(format!(
                "--handle {name}: {bytes} bytes from byte {from} on: expected whole blocks of {size} bytes, of the \
                 {} bytes that there are, and room for one command of {io} bytes",
                block.bytes()
            )));
        }
        let most = u64::from(block.namespace().transfer_blocks_max()) * size;
        if io == 0 || !io.is_multiple_of(size) || io > most {
            let name = &self.name;
            return Err(usage(format!(
                "--handle {name}: commands of {io} bytes: expected whole blocks of {size} bytes, and {most} bytes at most"
            )));
        }
        Ok(from / size..(from + bytes) / size)
    }
}

#[cfg(test)]
mod tests {
    use unvme::handle::Schedule;

    use super::*;

    #[test]
    fn words_of_both_kinds_are_told_apart() {
        let words = Words::parse(
            "name=log,rw=randwrite,bs=128k,sched=share:3,depth=8,queue=own",
            0,
            &Settings::default(),
        )
        .expect("words");
        assert_eq!(
            (words.name.as_str(), words.settings.io_size(), words.settings.depth()),
            ("log", 128 << 10, 8)
        );
        assert_eq!(words.policies.schedule, Schedule::Share(3));
        assert_eq!(
            (words.settings.depth(), Words::parse("", 1, &Settings::default()).expect("none").name.as_str()),
            (8, "handle2")
        );
        for (text, part) in [
            ("rv=read", "`rv=read`: it is not known; known are name, rw, bs"),
            ("rw=sideways", "sideways"),
            ("rw=retrieve", "handles have blocks"),
            ("bs=4x", "4X"),
            ("depth=0", "1..=4095"),
            ("sched=share:0", "`sched=share:0`: a share of 0: 1 to 10000"),
            ("name=", "known are name"),
            ("rw=randread,mix=70", "does not mix"),
        ] {
            let error = Words::parse(text, 0, &Settings::default()).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
