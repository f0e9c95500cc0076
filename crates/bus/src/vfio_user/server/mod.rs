//! Functions on a socket.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use self::connection::{Connection, Turn};
use self::listener::{Listener, turn_away};
use super::bars::Bars;
use super::socket::wait;
use crate::published::{Published, Reader};
use crate::{BusError, EventFd, Function};

mod connection;
mod listener;

/// Most clients of one server at a time.
pub const CLIENTS_MAX: usize = 16;

/// Makes a function for one more client. An error is what the client is told: the errno of [`BusError::Os`],
/// ENODEV for [`BusError::Gone`], EBUSY for all others.
pub type MakeFunction = dyn Fn() -> Result<Arc<dyn Function>, BusError> + Send + Sync;

/// The functions that clients drive at the moment.
pub type Driven = Vec<Arc<dyn Function>>;

/// Offers a function to one client at a time, or a function of its own to each of up to [`CLIENTS_MAX`]
/// clients.
///
/// [`Server::run`] answers messages on the thread that calls it, and sleeps while there are none. The data
/// path does not pass through it: doorbells and buffers are shared memory, and whoever calls
/// [`Function::advance`] on what [`Server::driven`] lists moves the data.
///
/// Clients know nothing of each other: what one of them does wrong, and how it ends, ends its own connection
/// only.
pub struct Server {
    listener: Listener,
    /// For a client that comes while no other drives it.
    first: Option<(Arc<dyn Function>, Arc<Bars>)>,
    /// For all others.
    more: Option<Box<MakeFunction>>,
    driven: Published<Driven>,
    changed: EventFd,
    look: EventFd,
}

impl Server {
    /// Offers `function` to one client at a time. Listens on `path`, or on `cntrl` in it when it is a folder,
    /// where SPDK's initiator looks. A socket file that nobody listens on is replaced. Errors:
    /// [`BusError::Os`] when the socket cannot be made, [`BusError::Unsupported`] when somebody listens there
    /// already, the file is not a socket, or the function has a window that cannot be shared (see
    /// [`crate::Window`]).
    pub fn bind(path: &Path, function: Arc<dyn Function>) -> Result<Self, BusError> {
        let bars = Arc::new(Bars::of(&*function)?);
        Self::listen(path, Some((function, bars)), None)
    }

    /// Offers every client a function that `make` makes for it, and that is dropped when the client has gone.
    /// The first client, and whoever comes when `first` has been left again, gets that one when there is one.
    /// Errors: as [`Server::bind`].
    pub fn bind_each(
        path: &Path,
        first: Option<Arc<dyn Function>>,
        make: Box<MakeFunction>,
    ) -> Result<Self, BusError> {
        let first = match first {
            None => None,
            Some(function) => {
                let bars = Arc::new(Bars::of(&*function)?);
                Some((function, bars))
            }
        };
        Self::listen(path, first, Some(make))
    }

    fn listen(
        path: &Path,
        first: Option<(Arc<dyn Function>, Arc<Bars>)>,
        more: Option<Box<MakeFunction>>,
    ) -> Result<Self, BusError> {
        Ok(Self {
            listener: Listener::bind(path)?,
            first,
            more,
            driven: Published::default(),
            changed: EventFd::new()?,
            look: EventFd::new()?,
        })
    }

    /// The socket file.
    pub fn path(&self) -> &Path {
        self.listener.path()
    }

    /// True while a client is attached.
    pub fn is_attached(&self) -> bool {
        !self.driven.get().is_empty()
    }

    /// The functions that clients drive, for whoever lets them work; brought up to date by
    /// [`Server::refresh`]. A function is only dropped when no such list has it any more.
    pub fn driven(&self) -> Reader<Driven> {
        self.driven.reader()
    }

    /// Brings a list of functions up to date, for one load when nothing has changed; true when it has
    /// changed.
    #[inline]
    pub fn refresh(&self, driven: &mut Reader<Driven>) -> bool {
        self.driven.refresh(driven)
    }

    /// Signalled when a client comes or goes.
    pub fn changed(&self) -> &EventFd {
        &self.changed
    }

    /// Ends the connections of clients whose function [`Function::is_gone`]: for whoever notices it first.
    pub fn look_after(&self) {
        self.look.signal();
    }

    /// Serves clients until `stop` is signalled, which stays signalled. One that there is no function for is
    /// told that the device is busy.
    ///
    /// When a client goes, in whatever way, its function is reset and nothing of the client's is left in it.
    /// Errors: [`BusError::Os`] when the socket itself fails. What a client does wrong ends its connection
    /// only.
    pub fn run(&self, stop: &EventFd) -> Result<(), BusError> {
        let mut clients: Vec<Connection> = Vec::new();
        let ended = loop {
            match self.round(stop, &mut clients) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        for client in clients {
            client.end(self);
        }
        ended
    }

    /// Waits until there is something to do, and does it; false when the caller wants to stop.
    fn round(&self, stop: &EventFd, clients: &mut Vec<Connection>) -> Result<bool, BusError> {
        let now = Instant::now();
        let limit = clients.iter().filter_map(|client| client.patience(now)).min();
        let mut ready = vec![
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(&self.look, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        ready.extend(clients.iter().map(|client| PollFd::new(client, client.interest())));
        wait(&mut ready, limit).map_err(|e| BusError::os("wait for clients", e))?;
        let mut ready = ready.iter().map(|fd| !fd.revents().is_empty());
        let mut is_ready = || ready.next().unwrap_or_default();
        if is_ready() {
            return Ok(false);
        }
        if is_ready() {
            self.look.drain();
        }
        let newcomer = is_ready();
        // All of them, ready or not: the time of one that is not may be over.
        self.turn_all(clients);
        if newcomer {
            self.admit(stop, clients)?;
        }
        Ok(true)
    }

    fn turn_all(&self, clients: &mut Vec<Connection>) {
        let over = |client: &mut Connection| client.is_orphaned() || client.turn(self) == Turn::Over;
        for client in clients.extract_if(.., over).collect::<Vec<_>>() {
            client.end(self);
        }
    }

    fn admit(&self, stop: &EventFd, clients: &mut Vec<Connection>) -> Result<(), BusError> {
        let Some(newcomer) = self.listener.accept(stop)? else { return Ok(()) };
        let most = if self.more.is_some() { CLIENTS_MAX } else { 1 };
        if clients.len() >= most {
            // A client that went before the newcomer came has made room, if only that has been noticed.
            self.turn_all(clients);
        }
        if clients.len() >= most {
            turn_away(&newcomer);
            return Ok(());
        }
        let mut client = Connection::new(newcomer)?;
        // It may have introduced itself already.
        match client.turn(self) {
            Turn::Stays => clients.push(client),
            Turn::Over => client.end(self),
        }
        Ok(())
    }

    /// A function for one more client.
    fn lend(&self) -> Result<(Arc<dyn Function>, Arc<Bars>), BusError> {
        let driven = self.driven.get();
        if let Some((function, bars)) = &self.first
            && !driven.iter().any(|driven| Arc::ptr_eq(driven, function))
        {
            if function.is_gone() {
                return Err(BusError::Gone("the device".to_owned()));
            }
            return Ok((Arc::clone(function), Arc::clone(bars)));
        }
        let Some(make) = &self.more else {
            return Err(BusError::os("another client is attached", Errno::BUSY));
        };
        let function = make()?;
        let bars = Arc::new(Bars::of(&*function)?);
        Ok((function, bars))
    }

    fn list(&self, function: Option<&Arc<dyn Function>>) {
        self.change(|driven| driven.extend(function.map(Arc::clone)));
    }

    fn unlist(&self, function: Option<&Arc<dyn Function>>) {
        self.change(|driven| {
            driven.retain(|driven| !function.is_some_and(|function| Arc::ptr_eq(driven, function)));
        });
    }

    fn change(&self, change: impl FnOnce(&mut Driven)) {
        let Ok(()) = self.driven.update(|driven| {
            let mut driven = driven.clone();
            change(&mut driven);
            Ok::<_, std::convert::Infallible>((driven, ()))
        });
        self.changed.signal();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("socket", &self.path())
            .field("clients", &self.driven.get().len())
            .finish_non_exhaustive()
    }
}
