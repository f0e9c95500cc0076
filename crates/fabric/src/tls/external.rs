//! Pre-shared keys of any hash function in OpenSSL: the callbacks of TLS 1.3, which the `openssl` crate does
//! not have. Those that it has are of earlier versions, and know SHA-256 alone.
// UNSAFETY: OpenSSL takes and hands out bare pointers here. Nothing but calls of it is unsafe, and what goes
// through them does not outlive the call.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uchar};
use std::sync::OnceLock;
use std::{ptr, slice};

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{SslContext, SslContextBuilder, SslRef, SslSession};
use openssl_sys::{EVP_MD, SSL, SSL_CIPHER, SSL_CTX, SSL_SESSION};

use crate::TlsPsk;

/// Number of the extension that offers keys (RFC 8446, 4.2.11).
const PRE_SHARED_KEY: u32 = 41;

type UseSession = unsafe extern "C" fn(
    *mut SSL,
    *const EVP_MD,
    *mut *const c_uchar,
    *mut usize,
    *mut *mut SSL_SESSION,
) -> c_int;
type FindSession = unsafe extern "C" fn(*mut SSL, *const c_uchar, usize, *mut *mut SSL_SESSION) -> c_int;

// As in <openssl/ssl.h>, since version 1.1.1.
unsafe extern "C" {
    fn SSL_CTX_set_psk_use_session_callback(context: *mut SSL_CTX, callback: Option<UseSession>);
    fn SSL_CTX_set_psk_find_session_callback(context: *mut SSL_CTX, callback: Option<FindSession>);
    fn SSL_CIPHER_find(ssl: *mut SSL, number: *const c_uchar) -> *const SSL_CIPHER;
    fn SSL_SESSION_new() -> *mut SSL_SESSION;
    fn SSL_SESSION_set1_master_key(session: *mut SSL_SESSION, key: *const c_uchar, bytes: usize) -> c_int;
    fn SSL_SESSION_set_cipher(session: *mut SSL_SESSION, cipher: *const SSL_CIPHER) -> c_int;
    fn SSL_SESSION_set_protocol_version(session: *mut SSL_SESSION, version: c_int) -> c_int;
}

/// What a host does when its key is asked for.
pub(super) struct Offer {
    pub(super) psk: TlsPsk,
    /// Number of the cipher suite of the key.
    pub(super) suite: [u8; 2],
    /// Told that the key is used.
    pub(super) used: fn(&mut SslRef, &TlsPsk),
}

/// What a target does with each identity that a host offers: the key and the number of its cipher suite.
type Find = Box<dyn Fn(&mut SslRef, &[u8]) -> Option<(TlsPsk, [u8; 2])> + Send + Sync>;

/// Connections of `context` use one key.
pub(super) fn offer(context: &mut SslContextBuilder, offer: Offer) -> Result<(), ErrorStack> {
    context.set_ex_data(offer_index()?, offer);
    // SAFETY: the context is alive, and the callback is a function.
    unsafe { SSL_CTX_set_psk_use_session_callback(context.as_ptr(), Some(use_session)) };
    Ok(())
}

/// Connections of `context` ask for keys.
pub(super) fn find<F>(context: &mut SslContextBuilder, find: F) -> Result<(), ErrorStack>
where
    F: Fn(&mut SslRef, &[u8]) -> Option<(TlsPsk, [u8; 2])> + Send + Sync + 'static,
{
    context.set_ex_data(find_index()?, Box::new(find) as Find);
    // SAFETY: the context is alive, and the callback is a function.
    unsafe { SSL_CTX_set_psk_find_session_callback(context.as_ptr(), Some(find_session)) };
    Ok(())
}

/// The extension with the identities that a host offers, while its first message is looked at.
pub(super) fn offered(ssl: &mut SslRef) -> Option<&[u8]> {
    let (mut at, mut bytes) = (ptr::null(), 0);
    // SAFETY: the connection is alive; both places are ours.
    let found = unsafe {
        openssl_sys::SSL_client_hello_get0_ext(ssl.as_ptr(), PRE_SHARED_KEY, &raw mut at, &raw mut bytes)
    };
    if found != 1 || at.is_null() {
        return None;
    }
    // SAFETY: OpenSSL has so many bytes there until it goes on with the connection, which is borrowed.
    Some(unsafe { slice::from_raw_parts(at, bytes) })
}

fn offer_index() -> Result<Index<SslContext, Offer>, ErrorStack> {
    static INDEX: OnceLock<Result<Index<SslContext, Offer>, ErrorStack>> = OnceLock::new();
    INDEX.get_or_init(SslContext::new_ex_index).clone()
}

fn find_index() -> Result<Index<SslContext, Find>, ErrorStack> {
    static INDEX: OnceLock<Result<Index<SslContext, Find>, ErrorStack>> = OnceLock::new();
    INDEX.get_or_init(SslContext::new_ex_index).clone()
}

/// OpenSSL's SSL_psk_use_session_cb_func; 0 ends the handshake.
unsafe extern "C" fn use_session(
    ssl: *mut SSL,
    _digest: *const EVP_MD,
    identity: *mut *const c_uchar,
    identity_bytes: *mut usize,
    session: *mut *mut SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL calls with a connection that nobody else uses meanwhile.
    let ssl = unsafe { SslRef::from_ptr_mut(ssl) };
    let context = ssl.ssl_context().to_owned();
    let Some(offer) = offer_index().ok().and_then(|index| context.ex_data(index)) else { return 0 };
    let Some(made) = session_of(ssl, &offer.psk, offer.suite) else { return 0 };
    (offer.used)(ssl, &offer.psk);
    let name = offer.psk.identity().as_bytes();
    // SAFETY: the places are OpenSSL's for the answer. It copies the identity, which the context has, before
    // the connection goes on, and the session is now its own.
    unsafe {
        *identity = name.as_ptr();
        *identity_bytes = name.len();
        *session = made;
    }
    1
}

/// OpenSSL's SSL_psk_find_session_cb_func: no session passes an identity over; 0 ends the handshake.
unsafe extern "C" fn find_session(
    ssl: *mut SSL,
    identity: *const c_uchar,
    identity_bytes: usize,
    session: *mut *mut SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL calls with a connection that nobody else uses meanwhile.
    let ssl = unsafe { SslRef::from_ptr_mut(ssl) };
    // SAFETY: the place is OpenSSL's for the answer.
    unsafe { *session = ptr::null_mut() };
    if identity.is_null() {
        return 1;
    }
    // SAFETY: OpenSSL has so many bytes there for the time of the call.
    let identity = unsafe { slice::from_raw_parts(identity, identity_bytes) };
    let context = ssl.ssl_context().to_owned();
    let Some(find) = find_index().ok().and_then(|index| context.ex_data(index)) else { return 0 };
    let Some((psk, suite)) = find(ssl, identity) else { return 1 };
    let Some(made) = session_of(ssl, &psk, suite) else { return 0 };
    // SAFETY: the place is OpenSSL's for the answer; the session is now its own.
    unsafe { *session = made };
    1
}

/// A session that stands for a key, as OpenSSL wants to be told of one; the caller's.
fn session_of(ssl: &SslRef, psk: &TlsPsk, suite: [u8; 2]) -> Option<*mut SSL_SESSION> {
    let key = psk.key();
    // SAFETY: the connection is alive, and a number has two bytes.
    let cipher = unsafe { SSL_CIPHER_find(ssl.as_ptr(), suite.as_ptr()) };
    if cipher.is_null() {
        return None;
    }
    // SAFETY: a new session, or none.
    let raw = unsafe { SSL_SESSION_new() };
    if raw.is_null() {
        return None;
    }
    // SAFETY: it is nobody else's. Dropped, it is freed.
    let session = unsafe { SslSession::from_ptr(raw) };
    // SAFETY: the session is alive, and OpenSSL copies the key; the cipher is one of OpenSSL's table.
    let is_set = unsafe {
        SSL_SESSION_set1_master_key(raw, key.as_ptr(), key.len()) == 1
            && SSL_SESSION_set_cipher(raw, cipher) == 1
            && SSL_SESSION_set_protocol_version(raw, openssl_sys::TLS1_3_VERSION) == 1
    };
    if !is_set {
        return None;
    }
    std::mem::forget(session);
    Some(raw)
}
