//! Where in a JSON file something is wrong.

use std::path::Path;

use crate::Error;
use crate::fabrics::looks_like_key;

/// What serde_json found wrong in the text of a file with secrets: nothing of what the file says in place of
/// what was expected is repeated.
pub(crate) fn secret_syntax_error(text: &str, path: &Path, error: &serde_json::Error) -> Error {
    let Error::Config { path, line, column, key, reason } = syntax_error(text, path, error) else {
        return Error::Config {
            path: path.into(),
            line: 1,
            column: 1,
            key: None,
            reason: "wrong".to_owned(),
        };
    };
    // What is expected, and the names of fields that are missing or there twice, are of the program and not
    // of the file.
    let is_ours = reason.starts_with("missing field") || reason.starts_with("duplicate field");
    let reason = if error.is_data() && !is_ours {
        let what = reason.split(['"', '`']).next().unwrap_or_default().trim_end();
        let expected = reason.rsplit_once(", expected ").map(|(_, expected)| expected);
        expected.map_or_else(|| what.to_owned(), |expected| format!("{what}, expected {expected}"))
    } else {
        reason
    };
    let key = key.filter(|key| !looks_like_key(key));
    Error::Config { path, line, column, key, reason }
}

/// What serde_json found wrong in the text of the file at `path`.
pub(crate) fn syntax_error(text: &str, path: &Path, error: &serde_json::Error) -> Error {
    let (line, column) = (error.line().max(1), error.column().max(1));
    let message = error.to_string();
    // serde_json ends its messages with the place, which the error says in front.
    let reason = message.rsplit_once(" at line ").map_or(message.as_str(), |(reason, _)| reason).to_owned();
    Error::Config { path: path.into(), line, column, key: key_before(text, line, column), reason }
}

/// The last object key that starts before a place.
fn key_before(text: &str, line: usize, column: usize) -> Option<String> {
    let before: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let end = text.len().min(before + column);
    let mut strings = Vec::new();
    let mut start = None;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match (start, byte) {
            _ if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            (None, b'"') if at >= end => break,
            (None, b'"') => start = Some(at + 1),
            (Some(first), b'"') => {
                strings.push((first, at));
                start = None;
            }
            _ => {}
        }
    }
    let is_key = |last: usize| text.get(last + 1..).is_some_and(|rest| rest.trim_start().starts_with(':'));
    let (first, last) = strings.into_iter().rev().find(|&(_, last)| is_key(last))?;
    text.get(first..last).map(str::to_owned)
}

/// Line and column of the first occurrence of `needle`; the start of the text without one.
pub(crate) fn place_of(text: &str, needle: &str) -> (usize, usize) {
    let before = text.find(needle).and_then(|at| text.get(..at)).unwrap_or("");
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before.len() - line_start + 1)
}
