//! Servers of the network and their hosts, as tests name them.
#![allow(dead_code)] // Each test file uses a part of it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::home::{Home, Server};

/// What the server says its device is opened by.
pub(crate) fn name_of(server: &Server) -> String {
    let (_, rest) = server.line.split_once(" as ").expect("a name");
    let (name, _) = rest.split_once(" (process ").expect("a process");
    name.to_owned()
}

/// `HOST:PORT` of a name.
pub(crate) fn address_of(name: &str) -> &str {
    name.strip_prefix("tcp:").and_then(|rest| rest.split_once('/')).expect("a tcp: name").0
}

/// Makes a file that nobody else can read.
pub(crate) fn private(home: &Home, name: &str, text: &str) -> String {
    if let Some(folder) = home.path(name).parent() {
        fs::create_dir_all(folder).expect("a folder");
    }
    let path = home.file(name, text.as_bytes());
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("mode");
    path
}

/// The name this host has for targets, which the first use of the network makes.
pub(crate) fn host_nqn(home: &Home) -> String {
    let path = home.path("unvme/hostnqn");
    if !path.exists() {
        home.run(&["discover", "127.0.0.1:1"]).fails_with(4, &["discover 127.0.0.1:1"]);
    }
    fs::read_to_string(path).expect("made").trim().to_owned()
}
