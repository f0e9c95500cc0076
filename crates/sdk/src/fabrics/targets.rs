//! Targets that this user knows: their addresses and keys, in `fabrics.json`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use unvme_fabric::Psk;
use unvme_spec::fabrics::DISCOVERY_NQN;

use super::Endpoint;
use super::access::{folder_of, wrong};
use super::keys::{KeyTexts, Keys};
use super::private::read_private;
use crate::json::secret_syntax_error;
use crate::name::{TcpName, check_nqn};
use crate::{Registry, Result};

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

/// The targets that the file names; none when there is no file.
#[derive(Clone, Debug, Default)]
pub struct KnownTargets(pub Vec<KnownTarget>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    targets: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    nqn: String,
    #[serde(default)]
    address: Option<String>,
    #[serde(default)]
    dhchap_key: Option<String>,
    #[serde(default)]
    dhchap_controller_key: Option<String>,
    #[serde(default)]
    tls_key: Option<String>,
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
    /// to the folder. Neither file may be readable by others.
    ///
    /// # Errors
    /// [`crate::Error::Setup`] with the command that helps when others can read it; [`crate::Error::Config`]
    /// with line, column and key; [`crate::Error::Io`].
    pub fn load(registry: &Registry) -> Result<Self> {
        let path = Self::path(registry);
        match read_private(&path)? {
            Some(text) => Self::parse(&text, &path),
            None => Ok(Self::default()),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let file: File = serde_json::from_str(text).map_err(|e| secret_syntax_error(text, path, &e))?;
        let mut targets = Vec::new();
        for entry in file.targets {
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
            targets.push(KnownTarget { nqn: entry.nqn, endpoint, keys });
        }
        Ok(Self(targets))
    }

    /// The keys for a subsystem at an endpoint: those of the entry that names both, else of one that names no
    /// address.
    ///
    /// Keys belong to a host and a subsystem, and one machine has many addresses: without such an entry those
    /// of the first that has keys for the subsystem count, wherever it says that the subsystem is. A
    /// discovery service has its name in common with all others: there it is the TLS key of any subsystem
    /// that is known to be at the same place.
    pub fn keys(&self, endpoint: &Endpoint, nqn: &str) -> Keys {
        let named = || self.0.iter().filter(|target| target.nqn == nqn);
        let of = |wanted: Option<&Endpoint>| named().find(|target| target.endpoint.as_ref() == wanted);
        if let Some(target) = of(Some(endpoint)).or_else(|| of(None)) {
            return target.keys.clone();
        }
        if nqn == DISCOVERY_NQN {
            return Keys { tls: self.tls_at(endpoint), ..Keys::default() };
        }
        named().find(|target| target.keys.admit()).map(|target| target.keys.clone()).unwrap_or_default()
    }

    /// The first TLS key of a subsystem at an endpoint, however its address is spelled.
    fn tls_at(&self, endpoint: &Endpoint) -> Option<Psk> {
        let with_key = || {
            self.0.iter().filter_map(|target| Some((target.endpoint.as_ref()?, target.keys.tls.as_ref()?)))
        };
        let found = with_key().find(|(at, _)| *at == endpoint);
        let found = found.or_else(|| with_key().find(|(at, _)| at.is_same_place(endpoint)));
        found.map(|(_, psk)| psk.clone())
    }
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

    #[test]
    fn keys_are_found_by_the_name_of_the_subsystem_and_by_its_address_where_there_is_one() {
        let text = format!(
            r#"{{"targets": [{{"nqn": "nqn.a", "dhchap_key": "{SECRET}"}},
                             {{"nqn": "nqn.a", "address": "[::1]:4421"}},
                             {{"nqn": "nqn.b", "address": "10.0.0.1"}}]}}"#
        );
        let known = parse(&text).expect("right");
        let has_key = |host: &str, port, nqn: &str| known.keys(&Endpoint::new(host, port), nqn).admit();
        assert!(has_key("10.0.0.1", 4420, "nqn.a"));
        assert!(!has_key("::1", 4421, "nqn.a"), "an entry with the address comes first");
        assert!(!has_key("10.0.0.1", 4420, "nqn.b") && !has_key("10.0.0.1", 4420, "nqn.c"));
        let names: Vec<_> =
            known.0.iter().filter_map(KnownTarget::name).map(|name| name.to_string()).collect();
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
            let keys = known.keys(&Endpoint::new(host, port), "nqn.a");
            assert!(keys.tls.is_some() && keys.host.is_some(), "{host}:{port}");
        }
        assert!(!known.keys(&Endpoint::new("10.0.0.9", 4420), "nqn.a").admit(), "its entry says so");
        assert!(!known.keys(&Endpoint::new("127.0.0.1", 4420), "nqn.c").admit());
    }

    #[test]
    fn a_discovery_service_is_asked_by_the_tls_key_of_a_subsystem_at_its_place() {
        let text = format!(
            r#"{{"targets": [{{"nqn": "nqn.a", "address": "127.0.0.1:4420", "dhchap_key": "{SECRET}", "tls_key": "{TLS}"}},
                             {{"nqn": "nqn.b", "tls_key": "{TLS}"}}]}}"#
        );
        let known = parse(&text).expect("right");
        for (host, port, is_known) in
            [("127.0.0.1", 4420, true), ("127.0.0.1", 8009, false), ("127.0.0.2", 4420, false)]
        {
            let keys = known.keys(&Endpoint::new(host, port), DISCOVERY_NQN);
            assert_eq!(keys.tls.is_some(), is_known, "{host}:{port}");
            assert!(keys.host.is_none(), "in-band authentication is between a host and one subsystem");
        }
        let own = format!(
            r#"{{"targets": [{{"nqn": "nqn.a", "address": "127.0.0.1", "tls_key": "{TLS}"}},
                                          {{"nqn": "{DISCOVERY_NQN}", "address": "127.0.0.1"}}]}}"#
        );
        let known = parse(&own).expect("right");
        assert!(
            !known.keys(&Endpoint::new("127.0.0.1", 4420), DISCOVERY_NQN).admit(),
            "its own entry says so"
        );
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, part) in [
            (
                r#"{"targets": [{"nqn": "nqn.a", "address": "a b"}]}"#,
                "fabrics.json:1:22: `address`: `a b`: expected",
            ),
            (r#"{"targets": [{"nqn": "a"}]}"#, "fabrics.json:1:22: `nqn`: `a` is no NQN"),
            (r#"{"targets": [{"name": "a"}]}"#, "`name`: unknown field, expected one of `nqn`"),
        ] {
            let message = parse(text).expect_err(text).to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn without_the_file_no_target_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(KnownTargets::load(&Registry::at(folder.path())).expect("none").0.is_empty());
    }
}
