//! Ends an idle server before its time: one without clients, which would end by itself.

use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::hold::is_held;
use super::link::{SAY_LIMIT, say};
use super::packet;
use super::place::alone_socket;
use super::wire::{Answer, Ask, VERSION, parse};
use crate::error::Error;

/// How long a process may take to write back and to release the device.
const END_LIMIT: Duration = Duration::from_secs(30);
/// How long the server may take to notice that its last client has ended.
const CLIENT_LIMIT: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(10);

/// Asks the server at a socket to end if it has no clients and would end by itself after a time without any,
/// and waits until a process that ends has released the file system, for 30 seconds at most. Returns at once
/// when no process has the file system, and after 200 ms when one uses it: opening the device then fails with
/// an error that names it.
pub fn end_idle_server(socket: &Path) {
    let begun = Instant::now();
    let mut used = begun;
    while is_held(socket) && begun.elapsed() < END_LIMIT {
        if is_ending(socket) {
            used = Instant::now();
        } else if used.elapsed() > CLIENT_LIMIT {
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// Whether the process that has the file system is about to end. A server without clients is from here on.
fn is_ending(socket: &Path) -> bool {
    let server = match packet::connect(socket, SAY_LIMIT) {
        Ok(server) => server,
        // It listens no more, or a process has the file system to itself and is asked elsewhere.
        Err(Error::Posix(Errno::NOENT | Errno::CONNREFUSED)) => return !alone_socket(socket).exists(),
        Err(_) => return false,
    };
    let said = say(&server, &Ask::Finish { version: VERSION }, &[]);
    let answer = said.and_then(|()| packet::receive_within(server.as_fd(), SAY_LIMIT));
    answer.is_ok_and(|(bytes, _)| parse::<Answer>(&bytes) == Some(Answer::Finishing))
}
