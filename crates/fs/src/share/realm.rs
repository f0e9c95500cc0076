//! The clients of one user, as the kernel knows it: they see one control page, and no other client does.
//!
//! A client can write its control page: it can stop or mislead every other client that relies on that. So the
//! clients of each user have a page, and workers, of their own. Those of the user that has the file system
//! mounted are there as long as the server; those of another user come with its first client and go with its
//! last.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use unvme::lock::lock;
use unvme::{Pages, Region};

use super::server::Shared;
use super::slot::{CONTROL_BYTES, Control};
use super::worker::{Connection, work};
use crate::error::{Error, Result};
use crate::stripe::Apart;

/// Users, besides the one that has the file system mounted, whose clients a server has at a time.
const REALMS_MAX: usize = 32;
/// Workers of a realm, besides those of the user that has the file system mounted.
const WORKERS: usize = 2;

pub(super) struct Realm {
    uid: u32,
    pub control: Control,
    /// A bit for each worker that looks for work: that neither works nor sleeps.
    pub looking: Apart<AtomicU64>,
    /// Its last client has gone. The control page says so, too, but clients can write there.
    is_over: AtomicBool,
}

/// All realms of a server.
pub(super) struct Realms {
    /// That of the user that has the file system mounted.
    pub own: Arc<Realm>,
    /// Those of other users, as long as any of their clients is connected, and their workers.
    others: Mutex<Vec<Other>>,
}

struct Other {
    realm: Arc<Realm>,
    threads: Vec<JoinHandle<()>>,
}

impl Realm {
    fn new(uid: u32) -> Result<Self> {
        let memory = Region::shared_on("unvme-control", CONTROL_BYTES, Pages::Ordinary);
        let control = Control(memory.map_err(|e| Error::Device(e.to_string()))?);
        Ok(Self { uid, control, looking: Apart(AtomicU64::new(0)), is_over: AtomicBool::new(false) })
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Whether a client is one of this realm's.
    pub(super) fn has(&self, connection: &Connection) -> bool {
        connection.realm.uid == self.uid
    }

    /// Its workers end, and its clients see that the server is gone.
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.control.end();
    }
}

impl Other {
    fn start(shared: &Arc<Shared>, uid: u32) -> Result<Self> {
        let mut other = Self { realm: Arc::new(Realm::new(uid)?), threads: Vec::new() };
        for number in 0..WORKERS {
            let (shared, realm) = (Arc::clone(shared), Arc::clone(&other.realm));
            let thread = thread::Builder::new().name("unvme-other".into());
            match thread.spawn(move || work(&shared, &realm, number)) {
                Ok(thread) => other.threads.push(thread),
                Err(e) => {
                    other.realm.end();
                    return Err(Error::Device(format!("start a thread: {e}")));
                }
            }
        }
        Ok(other)
    }
}

impl Realms {
    /// # Errors
    /// [`Error::Device`] when there is no memory.
    pub(super) fn new() -> Result<Self> {
        let own = Arc::new(Realm::new(rustix::process::geteuid().as_raw())?);
        Ok(Self { own, others: Mutex::default() })
    }

    /// That of a user; its workers have begun. Asked for by the one thread that adds and removes connections
    /// of other users: none ends before the caller has added its own.
    ///
    /// # Errors
    /// EUSERS when there are too many; [`Error::Device`] when there is no memory or no thread.
    pub(super) fn of(&self, shared: &Arc<Shared>, uid: u32) -> Result<Arc<Realm>> {
        if uid == self.own.uid {
            return Ok(Arc::clone(&self.own));
        }
        let mut others = lock(&self.others);
        others.retain(|other| !other.realm.is_over() || !other.threads.iter().all(JoinHandle::is_finished));
        if let Some(other) = others.iter().find(|other| other.realm.uid == uid && !other.realm.is_over()) {
            return Ok(Arc::clone(&other.realm));
        }
        if others.len() >= REALMS_MAX {
            return Err(Errno::USERS.into());
        }
        let other = Other::start(shared, uid)?;
        let realm = Arc::clone(&other.realm);
        others.push(other);
        Ok(realm)
    }

    /// Ends those of other users that none of the connections is of.
    pub(super) fn end_empty<'a>(&self, connections: impl Iterator<Item = &'a Arc<Connection>> + Clone) {
        for other in lock(&self.others).iter().filter(|other| !other.realm.is_over()) {
            if !connections.clone().any(|connection| other.realm.has(connection)) {
                other.realm.end();
            }
        }
    }

    /// Ends all.
    pub(super) fn end(&self) {
        self.own.end();
        lock(&self.others).iter().for_each(|other| other.realm.end());
    }

    /// The workers of other users' realms, which are ended.
    pub(super) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        let others = std::mem::take(&mut *lock(&self.others));
        others.iter().for_each(|other| other.realm.end());
        others.into_iter().flat_map(|other| other.threads).collect()
    }
}
