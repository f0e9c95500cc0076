//! Victim policies, and what they are called.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which reclaim unit is reclaimed next. Written as `greedy`, `cost-benefit`, `fifo`, `d-choice` or
/// `d-choice:8`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum VictimPolicy {
    /// The one with the fewest valid pages.
    #[default]
    Greedy,
    /// The one with the best (1 - u) * age / 2u, where u is its valid fraction.
    CostBenefit,
    /// The one that was closed first.
    Fifo,
    /// The one with the fewest valid pages among so many that are drawn at random.
    DChoice(u8),
}

impl VictimPolicy {
    /// Units that [`VictimPolicy::DChoice`] draws when no number is given.
    pub const CHOICES_DEFAULT: u8 = 8;
}

impl FromStr for VictimPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "greedy" => return Ok(Self::Greedy),
            "cost-benefit" => return Ok(Self::CostBenefit),
            "fifo" => return Ok(Self::Fifo),
            "d-choice" => return Ok(Self::DChoice(Self::CHOICES_DEFAULT)),
            _ => {}
        }
        let choices = text.strip_prefix("d-choice:").and_then(|number| number.parse().ok());
        choices.filter(|&choices| choices > 0).map(Self::DChoice).ok_or_else(|| {
            format!(
                "expected greedy, cost-benefit, fifo, d-choice or d-choice:1 to d-choice:255, not `{text}`"
            )
        })
    }
}

impl TryFrom<String> for VictimPolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<VictimPolicy> for String {
    fn from(policy: VictimPolicy) -> Self {
        policy.to_string()
    }
}

impl fmt::Display for VictimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greedy => f.pad("greedy"),
            Self::CostBenefit => f.pad("cost-benefit"),
            Self::Fifo => f.pad("fifo"),
            Self::DChoice(choices) => f.pad(&format!("d-choice:{choices}")),
        }
    }
}
