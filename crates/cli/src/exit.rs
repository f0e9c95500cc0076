//! Exit codes, and how an error is told.

use std::io;
use std::process::ExitCode;

use unvme::Error;
use unvme::session::OpError;

/// Everything went well.
pub(crate) const OK: u8 = 0;
/// The device answered a command with an error status.
pub(crate) const DEVICE: u8 = 1;
/// What was typed makes no sense; also clap's code.
pub(crate) const USAGE: u8 = 2;
/// There is no such device, or another process holds it.
pub(crate) const NOT_AVAILABLE: u8 = 3;
/// The operating system refused, or the connection to the device failed.
pub(crate) const SYSTEM: u8 = 4;
/// Something that destroys data was not confirmed.
pub(crate) const NOT_CONFIRMED: u8 = 5;

/// The codes, for the end of the help.
pub(crate) const HELP: &str = "\
Exit codes:
  0  success
  1  the device answered with an error status, or with wrong data
  2  wrong usage: an option, a name or a value that makes no sense
  3  no such device, or another process holds it
  4  the operating system refused, or the connection to the device failed
  5  not confirmed: the command destroys data and was given neither an answer nor --force";

/// What was typed makes no sense, beyond what clap can see.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Something that destroys data was not confirmed.
#[derive(Debug)]
pub(crate) struct NotConfirmed(pub(crate) String);

impl std::fmt::Display for NotConfirmed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotConfirmed {}

/// Commands failed, or data was wrong, and the result has been shown all the same.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// A usage error.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// The exit code for an error; what it is about decides, however much context was added.
pub(crate) fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if cause.is::<Usage>() {
            return USAGE;
        }
        if cause.is::<NotConfirmed>() {
            return NOT_CONFIRMED;
        }
        if cause.is::<Failed>() {
            return DEVICE;
        }
        if let Some(error) = cause.downcast_ref::<OpError>() {
            return match error {
                OpError::Status(_) => DEVICE,
                OpError::Argument(_) | OpError::Unsupported(_) => USAGE,
                _ => SYSTEM,
            };
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            return match error {
                Error::Device { .. } => DEVICE,
                Error::NotFound { .. } | Error::InUse { .. } => NOT_AVAILABLE,
                Error::Name { .. }
                | Error::Unsupported { .. }
                | Error::Argument(_)
                | Error::Exists { .. } => USAGE,
                _ => SYSTEM,
            };
        }
    }
    SYSTEM
}

/// True when the reader of our output has gone: not an error worth a word.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
            || cause.downcast_ref::<serde_json::Error>().and_then(|e| e.io_error_kind())
                == Some(io::ErrorKind::BrokenPipe)
    })
}

/// One line: what went wrong, then why, from the outside in.
pub(crate) fn line_of(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for cause in error.chain() {
        parts.push(cause.to_string());
        if cause.is::<Error>() {
            // Says itself what its sources are.
            break;
        }
    }
    parts.join(": ").replace('\n', " ")
}

/// Ends the program: a line on stderr for an error, and its code.
pub(crate) fn report(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(OK),
        Err(error) if is_broken_pipe(&error) => ExitCode::from(OK),
        Err(error) => {
            let line = line_of(&error);
            let mut stderr = io::stderr().lock();
            // With stderr gone there is nobody left to tell.
            let _ = io::Write::write_fmt(&mut stderr, format_args!("unvme: {line}\n"));
            ExitCode::from(code_of(&error))
        }
    }
}
