//! A namespace that is new: what it holds, and where on the media there is room for it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use unvme_spec::{Nsid, Status};

use super::{Blocks, Contents, Namespace, NamespaceTable};
use crate::SsdError;
use crate::controllers::ControllerSet;
use crate::fdp::Handles;
use crate::identity;
use crate::kv::{KeyValue, KvStore};
use crate::media::Media;
use crate::store::CHUNK_BYTES;

/// Namespaces a device can have had, since their identifiers are never used again: NGUID has 40 bits for the
/// number.
pub(crate) const CREATED_MAX: u64 = (1 << 40) - 1;

/// Chunks of the media that belong to no namespace.
pub(crate) fn free_chunks(table: &NamespaceTable, total: u64) -> u64 {
    let used: u64 = table.iter().map(|namespace| namespace.chunks().len() as u64).sum();
    total.saturating_sub(used)
}

/// Flags by chunk: it belongs to a namespace.
pub(crate) fn owned_chunks(table: &NamespaceTable, total: u64) -> Vec<bool> {
    let mut owned = vec![false; total as usize];
    for &chunk in table.iter().flat_map(|namespace| &**namespace.chunks()) {
        if let Some(flag) = owned.get_mut(chunk as usize) {
            *flag = true;
        }
    }
    owned
}

/// A namespace that does not exist yet.
#[derive(Clone, Copy)]
pub(crate) struct NewNamespace {
    pub(crate) nsid: Nsid,
    pub(crate) attached: ControllerSet,
    pub(crate) is_private: bool,
    pub(crate) shape: Shape,
}

/// What a namespace is to hold.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Logical blocks: their size as a power of two, and how many.
    Blocks { block_shift: u8, count: u64 },
    /// Pairs, on so many bytes of media.
    KeyValue { bytes: u64 },
}

impl Shape {
    /// Chunks it needs; `None` when its size in bytes is beyond all numbers.
    pub(crate) fn chunks(self) -> Option<u64> {
        let bytes = match self {
            Self::Blocks { block_shift, count } => count.checked_mul(1 << block_shift)?,
            Self::KeyValue { bytes } => bytes,
        };
        Some(bytes.div_ceil(CHUNK_BYTES))
    }

    /// Block size as a power of two; `None` when there are none.
    pub(crate) fn block_shift(self) -> Option<u8> {
        match self {
            Self::Blocks { block_shift, .. } => Some(block_shift),
            Self::KeyValue { .. } => None,
        }
    }
}

/// Adds a namespace to `table`, on the first free chunks; pairs get an empty store there.
pub(crate) fn add(
    table: &mut NamespaceTable,
    new: NewNamespace,
    handles: Arc<Handles>,
    serial: &str,
    media: &Arc<Media>,
) -> Result<(), AddError> {
    let total = media.chunks();
    let wanted = new.shape.chunks().filter(|&wanted| wanted <= free_chunks(table, total));
    let wanted = wanted.ok_or(AddError::NoSpace)?;
    let owned = owned_chunks(table, total);
    let free = (0u32..).zip(&owned).filter(|(_, owned)| !**owned).map(|(chunk, _)| chunk);
    let chunks: Arc<[u32]> = free.take(wanted as usize).collect();
    let contents = match new.shape {
        Shape::Blocks { block_shift, count } => {
            Contents::Blocks(Blocks { block_shift, count, chunks, bad: Arc::default() })
        }
        Shape::KeyValue { .. } => {
            let store = KvStore::create(Arc::clone(media), Arc::clone(&chunks)).map_err(AddError::Store)?;
            store.place(handles.ruhs());
            Contents::KeyValue(KeyValue::new(chunks, store))
        }
    };
    table.created += 1;
    table.put(Namespace {
        nsid: new.nsid,
        attached: new.attached,
        is_private: new.is_private,
        busy: false,
        nguid: identity::nguid(serial, table.created),
        eui64: identity::eui64(serial, table.created),
        handles,
        contents,
    });
    Ok(())
}

/// Why a namespace could not be added.
#[derive(Debug)]
pub(crate) enum AddError {
    /// There are fewer free chunks than it needs.
    NoSpace,
    /// Its store could not be made.
    Store(SsdError),
}

impl From<AddError> for Status {
    fn from(error: AddError) -> Self {
        match error {
            AddError::NoSpace => Self::NAMESPACE_INSUFFICIENT_CAPACITY,
            AddError::Store(error) => {
                tracing::error!(%error, "the store of a namespace could not be made");
                Self::INTERNAL_ERROR
            }
        }
    }
}
