//! Commands by name: nvme-cli's words where it has them.

use std::fmt;
use std::str::FromStr;

use unvme_spec::command::CommandSet;

/// An opcode, or the name of one: `write`, `0x02`, `admin:0x06`.
#[derive(Clone, Copy, Debug)]
pub struct FaultOpcode(Repr);

#[derive(Clone, Copy, Debug)]
enum Repr {
    /// Of several command sets that have such a command, all.
    Named {
        admin: bool,
        word: &'static str,
    },
    Number {
        admin: bool,
        opcode: u8,
    },
}

impl FaultOpcode {
    /// An I/O command.
    pub const fn io(opcode: u8) -> Self {
        Self(Repr::Number { admin: false, opcode })
    }

    /// An admin command.
    pub const fn admin(opcode: u8) -> Self {
        Self(Repr::Number { admin: true, opcode })
    }

    /// True for an admin command.
    pub const fn is_admin(&self) -> bool {
        match self.0 {
            Repr::Named { admin, .. } | Repr::Number { admin, .. } => admin,
        }
    }

    /// Whether this is the opcode of a command; whether that is an admin command has been asked.
    pub(super) fn matches(&self, opcode: u8) -> bool {
        match self.0 {
            Repr::Named { admin, word } => {
                sets(admin).iter().filter_map(|set| set.facts(opcode)).any(|facts| facts.word == word)
            }
            Repr::Number { opcode: only, .. } => only == opcode,
        }
    }
}

impl PartialEq for FaultOpcode {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for FaultOpcode {}

impl fmt::Display for FaultOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Named { word, .. } => f.pad(word),
            Repr::Number { admin: true, opcode } => f.pad(&format!("admin:{opcode:#04x}")),
            Repr::Number { admin: false, opcode } => f.pad(&format!("{opcode:#04x}")),
        }
    }
}

impl FromStr for FaultOpcode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = words();
        if let Some(&(admin, word)) = words.iter().find(|(_, word)| *word == text) {
            return Ok(Self(Repr::Named { admin, word }));
        }
        let (admin, number) = match text.strip_prefix("admin:") {
            Some(number) => (true, number),
            None => (false, text),
        };
        match super::word::number(number).map(u8::try_from) {
            Some(Ok(opcode)) => Ok(Self(Repr::Number { admin, opcode })),
            _ => {
                let names: Vec<&str> = words.iter().map(|(_, word)| *word).collect();
                let names = names.join(", ");
                Err(format!("expected a number up to 255, such as 0x02 or admin:0x06, or one of {names}"))
            }
        }
    }
}

/// The command sets in which an opcode or a word can be.
fn sets(admin: bool) -> &'static [CommandSet] {
    if admin { &[CommandSet::Admin] } else { &CommandSet::IO }
}

/// The words for commands, each once, and whether it is an admin command's.
fn words() -> Vec<(bool, &'static str)> {
    let mut words = Vec::new();
    for admin in [false, true] {
        for facts in sets(admin).iter().flat_map(|set| set.commands()) {
            if !facts.word.is_empty() && !words.contains(&(admin, facts.word)) {
                words.push((admin, facts.word));
            }
        }
    }
    words
}
