//! Users and groups by name, as `passwd(5)` and `group(5)` list them.

use super::System;
use unvme::{Error, Result};

/// Who is given device nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A user: a name or a number.
    User(String),
    /// A group: a name or a number.
    Group(String),
}

impl Owner {
    /// The user's or the group's number.
    pub(super) fn id(&self, system: &System) -> Result<u32> {
        let (name, file, kind) = match self {
            Self::User(name) => (name, "/etc/passwd", "user"),
            Self::Group(name) => (name, "/etc/group", "group"),
        };
        if let Ok(id) = name.parse() {
            return Ok(id);
        }
        id_of(&system.text(file).unwrap_or_default(), name).ok_or_else(|| {
            let letter = if kind == "user" { "id -u" } else { "getent group" };
            Error::Argument(format!(
                "there is no {kind} `{name}` in {file}; name another, or give its number (`{letter} {name}`)"
            ))
        })
    }
}

/// The number in the third field of the line of `name`.
fn id_of(text: &str, name: &str) -> Option<u32> {
    let fields = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.into_iter().find(|fields| fields.first() == Some(&name))?.get(2)?.parse().ok()
}

/// The name of a user, or its number where it has none.
pub(super) fn user_name(system: &System, id: u32) -> String {
    let text = system.text("/etc/passwd").unwrap_or_default();
    let wanted = id.to_string();
    let name = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(&wanted)).then(|| name.to_owned())
    });
    name.unwrap_or(wanted)
}
