//! Keys of hosts and targets, in files and never on a command line.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Visitor};
use unvme_fabric::{Psk, Secret};

use super::private::read_private;
use crate::Error;

/// What a secret of in-band authentication starts with.
pub(super) const SECRET_PREFIX: &str = "DHHC-1:";
/// What a key of TLS starts with.
pub(super) const PSK_PREFIX: &str = "NVMeTLSkey-1:";
/// Characters in a row, of those that keys are written with, from which on they may be a key: the shortest
/// has 48.
const KEY_LIKE_MIN: usize = 32;

/// The keys that a host and a subsystem share.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// The host proves that it knows this one (DH-HMAC-CHAP).
    pub host: Option<Secret>,
    /// The controller proves that it knows this one.
    pub controller: Option<Secret>,
    /// TLS 1.3 by this key, before anything else.
    pub tls: Option<Psk>,
}

impl Keys {
    /// True when there is a key that a host needs to enter.
    pub fn admit(&self) -> bool {
        self.host.is_some() || self.tls.is_some()
    }
}

/// The same, as files say it: each a key, or the path of a file that holds one.
#[derive(Default)]
pub(crate) struct KeyTexts<'a> {
    pub(crate) host: Option<&'a str>,
    pub(crate) controller: Option<&'a str>,
    pub(crate) tls: Option<&'a str>,
}

impl KeyTexts<'_> {
    /// The keys. Paths are relative to `folder`. Errors: the field to blame, and what is wrong with it; never
    /// the key.
    pub(crate) fn read(&self, folder: &Path) -> Result<Keys, (&'static str, String)> {
        let secret = |field, text: Option<&str>| {
            text.map(|text| secret(text, folder).map_err(|reason| (field, reason))).transpose()
        };
        let host = secret("dhchap_key", self.host)?;
        let controller = secret("dhchap_controller_key", self.controller)?;
        if controller.is_some() && host.is_none() {
            let reason =
                "the controller authenticates only to a host that does; expected a `dhchap_key` beside it";
            return Err(("dhchap_controller_key", reason.to_owned()));
        }
        let tls = self.tls.map(|text| psk(text, folder).map_err(|reason| ("tls_key", reason))).transpose()?;
        Ok(Keys { host, controller, tls })
    }
}

fn secret(text: &str, folder: &Path) -> Result<Secret, String> {
    found(text, SECRET_PREFIX, folder, |key| key.trim().parse().map_err(|e| format!("{e}")))
}

fn psk(text: &str, folder: &Path) -> Result<Psk, String> {
    found(text, PSK_PREFIX, folder, |key| key.trim().parse().map_err(|e| format!("{e}")))
}

/// What `parse` makes of the key in `text`, or in the file that it names.
fn found<T>(
    text: &str,
    prefix: &str,
    folder: &Path,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    if text.starts_with(prefix) {
        return parse(text);
    }
    let expected =
        || format!("expected a key that starts with {prefix}, or the path of a file that holds one");
    // Anything with a colon is rather a key that was mistyped than a path, and is not repeated.
    if text.is_empty() || text.contains(':') {
        return Err(expected());
    }
    let path = folder.join(text);
    match read_private(&path) {
        Ok(Some(text)) => parse(&text),
        // There is such a file.
        Err(e @ Error::Setup { .. }) => Err(e.to_string()),
        _ if looks_like_key(text) => Err(expected()),
        Ok(None) => Err(format!("{} is not there", path.display())),
        Err(e) => Err(e.to_string()),
    }
}

/// A key in a JSON file, or the path of its file: a key stays where the text of the file is.
#[derive(Clone)]
pub(super) struct KeyText<'a>(Cow<'a, str>);

impl Deref for KeyText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for KeyText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyTextVisitor).map(Self)
    }
}

struct KeyTextVisitor;

impl<'de> Visitor<'de> for KeyTextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key or a path, in double quotes")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        // It was put together somewhere else, where nobody clears it.
        if looks_like_key(text) {
            return Err(E::custom("a key is written without backslashes"));
        }
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// A part of the text may be a key, or most of one, without what belongs around it: as Base64 or as digits.
pub(crate) fn looks_like_key(text: &str) -> bool {
    let is_of_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    text.split(|c| !is_of_base64(c)).any(|run| run.len() >= KEY_LIKE_MIN)
        || text.contains(SECRET_PREFIX)
        || text.contains(PSK_PREFIX)
}
