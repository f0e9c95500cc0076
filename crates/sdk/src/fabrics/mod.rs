//! NVMe over Fabrics: who this host is, which targets it knows, and whom a target of ours lets in.
//!
//! | file | concept |
//! |---|---|
//! | `endpoint` | [`Endpoint`]: a host and a port |
//! | `identity` | [`host_identity`]: the name that this machine has for targets |
//! | `keep_alive` | keeping controllers alive, and getting lost connections back |
//! | `keys` | [`Keys`]: in-band authentication and TLS |
//! | `targets` | [`KnownTargets`]: `fabrics.json`, addresses and keys of targets |
//! | `connect` | what a name and these files say about a connection |
//! | `discover` | [`discover()`]: which subsystems there are |
//! | `access` | [`Access`]: which hosts a target of ours lets in, and by what keys |
//! | `private` | files that nobody else reads |
//!
//! Secrets are in files that their owner alone can read, and on no command line.

mod access;
mod connect;
mod discover;
mod endpoint;
mod identity;
mod keep_alive;
mod keys;
mod private;
mod targets;

pub use access::{Access, AllowedHost, HOSTS_MAX};
pub use discover::{Discovered, Discovery, discover};
pub use endpoint::{Endpoint, PORT_DEFAULT};
pub use identity::host_identity;
pub use keys::Keys;
pub use private::{NoSecretText, SecretText, read_private};
pub use targets::{BadTarget, KnownTarget, KnownTargets};
pub use unvme_driver::{DiscoveryEntry, HostIdentity};
pub use unvme_fabric::{Hash, Psk, Secret};

pub(crate) use connect::target_of;
#[cfg(feature = "local")]
pub(crate) use endpoint::is_loopback;
pub(crate) use keep_alive::KeepAlive;
pub(crate) use keys::looks_like_key;
