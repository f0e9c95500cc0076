//! User-space NVMe SDK: block and key-value devices by name, on any transport.
//!
//! # The first call
//!
//! A device is opened by its name, which says what it is and how it is reached. Its namespaces hold blocks,
//! or pairs. The simplest calls wait until they are done and take any length; they have one owner.
//!
//! ```
//! use unvme::{Nsid, OpenOptions, StoreOptions, open};
//!
//! # fn main() -> Result<(), unvme::Error> {
//! let device = open("mem:block:64M", &OpenOptions::default())?;
//! let mut block = device.block(Nsid(1))?;
//! block.write_at(8, &[0x5a; 512])?;
//! let mut data = [0; 512];
//! block.read_at(8, &mut data)?;
//! assert_eq!(data, [0x5a; 512]);
//!
//! let device = open("mem:kv:64M", &OpenOptions::default())?;
//! let mut kv = device.kv(Nsid(1))?;
//! kv.store(b"key", b"value", StoreOptions::default())?;
//! assert_eq!(kv.retrieve(b"key")?.as_deref(), Some(&b"value"[..]));
//! for key in kv.prefix(b"k")? {
//!     assert_eq!(key?, b"key");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Many commands at a time
//!
//! A queue of one's own is for a thread that has more to do than to wait: it submits [`Op`]s, tells the
//! device of many at once, and polls for what has finished. Buffers travel with the commands. This is the
//! fastest way there is.
//!
//! ```
//! use unvme::{Nsid, Op, OpenOptions, QueueOptions, open};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = open("mem:block:64M", &OpenOptions::default())?;
//! let mut queue = device.block(Nsid(1))?.queue(&QueueOptions::default())?;
//! for lba in 0..32 {
//!     queue.submit(Op::read(lba, 1), Some(queue.alloc(512)?), lba)?;
//! }
//! queue.ring()?;
//! let mut read = 0;
//! while read < 32 {
//!     for completion in queue.poll(32) {
//!         assert!(completion.status.is_success());
//!         read += 1;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Many threads
//!
//! A [`Worker`] has queues that all threads use, in each of three ways: calls that wait, submissions that
//! somebody polls for, and futures. [`worker`] says what is promised to whom.
//!
//! ```
//! use unvme::worker::{Data, WorkerOptions};
//! use unvme::{Nsid, Op, OpenOptions, open};
//!
//! # fn main() -> Result<(), unvme::Error> {
//! let device = open("mem:block:64M", &OpenOptions::default())?;
//! let worker = device.block(Nsid(1))?.worker(&WorkerOptions::default())?;
//! std::thread::scope(|scope| {
//!     for lba in 0..4 {
//!         let worker = &worker;
//!         scope.spawn(move || worker.call(Op::write(lba, 1), Data::Out(&[lba as u8; 512])));
//!     }
//! });
//! worker.submit(Op::Flush, Data::None, 7)?;
//! let mut done = Vec::new();
//! while worker.poll(&mut done) == 0 {}
//! assert_eq!(done[0].token, 7);
//! # Ok(())
//! # }
//! ```
//!
//! # Async
//!
//! The same worker has futures, for any executor. Nothing is allocated when the buffer travels, and one that
//! is dropped leaves its buffer with the command.
//!
//! ```
//! use unvme::worker::{Data, WorkerOptions};
//! use unvme::{Nsid, Op, OpenOptions, open};
//!
//! # fn main() -> Result<(), unvme::Error> {
//! let device = open("mem:block:64M", &OpenOptions::default())?;
//! let worker = device.block(Nsid(1))?.worker(&WorkerOptions { threads: 1, ..WorkerOptions::default() })?;
//! futures_lite::future::block_on(async {
//!     let read = worker.run(Op::read(0, 8), Data::Lent(worker.alloc(4096)?)).await?;
//!     assert_eq!((read.bytes, read.buf.map(|buf| buf.len())), (4096, Some(4096)));
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # The parts
//!
//! | module | concept |
//! |---|---|
//! | `open` | [`open()`]: from a name to a device, the one place where transports are chosen |
//! | `name` | [`DeviceName`]: `0000:02:00.0`, `mem:block:1G`, `vfio-user:SOCKET`, `tcp:HOST:PORT/NQN` |
//! | [`registry`] | [`Registry`]: virtual slots, devices in a folder |
//! | `device` | [`Device`]: identity, namespaces, the controller |
//! | `block` | [`Block`]: calls that wait, of any length |
//! | `claim` | [`Claim`]: a namespace that no other host changes |
//! | `op` | [`Op`]: what a queue of either kind of namespace is asked to do |
//! | `queue` | [`BlockQueue`]: submit and poll, with buffers that travel with their commands |
//! | [`cache`] | pages in memory, and which are given up first: for files, and for blocks |
//! | `spread`, `stripe` | tables by numbers; counts of which each CPU has a part |
//! | [`worker`] | [`Worker`]: queues that threads share: wait, submit and poll, await |
//! | [`handle`] | [`Handle`](handle::Handle): several ways to one device, each with policies of its own |
//! | [`fdp`] | Flexible Data Placement: [`Device::fdp`], and writes that say where their data goes |
//! | `kv` | [`Kv`]: key-value calls that wait, [`KvQueue`]: submit and poll |
//! | [`scan`] | [`scan::Scan`]: a listing of keys that takes several commands |
//! | `machine` | [`system_root()`]: a copy that stands for this machine's own trees |
//! | [`fabrics`] | NVMe/TCP: this host's name, targets it knows, keys, discovery, who may enter |
//! | `serve` | [`serve()`] offers a virtual device to processes, [`serve_tcp`] to machines (with `local`) |
//!
//! Errors are one enum, [`Error`]; a status that a device answered is always whole.
//!
//! What it does not implement: fabrics other than TCP; on a key-value device, storing values of more bytes
//! than one command moves, and without Samsung's vendor commands also keys of more than 16 bytes, parts of
//! values, appending and compression.
#![forbid(unsafe_code)]

mod block;
pub mod cache;
mod claim;
mod device;
mod drive;
mod error;
pub mod fabrics;
mod fault;
pub mod fdp;
#[cfg(feature = "local")]
mod flash;
pub mod handle;
mod json;
mod kv;
#[cfg(feature = "local")]
mod local;
mod machine;
mod name;
mod op;
mod open;
mod queue;
pub mod registry;
mod regular;
#[cfg(feature = "local")]
mod serve;
mod share;
mod size;
#[doc(hidden)]
pub mod spread;
#[doc(hidden)]
pub mod stripe;
pub mod worker;

pub use block::Block;
pub use claim::Claim;
pub use device::{Device, Identity, NamespaceEntry, Transport};
pub use error::{Error, Result};
pub use fault::FaultsAdded;
#[cfg(feature = "local")]
pub use flash::ftl_geometry;
pub use kv::{
    BatchOp, DialectLimits, KeyIter, Kv, KvCompletion, KvCompletions, KvLimits, KvQueue, KvUsage, Retrieved,
    scan,
};
#[cfg(feature = "local")]
pub use local::{CheckedFlash, CheckedSlot, Losses, check};
pub use machine::{SYSTEM_ROOT_VARIABLE, system_root};
pub use name::{DeviceName, MemoryDevice, NAME_SYNTAX, TcpName};
pub use op::Op;
pub use open::{OpenOptions, open, open_function};
pub use queue::BlockQueue;
pub use registry::Registry;
#[cfg(feature = "local")]
pub use serve::{
    AccessUpdates, AnaState, ListenOptions, ServeOptions, ServedSubsystem, TCP_THREADS_MAX, TcpServeOptions,
    serve, serve_tcp,
};
pub use share::place::runtime_folder;
pub use size::{NotASize, Size};
pub use worker::Worker;

pub use unvme_bus::{
    BarLayout, BusError, Clock, Dma, DmaAccess, DmaParts, EventFd, Function, NotAnAddress, Pages, PciAddress,
    Region, Window,
};
// Not for programs: the crates above take locks and number series as those below do.
#[doc(hidden)]
pub use unvme_bus::socket::{peer_credentials, peer_groups, users_of_thread};
#[doc(hidden)]
pub use unvme_bus::{lock, random};
pub use unvme_driver::{
    ClaimKind, Completion, CompletionMode, Completions, Controller, ControllerOptions, DEPTH_MAX,
    DataPointers, DmaBuf, DmaPool, Error as DriverError, Event, EventKind, FeatureValue, KvBatchOp,
    KvCommand, KvKey, KvNamespace, KvOptions, KvVerdict, LogRequest, NOTICES, Namespace, Payload, Queue,
    QueueOptions, Rejected, StoreCondition, StoreOptions, VendorCommands, WriteOptions,
};
pub use unvme_spec::nvm::{AccessFlags, BlockRange};
pub use unvme_spec::{Cqe, Lba, Nsid, Sqe, Status};
#[cfg(feature = "local")]
pub use unvme_ssd::{CheckedBlocks, CheckedNamespace, Damage, FlashDamage, FlashStats};
