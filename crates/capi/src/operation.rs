//! What is done with a pair, on a key-value device and on a block device.

use std::slice;

use sdk::{BlockRange, Lba, Status};
use unvme_guide::config::SsdType;
use unvme_guide::session::{
    Data, IterateType, KvKey, KvVerdict, Op, OpError, Outcome, Prefix, QueueChoice, QueueKind, StoreOptions,
};

use crate::abi::KvIterateHandleInfo;
use crate::completion::Token;
use crate::handle::Open;
use crate::memory;
use crate::pair::{Iteration, Pair, Verb};
use crate::result::{Code, Failure, Result};

const STORE_COMPRESSION: i32 = 1;
const STORE_IDEMPOTENT: i32 = 2;
const RETRIEVE_DECOMPRESSION: i32 = 1;
const DELETE_CHECK: i32 = 1;
/// `KV_MAX_ITERATE_HANDLE`.
const ITERATORS: usize = 16;

fn invalid_option(option: i32) -> Failure {
    Failure::new(Code::INVALID_OPTION, format!("io_option: {option:#x} is no option of this operation"))
}

/// What `store_option` asks for.
pub(crate) fn store_options(option: i32) -> Result<StoreOptions> {
    if option & !(STORE_COMPRESSION | STORE_IDEMPOTENT) != 0 {
        return Err(invalid_option(option));
    }
    let options =
        if option & STORE_IDEMPOTENT != 0 { StoreOptions::IF_NOT_EXISTS } else { StoreOptions::default() };
    Ok(StoreOptions { compress: option & STORE_COMPRESSION != 0, ..options })
}

/// What `delete_option` asks for: whether the key must exist.
pub(crate) fn delete_option(option: i32) -> Result<bool> {
    match option {
        0 => Ok(false),
        DELETE_CHECK => Ok(true),
        other => Err(invalid_option(other)),
    }
}

/// The device hands out what was stored, however it keeps it: both options mean the same.
fn retrieve_option(option: i32) -> Result<()> {
    match option {
        0 | RETRIEVE_DECOMPRESSION => Ok(()),
        other => Err(invalid_option(other)),
    }
}

/// A 64-bit size in a 32-bit field; sizes beyond cannot be said there.
fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn is_kv(open: &Open) -> bool {
    open.member().ssd_type() == SsdType::Kv
}

/// A value is stored whole.
fn no_offset(pair: &Pair<'_>) -> Result<()> {
    if pair.offset() == 0 {
        return Ok(());
    }
    Err(Failure::new(Code::INVALID_VALUE_OFFSET, "value.offset of a store is 0"))
}

/// What is to be done with a pair, on a queue of this kind, when everything about the pair is as it must be.
/// `range` is where blocks that are given back are listed.
#[inline]
fn parse<'a>(
    open: &Open,
    pair: &Pair<'a>,
    verb: Verb,
    kind: QueueKind,
    range: &'a mut Option<BlockRange>,
) -> Result<Op<'a>> {
    let bytes = pair.length() as usize;
    let op = if is_kv(open) {
        let key = pair.key(verb)?;
        match verb {
            Verb::Store => {
                let options = store_options(pair.option())?;
                no_offset(pair)?;
                Op::Store { key, bytes, options }
            }
            Verb::Append => {
                no_offset(pair)?;
                Op::Append { key, bytes }
            }
            Verb::Retrieve => {
                retrieve_option(pair.option())?;
                Op::Retrieve { key, offset: pair.offset(), bytes }
            }
            Verb::Delete => Op::Delete { key, must_exist: delete_option(pair.option())? },
            Verb::Exist => Op::Exist(key),
        }
    } else {
        if matches!(verb, Verb::Append | Verb::Exist) {
            open.require(SsdType::Kv)?;
        }
        let (lba, count) = pair.blocks(verb, open.member().sector_bytes(), open.member().sectors())?;
        match verb {
            Verb::Store => Op::write(lba, count),
            Verb::Retrieve => Op::read(lba, count),
            _ => Op::Deallocate(slice::from_ref(range.insert(BlockRange::new(Lba(lba), count)))),
        }
    };
    open.require_queue(kind)?;
    Ok(op)
}

/// Where in the program's buffer the data begins: what a key-value device calls an offset is one in the value
/// on it.
fn skip(open: &Open, pair: &Pair<'_>) -> u32 {
    if is_kv(open) { 0 } else { pair.offset() }
}

/// The buffer that a pair's value is, when the device can use it as it is.
#[inline]
fn lend<'a>(open: &Open, pair: &Pair<'_>) -> Option<Data<'a>> {
    if pair.offset() != 0 {
        return None;
    }
    memory::lend(open, pair.value_address(), pair.length() as usize).map(Data::Lent)
}

/// Puts a lent buffer back.
fn back(mut outcome: Outcome) -> Outcome {
    if let Some(buf) = outcome.data.take() {
        memory::give_back(buf);
    }
    outcome
}

/// Stores a pair, or writes blocks.
pub(crate) fn store(open: &Open, queue: QueueChoice, pair: &mut Pair<'_>) -> Result<()> {
    let mut range = None;
    let op = parse(open, pair, Verb::Store, QueueKind::Sync, &mut range)?;
    let data = lend(open, pair).unwrap_or_else(|| Data::Out(pair.value(skip(open, pair))));
    back(open.member().call(queue, op, data)?);
    if is_kv(open) {
        pair.answer_actual(pair.length());
    }
    Ok(())
}

/// Appends to a value.
pub(crate) fn append(open: &Open, queue: QueueChoice, pair: &mut Pair<'_>) -> Result<()> {
    let mut range = None;
    let op = parse(open, pair, Verb::Append, QueueKind::Sync, &mut range)?;
    open.member().call(queue, op, Data::Out(pair.value(0)))?;
    Ok(())
}

/// Retrieves a value, or reads blocks. On failure both lengths are 0.
pub(crate) fn retrieve(open: &Open, queue: QueueChoice, pair: &mut Pair<'_>) -> Result<()> {
    let done = try_retrieve(open, queue, pair);
    match done {
        Ok((length, actual)) => pair.answer(length, actual),
        Err(_) => pair.answer(0, 0),
    }
    done.map(|_| ())
}

fn try_retrieve(open: &Open, queue: QueueChoice, pair: &mut Pair<'_>) -> Result<(u32, u32)> {
    let mut range = None;
    let op = parse(open, pair, Verb::Retrieve, QueueKind::Sync, &mut range)?;
    let skip = skip(open, pair);
    let data = match lend(open, pair) {
        Some(lent) => lent,
        None => Data::In(pair.buffer(skip)),
    };
    let outcome = back(open.member().call(queue, op, data)?);
    Ok(match op {
        Op::Retrieve { .. } => (outcome.data_bytes as u32, narrow(outcome.value_bytes)),
        _ => (pair.length(), pair.length()),
    })
}

/// Deletes a pair, or gives blocks back.
pub(crate) fn delete(open: &Open, queue: QueueChoice, pair: &Pair<'_>) -> Result<()> {
    let mut range = None;
    let op = parse(open, pair, Verb::Delete, QueueKind::Sync, &mut range)?;
    open.member().call(queue, op, Data::None)?;
    Ok(())
}

/// Whether there is such a pair.
pub(crate) fn exist(open: &Open, queue: QueueChoice, pair: &Pair<'_>) -> Result<()> {
    let mut range = None;
    let op = parse(open, pair, Verb::Exist, QueueKind::Sync, &mut range)?;
    match open.member().call(queue, op, Data::None) {
        Ok(_) => Ok(()),
        Err(e) if e.error.status().is_some_and(|status| KvVerdict::of(status) == KvVerdict::NotFound) => {
            Err(not_found())
        }
        Err(e) => Err(e.into()),
    }
}

/// There is no pair of this key.
pub(crate) fn not_found() -> Failure {
    Failure::of_status(Status::new(3, Code::NOT_EXIST_KEY.0 as u8), Code::NOT_EXIST_KEY)
}

/// As [`store`], without waiting.
pub(crate) fn store_async(open: &Open, queue: QueueChoice, pair: &Pair<'_>) -> Result<()> {
    let mut range = None;
    let op = parse(open, pair, Verb::Store, QueueKind::Async, &mut range)?;
    let data = lend(open, pair).unwrap_or_else(|| Data::Out(pair.value(skip(open, pair))));
    Ok(open.member().submit(queue, op, data, Token::Store.of(pair.address()))?)
}

/// As [`retrieve`], without waiting.
pub(crate) fn retrieve_async(open: &Open, queue: QueueChoice, pair: &Pair<'_>) -> Result<()> {
    let mut range = None;
    let op = parse(open, pair, Verb::Retrieve, QueueKind::Async, &mut range)?;
    let data = lend(open, pair).unwrap_or_default();
    Ok(open.member().submit(queue, op, data, Token::Retrieve.of(pair.address()))?)
}

/// As [`delete`], without waiting.
pub(crate) fn delete_async(open: &Open, queue: QueueChoice, pair: &Pair<'_>) -> Result<()> {
    let mut range = None;
    let op = parse(open, pair, Verb::Delete, QueueKind::Async, &mut range)?;
    Ok(open.member().submit(queue, op, Data::None, Token::Delete.of(pair.address()))?)
}

/// As [`exist`], without waiting.
pub(crate) fn exist_async(open: &Open, queue: QueueChoice, pair: &Pair<'_>) -> Result<()> {
    let mut range = None;
    let op = parse(open, pair, Verb::Exist, QueueKind::Async, &mut range)?;
    Ok(open.member().submit(queue, op, Data::None, Token::Exist.of(pair.address()))?)
}

/// Opens an iterator.
pub(crate) fn iterate_open(open: &Open, keyspace: u8, prefix: Prefix, kind: u8) -> Result<u8> {
    open.require(SsdType::Kv)?;
    if keyspace > 1 {
        return Err(Failure::new(Code::INVALID_KEYSPACE_ID, "keyspace_id is neither 0 nor 1"));
    }
    let kind = match IterateType::from_number(kind) {
        Some(kind @ (IterateType::Key | IterateType::KeyDelete)) => kind,
        _ => {
            let text = format!("iterate_type: KV_KEY_ITERATE or KV_KEY_ITERATE_WITH_DELETE, not {kind}");
            return Err(Failure::new(Code::ITERATE_ERROR, text));
        }
    };
    if !prefix.is_contiguous() {
        let text = format!("bitmask: ones from the highest bit on are expected, not {:#x}", prefix.bitmask);
        return Err(Failure::new(Code::DD_ITERATE_COND_INVALID, text));
    }
    Ok(open.member().iterate_open(QueueChoice::Auto, keyspace, kind, prefix)?)
}

pub(crate) fn iterate_close(open: &Open, iterator: u8) -> Result<()> {
    open.require(SsdType::Kv)?;
    if iterator == 0 {
        return Err(Failure::new(Code::DD_INVALID_PARAM, "0 is never the number of an iterator"));
    }
    match open.member().iterate_close(QueueChoice::Auto, iterator) {
        // Beyond what a command can name, and so certainly not open.
        Err(OpError::Argument(text)) => Err(Failure::new(Code::ITERATE_FAIL_TO_PROCESS_REQUEST, text)),
        closed => Ok(closed?),
    }
}

/// Reads keys of an iterator.
pub(crate) fn iterate_read(open: &Open, queue: QueueChoice, iteration: &mut Iteration<'_>) -> Result<()> {
    open.require(SsdType::Kv)?;
    let iterator = iteration.iterator()?;
    open.require_queue(QueueKind::Sync)?;
    match open.member().iterate_read(queue, iterator, iteration.buffer()?) {
        Ok(read) => {
            iteration.answer(read.bytes as u32);
            if read.end { Err(end_of_iteration()) } else { Ok(()) }
        }
        Err(error) => Err(Failure::from(error).into_io()),
    }
}

fn end_of_iteration() -> Failure {
    Failure::of_status(Status::new(3, Code::ITERATE_READ_EOF.0 as u8), Code::ITERATE_READ_EOF)
}

/// As [`iterate_read`], without waiting.
pub(crate) fn iterate_read_async(open: &Open, queue: QueueChoice, iteration: &Iteration<'_>) -> Result<()> {
    open.require(SsdType::Kv)?;
    let iterator = iteration.iterator()?;
    open.require_queue(QueueKind::Async)?;
    Ok(open.member().iterate_read_async(queue, iterator, Token::IterateRead.of(iteration.address()))?)
}

/// The state of the iterators from 1 on, as many as `info` has room for: 1 to 16.
pub(crate) fn iterate_info(open: &Open, info: &mut [KvIterateHandleInfo]) -> Result<()> {
    open.require(SsdType::Kv)?;
    if !(1..=ITERATORS).contains(&info.len()) {
        return Err(Failure::new(Code::DD_INVALID_PARAM, "nr_handle is not 1 to 16"));
    }
    let entries = open.member().iterate_info()?;
    for (target, entry) in info.iter_mut().zip(entries) {
        *target = KvIterateHandleInfo {
            handle_id: entry.id,
            status: entry.status,
            kind: entry.kind,
            keyspace_id: entry.keyspace,
            prefix: u32::from_be_bytes(entry.prefix),
            bitmask: u32::from_be_bytes(entry.bitmask),
            is_eof: entry.is_eof,
            reserved: [0; 3],
        };
    }
    Ok(())
}

/// The key of a call of `unvme.h`, which passes it by itself. Those of the uNVMe SDK have 4 bytes or more
/// ([`crate::pair`]); this device's may have one.
pub(crate) fn key(keyspace: u8, bytes: &[u8]) -> Result<KvKey<'_>> {
    if keyspace > 1 {
        return Err(Failure::new(Code::INVALID_KEYSPACE_ID, "keyspace is neither 0 nor 1"));
    }
    if !(1..=255).contains(&bytes.len()) {
        return Err(Failure::new(Code::INVALID_KEY_SIZE, "a key has 1 to 255 bytes"));
    }
    Ok(KvKey { keyspace, bytes })
}
