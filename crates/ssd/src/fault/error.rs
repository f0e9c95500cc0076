//! What is wrong with a rule.

use std::fmt;

/// A rule that cannot be: what is wrong, and where in the text it is, when it came as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultError {
    /// Line and column, from 1.
    place: Option<(usize, usize)>,
    reason: String,
}

impl FaultError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { place: None, reason: reason.into() }
    }

    /// What the JSON reader says, with the place in front.
    pub(super) fn of_json(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let place = (error.line(), error.column());
        let at = format!(" at line {} column {}", place.0, place.1);
        let reason = text.strip_suffix(&at).unwrap_or(&text).to_owned();
        Self { place: (place.0 > 0).then_some(place), reason }
    }

    /// Line and column, from 1, when the rule came as text.
    pub fn place(&self) -> Option<(usize, usize)> {
        self.place
    }

    /// What is wrong and what was expected, without the place.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for FaultError {}
