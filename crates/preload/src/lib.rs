//! `libunvme_preload.so`: a program that is loaded with it has files of chosen folders on a drive in user
//! space, and does not know.
//!
//! The library has functions of the names that the C library has. A call on a path within a wrapped folder,
//! or on a descriptor that such a call has opened, is done by [`unvme_fs`]; all others go on to the C
//! library as they came.
//!
//! | module | concept |
//! |---|---|
//! | `real` | the C library's own functions |
//! | `config` | which folders, on which devices |
//! | `start` | what happens before `main` |
//! | `mount` | a folder's file system: in this process, or behind a server |
//! | `share` | from alone to shared: servers, and who asks for one |
//! | `state` | whether there is something to do; what people and later processes are told |
//! | `gate` | who is in a call right now |
//! | `slot`, `table` | open files, in memory that outlives `exec`; descriptors that stand for them |
//! | `family`, `own` | the processes that share them; descriptors that are not the program's to close |
//! | `place`, `links` | which paths are ours, by other names as well; the working directory |
//! | `errno`, `memory` | how results become what C expects; memory that is not there |
//! | `open`, `data`, `copy`, `pipes`, `map`, `aio` | the functions on open files |
//! | `ready`, `owner`, `kinds` | waiting for them; their signals; terminals and sockets, which they are not |
//! | `limit` | how long files may become |
//! | `names`, `attributes`, `locks`, `directory`, `walk`, `stdio` | those on names, and others |
//! | `process`, `environment` | `fork`, `exec` and what else makes processes; what they are given |
//! | `loader` | what the loader of a program is told, and the program is not |
//! | `namespaces` | processes that have other ones |
//! | `identity` | the identity of the process, and of threads that have another one |
//! | `users` | calls that change users and groups |
//! | `shell`, `children` | `system` and `popen` |
//! | `program`, `libraries` | programs and libraries that are in a folder |
//! | `signals`, `cancel` | handlers of signals, and threads that are canceled, between calls |
//! | `reach` | programs that this library cannot be loaded into |
//! | `sockets` | sockets that have names in a folder |
//! | `refused` | what is answered as a kernel without it would |
//! | `stray` | files that system calls of a program's own have made in the kernel's folder |
//!
//! A descriptor of ours is a real one as well, of an empty file in memory that is open for nothing: so its
//! number, its copies and what closes at `exec` are the kernel's business. Nothing here calls an interposed
//! function by its own name: that of the C library is asked for, or the kernel directly.
//!
//! What it does not implement: programs without a C library that is linked dynamically, `io_uring`, `aio` of
//! the kernel and `inotify` on our files, which are refused.
// UNSAFETY: C calls these functions with raw pointers, and they hand them to the C library. What a caller
// owes `read(2)` it owes the function of that name here. Each function is `unsafe` as a whole for that
// reason.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]

#[macro_use]
mod real;

mod aio;
mod attributes;
mod cancel;
mod children;
mod config;
mod copy;
mod data;
mod directory;
mod environment;
mod errno;
mod family;
mod gate;
mod identity;
mod kinds;
mod libraries;
mod limit;
mod links;
mod loader;
mod locks;
mod map;
mod memory;
mod mount;
mod names;
mod namespaces;
mod open;
mod own;
mod owner;
mod pathname;
mod pipes;
mod place;
mod process;
mod program;
mod reach;
mod ready;
mod refused;
mod share;
mod shell;
mod signals;
mod slot;
mod sockets;
mod start;
mod state;
mod stdio;
mod stray;
mod table;
mod users;
mod walk;
mod wide;
mod xattrs;
