//! A build without TLS: everything is refused by name, and no session exists.

use std::convert::Infallible;
use std::io;
use std::net::TcpStream;

use unvme_bus::{Piece, Room};

use super::Claimed;
use crate::stream::Handshake;
use crate::{FabricError, TlsPsk};

/// The target's side of TLS, which this build does not have.
#[derive(Clone, Debug)]
pub struct Acceptor(Infallible);

impl Acceptor {
    /// Refuses. Errors: [`FabricError::NoTls`], always.
    pub fn new<F>(_find: F) -> Result<Self, FabricError>
    where
        F: Fn(&str) -> Option<TlsPsk> + Send + Sync + 'static,
    {
        Err(FabricError::NoTls)
    }
}

pub(crate) struct Session(Infallible);

impl Session {
    pub(crate) fn connect(_socket: TcpStream, _psk: &TlsPsk) -> Result<Self, FabricError> {
        Err(FabricError::NoTls)
    }

    pub(crate) fn accept(_socket: TcpStream, acceptor: &Acceptor) -> Result<Self, FabricError> {
        match acceptor.0 {}
    }

    pub(crate) fn handshake(&mut self) -> Result<Handshake, FabricError> {
        match self.0 {}
    }

    pub(crate) fn send(&mut self, _pieces: &[Piece<'_>]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn receive(&mut self, _rooms: &mut [Room<'_>]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn has_buffered(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn identity(&self) -> Option<&str> {
        match self.0 {}
    }

    pub(crate) fn claimed(&self) -> Option<&Claimed> {
        match self.0 {}
    }

    pub(crate) fn finish(&mut self) {
        match self.0 {}
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self.0 {}
    }
}
