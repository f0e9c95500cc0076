//! Opening and closing devices: for the SDK (counted), for the driver level (by name), and one by one.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use sdk::{Error, PciAddress, lock};
use unvme_guide::config::SdkConfig;
use unvme_guide::session::{Member, OpError, Session, SessionOptions};

use crate::completion;
use crate::handle::{self, Open};
use crate::memory;
use crate::result::{Code, Failure, Result};

thread_local! {
    /// Whether this thread is in a callback, for which closing waits.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs a program's callback.
pub(crate) fn in_callback(callback: impl FnOnce()) {
    let outer = IN_CALLBACK.replace(true);
    callback();
    IN_CALLBACK.set(outer);
}

/// The SDK's environment.
struct Environment {
    session: Arc<Session>,
    handles: Vec<u64>,
    references: u32,
}

enum Sdk {
    Closed,
    /// Being opened or closed by a thread that does not hold the lock, because callbacks may want it.
    Busy,
    Open(Environment),
}

static SDK: Mutex<Sdk> = Mutex::new(Sdk::Closed);
/// Signalled when [`SDK`] is not busy any more.
static SETTLED: Condvar = Condvar::new();
/// Devices of the driver level, by name.
static DRIVER: Mutex<Vec<(String, Arc<Session>)>> = Mutex::new(Vec::new());

/// Waits until nobody opens or closes the SDK.
fn settled(code: Code) -> Result<MutexGuard<'static, Sdk>> {
    let mut sdk = lock(&SDK);
    while matches!(*sdk, Sdk::Busy) {
        if IN_CALLBACK.get() {
            return Err(Failure::new(code, "the SDK is being closed, and waits for this callback"));
        }
        sdk = lock::wait(&SETTLED, sdk);
    }
    Ok(sdk)
}

fn settle(state: Sdk) {
    *lock(&SDK) = state;
    SETTLED.notify_all();
}

/// What came of [`open_sdk`].
pub(crate) enum Opened {
    /// It was open already, and is counted.
    Already(Arc<Session>, Vec<u64>),
    /// The devices are open: the configuration in effect, what is not followed of it, and the handles.
    Now(Arc<Session>, Vec<u64>),
}

/// Opens the devices of a configuration, or counts.
pub(crate) fn open_sdk(make: impl FnOnce() -> Result<SdkConfig>) -> Result<Opened> {
    let mut sdk = settled(Code::SDK_OPEN)?;
    if let Sdk::Open(environment) = &mut *sdk {
        environment.references += 1;
        return Ok(Opened::Already(Arc::clone(&environment.session), environment.handles.clone()));
    }
    *sdk = Sdk::Busy;
    drop(sdk);
    let reset = Settle(Some(Sdk::Closed));
    let session = open(make()?, &Manner::default())?;
    let handles = handles(&session)?;
    reset.into(Sdk::Open(Environment {
        session: Arc::clone(&session),
        handles: handles.clone(),
        references: 1,
    }));
    Ok(Opened::Now(session, handles))
}

/// Puts a state into [`SDK`] when it is dropped, whatever happens before.
struct Settle(Option<Sdk>);

impl Settle {
    fn into(mut self, state: Sdk) {
        self.0 = Some(state);
    }
}

impl Drop for Settle {
    fn drop(&mut self) {
        settle(self.0.take().unwrap_or(Sdk::Closed));
    }
}

/// A handle for each device; none when there is no room for all.
fn handles(session: &Arc<Session>) -> Result<Vec<u64>> {
    let made: Result<Vec<u64>> = session.members().iter().map(|member| insert(session, member)).collect();
    if made.is_err() {
        let _ = close(session);
    }
    made
}

fn insert(session: &Arc<Session>, member: &Arc<Member>) -> Result<u64> {
    handle::insert(Open::new(Arc::clone(session), Arc::clone(member)))
}

/// Takes back one [`open_sdk`]. `Ok` says how many are left.
pub(crate) fn close_sdk() -> Result<u32> {
    let mut sdk = settled(Code::SDK_CLOSE)?;
    match &mut *sdk {
        Sdk::Open(environment) if environment.references > 1 => {
            environment.references -= 1;
            return Ok(environment.references);
        }
        Sdk::Open(_) => {}
        Sdk::Closed | Sdk::Busy => return Ok(0),
    }
    let Sdk::Open(environment) = std::mem::replace(&mut *sdk, Sdk::Busy) else { return Ok(0) };
    drop(sdk);
    let reset = Settle(Some(Sdk::Closed));
    match close(&environment.session) {
        Ok(()) => Ok(0),
        Err(OpError::Reentered) => {
            reset.into(Sdk::Open(environment));
            Err(Failure::new(Code::SDK_CLOSE, "a callback cannot finalize the SDK, which waits for it"))
        }
        Err(error) => Err(Failure { code: Code::SDK_CLOSE, ..Failure::from(error) }),
    }
}

/// Whether the SDK is open.
pub(crate) fn sdk_is_open() -> bool {
    matches!(*lock(&SDK), Sdk::Open(_))
}

/// The handles of the SDK's devices, in the order of the configuration, with their devices.
pub(crate) fn sdk_devices() -> Result<Vec<(u64, Arc<Member>)>> {
    match &*lock(&SDK) {
        Sdk::Open(environment) => Ok(environment
            .handles
            .iter()
            .copied()
            .zip(environment.session.members().iter().cloned())
            .collect()),
        _ => Err(Failure::new(Code::IO, "the SDK is not initialised")),
    }
}

/// What of a session its configuration does not say.
#[derive(Default)]
pub(crate) struct Manner {
    /// How long a command may take.
    pub(crate) command: Option<std::time::Duration>,
    /// Whether devices interrupt for queues that are polled.
    pub(crate) interrupts: bool,
}

/// Opens a session of its own.
pub(crate) fn open(config: SdkConfig, manner: &Manner) -> Result<Arc<Session>> {
    let kind = config.ssd_type;
    let handler = Arc::new(move |finished| completion::finish(kind, finished));
    let mut options = SessionOptions::new(handler);
    options.interrupts = manner.interrupts;
    if let Some(command) = manner.command {
        options.command_timeout = command;
    }
    Session::open(config, options).map(Arc::new).map_err(|e| failed_to_open(&e))
}

/// Why something could not be opened.
pub(crate) fn failed_to_open(error: &Error) -> Failure {
    let code = match error {
        Error::NotFound { .. } => Code::DD_NO_DEVICE,
        _ => Code::SDK_OPEN,
    };
    let status = error.status().unwrap_or(sdk::Status::SUCCESS);
    Failure { status, ..Failure::new(code, error.to_string()) }
}

/// Closes a session: its handles are void from then on, also when closing fails.
pub(crate) fn close(session: &Arc<Session>) -> std::result::Result<(), OpError> {
    let closed = session.close();
    if !matches!(closed, Err(OpError::Reentered)) {
        handle::remove_all(session);
        memory::detach(session);
    }
    closed
}

fn same_device(a: &str, b: &str) -> bool {
    let address = |name: &str| name.parse::<PciAddress>().ok();
    a == b || address(a).is_some_and(|first| address(b) == Some(first))
}

/// Brings a device of the driver level up.
pub(crate) fn open_driver(name: &str, config: SdkConfig) -> Result<()> {
    if lock(&DRIVER).iter().any(|(other, _)| same_device(other, name)) {
        return Err(Failure::new(Code::DD_INVALID_PARAM, format!("{name} is up already")));
    }
    let session = open(config, &Manner::default())?;
    lock(&DRIVER).push((name.to_owned(), session));
    Ok(())
}

/// A new handle to a device that is up, by the driver level or the SDK.
pub(crate) fn open_handle(name: &str) -> Result<u64> {
    let driver = lock(&DRIVER).iter().find(|(other, _)| same_device(other, name)).map(|(_, s)| Arc::clone(s));
    let session = match (driver, &*lock(&SDK)) {
        (Some(session), _) => session,
        (None, Sdk::Open(environment)) => Arc::clone(&environment.session),
        (None, _) => return Err(not_up(name)),
    };
    let member = session.members().iter().find(|member| same_device(member.name(), name));
    insert(&session, member.ok_or_else(|| not_up(name))?)
}

fn not_up(name: &str) -> Failure {
    Failure::new(Code::DD_NO_DEVICE, format!("{name} is not up; bring it up with kv_nvme_init()"))
}

/// Shuts a device of the driver level down.
pub(crate) fn close_driver(name: &str) -> Result<()> {
    let taken = {
        let mut driver = lock(&DRIVER);
        let at = driver.iter().position(|(other, _)| same_device(other, name));
        driver.remove(at.ok_or_else(|| not_up(name))?)
    };
    match close(&taken.1) {
        Err(OpError::Reentered) => {
            lock(&DRIVER).push(taken);
            Err(Failure::new(Code::SDK_CLOSE, "a callback cannot shut down the device it is called for"))
        }
        closed => Ok(closed?),
    }
}

/// Whether a device is up, by either level.
pub(crate) fn any_is_up() -> bool {
    !lock(&DRIVER).is_empty() || sdk_is_open()
}

/// Opens one device by itself.
pub(crate) fn open_one(config: SdkConfig, manner: &Manner) -> Result<u64> {
    let session = open(config, manner)?;
    let handles = handles(&session)?;
    handles.first().copied().ok_or_else(|| Failure::new(Code::SDK_OPEN, "the session has no device"))
}

/// Closes the device of [`open_one`]. Handles of the two levels are closed by those.
pub(crate) fn close_one(number: u64) -> Result<()> {
    let open = handle::get(number)?;
    let session = open.session();
    let of_sdk = matches!(&*lock(&SDK), Sdk::Open(environment) if Arc::ptr_eq(&environment.session, session));
    if of_sdk || lock(&DRIVER).iter().any(|(_, other)| Arc::ptr_eq(other, session)) {
        let reason = "close it with kv_sdk_finalize() or kv_nvme_finalize(): unvme_open() did not open it";
        return Err(Failure::new(Code::SDK_INVALID_PARAM, reason));
    }
    // One caller closes: to another, success would say too early that nothing is outstanding any more.
    if open.closing.swap(true, Ordering::AcqRel) {
        return Err(Failure::new(Code::SDK_INVALID_PARAM, "the device is being closed already"));
    }
    close(session).inspect_err(|_| open.closing.store(false, Ordering::Release))?;
    Ok(())
}
