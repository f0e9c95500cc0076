//! Targets that this user knows: their addresses and keys, in `fabrics.json`.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;
use unvme_spec::fabrics::DISCOVERY_NQN;

use super::Endpoint;
use super::access::{folder_of, wrong};
use super::keys::{KeyText, KeyTexts, Keys};
use super::private::read_private;
use crate::json::secret_syntax_error;
use crate::name::{TcpName, check_nqn};
use crate::{Error, Registry, Result};

/// The file, in the folder of the virtual devices.
const FILE: &str = "fabrics.json";

/// A target that the file names.
#[derive(Clone, Debug)]
pub struct KnownTarget {
    /// NQN of the subsystem, or of a discovery service.
    pub nqn: String,
    /// Where it is; `None` for keys that are for this subsystem wherever it is found.
    pub endpoint: Option<Endpoint>,
    /// Keys for it.
    pub keys: Keys,
}

impl KnownTarget {
    /// What it is opened by, when its address is known.
    pub fn name(&self) -> Option<TcpName> {
        self.endpoint.clone().map(|endpoint| TcpName::new(endpoint, self.nqn.as_str()))
    }
}

/// An entry of the file that is wrong: whoever asks for this target gets the error, and nobody else does.
#[derive(Clone, Debug)]
pub struct BadTarget {
    /// NQN of the subsystem, when that much is known.
    pub nqn: Option<String>,
    /// Where it is, when that is known.
    pub endpoint: Option<Endpoint>,
    path: PathBuf,
    line: usize,
    column: usize,
    key: Option<String>,
    reason: String,
}

impl BadTarget {
    /// What is wrong with it: an [`Error::Config`].
    pub fn error(&self) -> Error {
        let Self { path, line, column, key, reason, .. } = self.clone();
        Error::Config { path, line, column, key, reason }
    }
}

/// The targets that the file names; none when there is no file.
#[derive(Clone, Debug, Default)]
pub struct KnownTargets {
    /// Entries that can be used.
    pub targets: Vec<KnownTarget>,
    /// Entries that cannot.
    pub bad: Vec<BadTarget>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    #[serde(borrow)]
    targets: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<'a> {
    nqn: String,
    #[serde(default)]
    address: Option<String>,
    #[serde(default, borrow)]
    dhchap_key: Option<KeyText<'a>>,
    #[serde(default, borrow)]
    dhchap_controller_key: Option<KeyText<'a>>,
    #[serde(default, borrow)]
    tls_key: Option<KeyText<'a>>,
}

/// What an entry is about, whatever else may be wrong with it.
#[derive(Deserialize)]
struct Whose {
    #[serde(default)]
    nqn: Option<String>,
    #[serde(default)]
    address: Option<String>,
}

impl KnownTargets {
    /// Where the file is.
    pub fn path(registry: &Registry) -> PathBuf {
        registry.home().join(FILE)
    }

    /// Reads `fabrics.json` in the folder of the virtual devices:
    ///
    /// ```json
    /// { "targets": [
    ///     { "nqn": "nqn.2014-08.org.example:ssd", "address": "10.0.0.1:4420",
    ///       "dhchap_key": "DHHC-1:...", "dhchap_controller_key": "DHHC-1:...", "tls_key": "tls.key" }
    /// ] }
    /// ```
    ///
    /// All but `nqn` may be left out. A key is the key itself, or the path of a file that holds it, relative
    /// to the folder. Neither file may be readable by others. An entry that is wrong is in
    /// [`KnownTargets::bad`], and the others can be used.
    ///
    /// # Errors
    /// [`crate::Error::Setup`] with the command that helps when others can read the file;
    /// [`crate::Error::Config`] with line, column and key when it is no list of entries;
    /// [`crate::Error::Io`].
    pub fn load(registry: &Registry) -> Result<Self> {
        let path = Self::path(registry);
        match read_private(&path)? {
            Some(text) => Self::parse(&text, &path),
            None => Ok(Self::default()),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let file: File<'_> = serde_json::from_str(text).map_err(|e| secret_syntax_error(text, path, &e))?;
        let mut known = Self::default();
        for raw in file.targets {
            match target(raw.get(), path) {
                Ok(target) => known.targets.push(target),
                Err(error) => known.bad.push(bad_target(text, raw.get(), error)?),
            }
        }
        Ok(known)
    }

    /// The keys for a subsystem at an endpoint: those of the entry that names both, else of one that names no
    /// address.
    ///
    /// Keys belong to a host and a subsystem, and one machine has many addresses: without such an entry those
    /// of the first that has keys for the subsystem count, wherever it says that the subsystem is. A
    /// discovery service has its name in common with all others: there it is the keys of any subsystem that
    /// is known to be at the same place, and for authentication those of one that may be anywhere. The
    /// service does not have to prove itself by them: not every one can.
    ///
    /// # Errors
    /// [`crate::Error::Config`] when the entry that would count is wrong.
    pub fn keys(&self, endpoint: &Endpoint, nqn: &str) -> Result<Keys> {
        for wanted in [Some(endpoint), None] {
            let is_wanted = |own: &Option<Endpoint>| own.as_ref() == wanted;
            if let Some(target) = self.named(nqn).find(|target| is_wanted(&target.endpoint)) {
                return Ok(target.keys.clone());
            }
            if let Some(bad) = self.bad_of(nqn).find(|bad| is_wanted(&bad.endpoint)) {
                return Err(bad.error());
            }
        }
        if nqn == DISCOVERY_NQN {
            return Ok(self.keys_for_discovery(endpoint));
        }
        match (self.named(nqn).find(|target| target.keys.admit()), self.bad_of(nqn).next()) {
            (Some(target), _) => Ok(target.keys.clone()),
            (None, Some(bad)) => Err(bad.error()),
            (None, None) => Ok(Keys::default()),
        }
    }

    fn named(&self, nqn: &str) -> impl Iterator<Item = &KnownTarget> {
        self.targets.iter().filter(move |target| target.nqn == nqn)
    }

    fn bad_of(&self, nqn: &str) -> impl Iterator<Item = &BadTarget> {
        self.bad.iter().filter(move |bad| bad.nqn.as_deref() == Some(nqn))
    }

    /// Keys of subsystems at an endpoint, however its address is spelled, for the discovery service there.
    fn keys_for_discovery(&self, endpoint: &Endpoint) -> Keys {
        let at = |is_here: &dyn Fn(&Endpoint) -> bool| -> Vec<&Keys> {
            let here = self.targets.iter().filter(|target| target.endpoint.as_ref().is_some_and(is_here));
            here.map(|target| &target.keys).filter(|keys| keys.admit()).collect()
        };
        let mut here = at(&|other| other == endpoint);
        if here.is_empty() {
            here = at(&|other| other.is_same_place(endpoint));
        }
        let anywhere = self.targets.iter().filter(|target| target.endpoint.is_none()).map(|it| &it.keys);
        // A secret is used when the service asks for it. TLS is used or not before anybody asks.
        let host = here.iter().copied().chain(anywhere).find_map(|keys| keys.host.clone());
        Keys { host, controller: None, tls: here.iter().find_map(|keys| keys.tls.clone()) }
    }
}

/// One entry, whose text is `text`.
fn target(text: &str, path: &Path) -> Result<KnownTarget> {
    let entry: Entry<'_> = serde_json::from_str(text).map_err(|e| secret_syntax_error(text, path, &e))?;
    let blame = |fault| wrong(text, path, fault, &format!("{:?}", entry.nqn));
    check_nqn(&entry.nqn).map_err(|reason| blame(("nqn", reason)))?;
    let endpoint = entry.address.as_deref().map(str::parse).transpose();
    let endpoint = endpoint.map_err(|reason| blame(("address", reason)))?;
    let texts = KeyTexts {
        host: entry.dhchap_key.as_deref(),
        controller: entry.dhchap_controller_key.as_deref(),
        tls: entry.tls_key.as_deref(),
    };
    let keys = texts.read(&folder_of(path)).map_err(blame)?;
    Ok(KnownTarget { nqn: entry.nqn, endpoint, keys })
}

/// The entry `raw`, a part of `text`, which `error` is about. Errors: one that is not about the entry.
fn bad_target(text: &str, raw: &str, error: Error) -> Result<BadTarget> {
    let Error::Config { path, line, column, key, reason } = error else { return Err(error) };
    let whose = serde_json::from_str(raw).unwrap_or(Whose { nqn: None, address: None });
    let at = (raw.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let before = text.get(..at).unwrap_or_default();
    let last = before.rsplit('\n').next().unwrap_or_default();
    let column = if line == 1 { column + last.len() } else { column };
    Ok(BadTarget {
        nqn: whose.nqn,
        endpoint: whose.address.and_then(|address| address.parse().ok()),
        path,
        line: line + before.matches('\n').count(),
        column,
        key,
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
    /// From libnvme's tests (test/psk.c).
    const TLS: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    fn parse(text: &str) -> Result<KnownTargets> {
        KnownTargets::parse(text, Path::new("/home/fabrics.json"))
    }

    fn keys(known: &KnownTargets, host: &str, nqn: &str) -> Keys {
        known.keys(&Endpoint::new(host, 4420), nqn).expect("right")
    }

    #[test]
    fn keys_are_found_by_the_name_of_the_subsystem_and_by_its_address_where_there_is_one() {
        let text = format!(
            r#"{{"targets": [{{"nqn": "nqn.a", "dhchap_key": "{SECRET}"}},
                             {{"nqn": "nqn.a", "address": "[::1]:4421"}},
                             {{"nqn": "nqn.b", "address": "10.0.0.1"}}]}}"#
        );
        let known = parse(&text).expect("right");
        let has_key =
            |host: &str, port, nqn: &str| known.keys(&Endpoint::new(host, port), nqn).expect("right").admit();
        assert!(has_key("10.0.0.1", 4420, "nqn.a"));
        assert!(!has_key("::1", 4421, "nqn.a"), "an entry with the address comes first");
        assert!(!has_key("10.0.0.1", 4420, "nqn.b") && !has_key("10.0.0.1", 4420, "nqn.c"));
        let names: Vec<_> =
            known.targets.iter().filter_map(KnownTarget::name).map(|name| name.to_string()).collect();
        assert_eq!(names, ["tcp:[::1]:4421/nqn.a", "tcp:10.0.0.1:4420/nqn.b"]);
    }

    #[test]
    fn keys_of_a_subsystem_are_used_however_its_address_is_spelled() {
        let text = format!(
            r#"{{"targets": [{{"nqn": "nqn.a", "address": "10.0.0.9"}},
                             {{"nqn": "nqn.a", "address": "127.0.0.1", "dhchap_key": "{SECRET}", "tls_key": "{TLS}"}},
                             {{"nqn": "nqn.b", "address": "10.0.0.1:4420", "dhchap_key": "{SECRET}"}}]}}"#
        );
        let known = parse(&text).expect("right");
        for (host, port) in
            [("127.0.0.1", 4420), ("localhost", 4420), ("127.0.0.1", 4421), ("10.0.0.7", 4420)]
        {
            let keys = known.keys(&Endpoint::new(host, port), "nqn.a").expect("right");
            assert!(keys.tls.is_some() && keys.host.is_some(), "{host}:{port}");
        }
        assert!(!keys(&known, "10.0.0.9", "nqn.a").admit(), "its entry says so");
        assert!(!keys(&known, "127.0.0.1", "nqn.c").admit());
    }

    #[test]
    fn a_discovery_service_is_asked_by_the_keys_of_a_subsystem_at_its_place() {
        let text = format!(
            r#"{{"targets": [{{"nqn": "nqn.a", "address": "127.0.0.1:4420", "dhchap_key": "{SECRET}", "dhchap_controller_key": "{SECRET}", "tls_key": "{TLS}"}},
                             {{"nqn": "nqn.b", "tls_key": "{TLS}"}}]}}"#
        );
        let known = parse(&text).expect("right");
        for (host, port, is_known) in
            [("127.0.0.1", 4420, true), ("127.0.0.1", 8009, false), ("127.0.0.2", 4420, false)]
        {
            let keys = known.keys(&Endpoint::new(host, port), DISCOVERY_NQN).expect("right");
            assert_eq!((keys.tls.is_some(), keys.host.is_some()), (is_known, is_known), "{host}:{port}");
            assert!(keys.controller.is_none(), "not every service can prove itself");
        }
        let own = format!(
            r#"{{"targets": [{{"nqn": "nqn.a", "address": "127.0.0.1", "tls_key": "{TLS}"}},
                                          {{"nqn": "{DISCOVERY_NQN}", "address": "127.0.0.1"}}]}}"#
        );
        let known = parse(&own).expect("right");
        assert!(!keys(&known, "127.0.0.1", DISCOVERY_NQN).admit(), "its own entry says so");
        // A secret for a subsystem that may be anywhere is one that can be asked for; a key of TLS is not.
        let anywhere =
            format!(r#"{{"targets": [{{"nqn": "nqn.a", "dhchap_key": "{SECRET}", "tls_key": "{TLS}"}}]}}"#);
        let found = keys(&parse(&anywhere).expect("right"), "127.0.0.1", DISCOVERY_NQN);
        assert!(found.host.is_some() && found.tls.is_none());
    }

    #[test]
    fn mistakes_are_told_with_their_place_and_are_those_of_one_target() {
        for (entry, part, nqn) in [
            (
                r#"{"nqn": "nqn.a", "address": "a b"}"#,
                "fabrics.json:3:10: `address`: `a b`: expected",
                Some("nqn.a"),
            ),
            (r#"{"nqn": "a"}"#, "fabrics.json:3:10: `nqn`: `a` is no NQN", Some("a")),
            (r#"{"name": "nqn.a"}"#, "`name`: unknown field, expected one of `nqn`", None),
            (r#"{"nqn": "nqn.a", "dhchap_key": "DHHC-1:00:c2VjcmV0:"}"#, "`dhchap_key`: ", Some("nqn.a")),
            (r#"{"nqn": "nqn.a", "tls_key": "nowhere"}"#, "nowhere is not there", Some("nqn.a")),
            ("{\n\"nqn\": \"nqn.a\", \"tls_key\": 7}", "fabrics.json:4:28: `tls_key`: ", Some("nqn.a")),
            (r#""DHHC-1:00:c2VjcmV0:""#, "invalid type", None),
        ] {
            let good = format!(r#"{{"nqn": "nqn.good", "address": "10.0.0.1", "dhchap_key": "{SECRET}"}}"#);
            let known = parse(&format!("{{\"targets\": [\n{good},\n {entry},\n{good}]}}")).expect("a list");
            let [bad] = known.bad.as_slice() else { panic!("{entry}: {known:?}") };
            let message = bad.error().to_string();
            assert!(message.contains(part) && !message.contains("c2VjcmV0"), "{entry}: {message}");
            assert_eq!(bad.nqn.as_deref(), nqn, "{entry}");
            assert!(known.targets.len() == 2 && keys(&known, "10.0.0.1", "nqn.good").admit());
            let here = Endpoint::new("10.0.0.1", 4420);
            if let Some(nqn) = nqn {
                let refused = known.keys(&here, nqn).expect_err("its entry is wrong").to_string();
                assert_eq!(refused, message);
            }
            assert!(!keys(&known, "10.0.0.1", "nqn.other").admit());
        }
        let message = parse(r#"{"targets": 7}"#).expect_err("no list").to_string();
        assert!(message.contains("`targets`: invalid type"), "{message}");
    }

    #[test]
    fn a_bad_entry_for_another_address_does_not_keep_a_good_one_from_being_used() {
        let known = parse(
            r#"{"targets": [{"nqn": "nqn.a", "address": "10.0.0.9", "tls_key": "nowhere"},
                            {"nqn": "nqn.a", "address": "10.0.0.1"}]}"#,
        );
        let known = known.expect("a list");
        assert!(!keys(&known, "10.0.0.1", "nqn.a").admit());
        assert!(known.keys(&Endpoint::new("10.0.0.9", 4420), "nqn.a").is_err());
        assert!(known.keys(&Endpoint::new("10.0.0.7", 4420), "nqn.a").is_err(), "its keys are not known");
    }

    #[test]
    fn without_the_file_no_target_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(KnownTargets::load(&Registry::at(folder.path())).expect("none").targets.is_empty());
    }
}
