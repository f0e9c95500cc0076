//! Which hosts a target lets in, and by what keys: the access file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::keys::{KeyText, KeyTexts, Keys};
use super::private::read_private;
use crate::json::{place_of, secret_syntax_error};
use crate::name::check_nqn;
use crate::{Error, Result};

/// Hosts that an access file can name.
pub const HOSTS_MAX: usize = 1024;

/// A host that may enter.
#[derive(Clone, Debug)]
pub struct AllowedHost {
    /// Its NQN.
    pub nqn: String,
    /// NQNs of the subsystems that it may use; `None` for all.
    pub subsystems: Option<Vec<String>>,
    /// How it proves that it is who it says it is. Without keys its word is taken.
    pub keys: Keys,
}

impl AllowedHost {
    /// True when it may use the subsystem `nqn`.
    pub fn may_use(&self, nqn: &str) -> bool {
        self.subsystems.as_ref().is_none_or(|mine| mine.iter().any(|it| it == nqn))
    }
}

/// Which hosts may enter.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// These.
    pub hosts: Vec<AllowedHost>,
    /// Everybody, by their word; `hosts` is empty then.
    pub any_host: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    #[serde(borrow)]
    hosts: Vec<Entry<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<'a> {
    nqn: String,
    #[serde(default)]
    subsystems: Option<Vec<String>>,
    #[serde(default, borrow)]
    dhchap_key: Option<KeyText<'a>>,
    #[serde(default, borrow)]
    dhchap_controller_key: Option<KeyText<'a>>,
    #[serde(default, borrow)]
    tls_key: Option<KeyText<'a>>,
}

impl Access {
    /// Reads an access file:
    ///
    /// ```json
    /// { "hosts": [
    ///     { "nqn": "nqn.2014-08.org.nvmexpress:uuid:...",
    ///       "dhchap_key": "DHHC-1:...", "dhchap_controller_key": "DHHC-1:...", "tls_key": "tls.key",
    ///       "subsystems": ["nqn.2014-08.org.example:ssd"] }
    /// ] }
    /// ```
    ///
    /// All but `nqn` may be left out. A key is the key itself, or the path of a file that holds it, relative
    /// to the folder of the access file. Neither file may be readable by others.
    ///
    /// # Errors
    /// [`Error::Setup`] with the command that helps when others can read it; [`Error::Config`] with line,
    /// column and key; [`Error::Io`].
    pub fn load(path: &Path) -> Result<Self> {
        let missing = || Error::file("open", path, std::io::Error::from(std::io::ErrorKind::NotFound));
        Self::parse(&read_private(path)?.ok_or_else(missing)?, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let file: File<'_> = serde_json::from_str(text).map_err(|e| secret_syntax_error(text, path, &e))?;
        let mut hosts: Vec<AllowedHost> = Vec::new();
        let count = match file.hosts.len() {
            0 => Err("names no host; nobody could enter".to_owned()),
            count if count > HOSTS_MAX => Err(format!("more than {HOSTS_MAX} hosts")),
            _ => Ok(()),
        };
        count.map_err(|reason| wrong(text, path, ("hosts", reason), "\"hosts\""))?;
        for entry in file.hosts {
            // The place of an entry is that of its name, which no other one has.
            let blame = |fault| wrong(text, path, fault, &format!("{:?}", entry.nqn));
            check_nqn(&entry.nqn).map_err(|reason| blame(("nqn", reason)))?;
            if hosts.iter().any(|host| host.nqn == entry.nqn) {
                return Err(blame(("nqn", format!("{} is there twice", entry.nqn))));
            }
            for nqn in entry.subsystems.iter().flatten() {
                check_nqn(nqn).map_err(|reason| blame(("subsystems", reason)))?;
            }
            let texts = KeyTexts {
                host: entry.dhchap_key.as_deref(),
                controller: entry.dhchap_controller_key.as_deref(),
                tls: entry.tls_key.as_deref(),
            };
            let keys = texts.read(&folder_of(path)).map_err(blame)?;
            hosts.push(AllowedHost { nqn: entry.nqn, subsystems: entry.subsystems, keys });
        }
        Ok(Self { hosts, any_host: false })
    }

    /// Lets a host in by its name alone.
    ///
    /// # Errors
    /// [`Error::Argument`] when it is no NQN.
    pub fn allow(&mut self, nqn: &str) -> Result<()> {
        check_nqn(nqn).map_err(Error::Argument)?;
        if !self.hosts.iter().any(|host| host.nqn == nqn) {
            let nqn = nqn.to_owned();
            self.hosts.push(AllowedHost { nqn, subsystems: None, keys: Keys::default() });
        }
        Ok(())
    }

    /// True when some host has a key.
    pub fn holds_keys(&self) -> bool {
        self.hosts.iter().any(|host| host.keys.admit())
    }

    /// True when nothing was said about who may enter: then everybody does who reaches the server.
    pub fn says_nothing(&self) -> bool {
        self.hosts.is_empty() && !self.any_host
    }
}

pub(super) fn folder_of(path: &Path) -> PathBuf {
    path.parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// The error for a field of the entry that `needle` is found in.
pub(super) fn wrong(text: &str, path: &Path, (key, reason): (&'static str, String), needle: &str) -> Error {
    let (line, column) = place_of(text, needle);
    Error::Config { path: path.into(), line, column, key: Some(key.into()), reason }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// As `nvme gen-dhchap-key --hmac 0` of nvme-cli writes one.
    const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

    fn private(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("mode");
        path
    }

    #[test]
    fn hosts_have_keys_of_their_own_and_subsystems_that_they_may_use() {
        let folder = tempfile::tempdir().expect("a folder");
        private(folder.path(), "host.key", &format!("{SECRET}\n"));
        let text = format!(
            r#"{{"hosts": [{{"nqn": "nqn.a", "dhchap_key": "host.key", "dhchap_controller_key": "{SECRET}",
                             "subsystems": ["nqn.s"]}},
                           {{"nqn": "nqn.b"}}]}}"#
        );
        let path = private(folder.path(), "access.json", &text);
        let access = Access::load(&path).expect("right");
        let [a, b] = access.hosts.as_slice() else { panic!("{access:?}") };
        assert!(a.keys.host.is_some() && a.keys.host == a.keys.controller && a.keys.admit());
        assert!(a.may_use("nqn.s") && !a.may_use("nqn.t") && b.may_use("nqn.t") && !b.keys.admit());
        assert!(!access.says_nothing() && !access.any_host);
        assert!(!format!("{access:?}").contains("ia6zGodOr4"), "secrets are not printed");
    }

    /// From libnvme's tests (test/psk.c).
    const TLS: &str =
        "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:";

    #[test]
    fn what_is_around_a_key_in_its_file_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = r#"{"hosts": [{"nqn": "nqn.a", "dhchap_key": "host.key", "tls_key": "tls.key"}]}"#;
        let path = private(folder.path(), "access.json", text);
        for end in ["", "\n", "\r\n", " \t", "  \r\n\r\n"] {
            private(folder.path(), "host.key", &format!("{SECRET}{end}"));
            private(folder.path(), "tls.key", &format!("{TLS}{end}"));
            let access = Access::load(&path).unwrap_or_else(|e| panic!("{end:?}: {e}"));
            assert!(access.hosts[0].keys.host.is_some() && access.hosts[0].keys.tls.is_some(), "{end:?}");
        }
    }

    #[test]
    fn an_access_file_that_others_can_read_is_refused_and_so_is_a_key_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = private(folder.path(), "host.key", SECRET);
        let text = r#"{"hosts": [{"nqn": "nqn.a", "dhchap_key": "host.key"}]}"#;
        let path = private(folder.path(), "access.json", text);
        assert!(Access::load(&path).is_ok());
        fs::set_permissions(&key, Permissions::from_mode(0o640)).expect("mode");
        let refused = Access::load(&path).expect_err("the key's file").to_string();
        assert!(refused.contains("`dhchap_key`") && refused.contains("chmod 600 "), "{refused}");
        fs::set_permissions(&path, Permissions::from_mode(0o604)).expect("mode");
        let refused = Access::load(&path).expect_err("the file").to_string();
        assert!(
            refused.contains("access.json: others can read") && refused.contains("mode 604"),
            "{refused}"
        );
        assert!(Access::load(&folder.path().join("none")).is_err());
    }

    #[test]
    fn mistakes_are_told_with_their_place_and_never_with_the_key() {
        for (text, place, part) in [
            ("{", "access.json:1:1: ", "EOF"),
            (r#"{"host": []}"#, "access.json:1:7: `host`: ", "unknown field, expected `hosts`"),
            (r#"{"hosts": []}"#, "access.json:1:2: `hosts`: ", "names no host; nobody could enter"),
            (
                r#"{"hosts": [{"nqn": "nqn.a"}, "DHHC-1:00:c2VjcmV0:"]}"#,
                "access.json:1:50: `nqn`: ",
                "invalid type: string, expected struct Entry",
            ),
            (
                r#"{"hosts": [{"nqn": "nqn.a", "subsystems": "a \" c2VjcmV0"}]}"#,
                "`subsystems`: ",
                "invalid type: string, expected a sequence",
            ),
            (
                r#"{"hosts": [{"nqn": "nqn.a", "DHHC-1:00:c2VjcmV0:": 1}]}"#,
                "access.json:1:49: ",
                "unknown field, expected one of `nqn`",
            ),
            (
                r#"{"hosts": [{"nqn": "nqn.a", "dhchap_key": "ia6zGodOr4SEG0Zzc2VjcmV0aw398rpY0wqipUWj/4jWjUh4HW+Q="}]}"#,
                "`dhchap_key`: ",
                "a key that starts with DHHC-1:",
            ),
            (
                r#"{"hosts": [{"nqn": "nqn.a", "dhchap_key": "DHHC-1:00:c2Vj\u0063mV0:"}]}"#,
                "`dhchap_key`: ",
                "a key is written without backslashes",
            ),
            (r#"{"hosts": [{"nqn": "me"}]}"#, "access.json:1:20: `nqn`: ", "`me` is no NQN"),
            (
                "{\"hosts\": [{\"nqn\": \"nqn.a\"},\n {\"nqn\": \"nqn.a\"}]}",
                "`nqn`: ",
                "nqn.a is there twice",
            ),
            (
                "{\"hosts\": [\n{\"nqn\": \"nqn.a\", \"dhchap_key\": \"DHHC-1:00:c2VjcmV0:\"}]}",
                "access.json:2:9: `dhchap_key`: ",
                "",
            ),
            (
                r#"{"hosts": [{"nqn": "nqn.a", "dhchap_key": "dhhc:c2VjcmV0"}]}"#,
                "",
                "a key that starts with DHHC-1:",
            ),
            (r#"{"hosts": [{"nqn": "nqn.a", "tls_key": "nowhere"}]}"#, "`tls_key`: ", "nowhere is not there"),
            (
                &format!(r#"{{"hosts": [{{"nqn": "nqn.a", "dhchap_controller_key": "{SECRET}"}}]}}"#),
                "`dhchap_controller_key`: ",
                "expected a `dhchap_key` beside it",
            ),
            (r#"{"hosts": [{"nqn": "nqn.a", "subsystems": ["x"]}]}"#, "`subsystems`: ", "`x` is no NQN"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = private(folder.path(), "access.json", text);
            let message = Access::load(&path).expect_err(text).to_string();
            assert!(message.contains(place) && message.contains(part), "{text}: {message}");
            assert!(!message.contains("c2VjcmV0"), "{message}");
        }
    }
}
