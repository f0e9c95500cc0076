//! Many buffers of one size, cut from few large ones.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{DmaBuf, Home, Piece, PoolId};
use crate::Region;
use crate::lock;

/// Buffers of one size, cut from the chunks it is given. A buffer comes back to its shelf when it is dropped,
/// wherever that happens; a shelf never takes memory from anybody else. Clones share the shelf.
///
/// Made to be one of several, each used mostly by one processor: two on a cache line would slow each other
/// down.
#[derive(Clone)]
pub struct DmaShelf(Arc<Shelf>);

#[repr(align(128))]
pub(super) struct Shelf {
    piece_bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Pieces nobody holds: memory and I/O virtual address.
    free: Vec<(Region, u64)>,
    chunks: Vec<Chunk>,
    /// Where all chunks come from.
    pool: Option<PoolId>,
    /// Pieces that are still to be cut.
    uncut: usize,
    taken: usize,
    taken_max: usize,
}

struct Chunk {
    buf: DmaBuf,
    /// Bytes from the start that have been cut into pieces. The rest follows when it is needed: cutting a
    /// large chunk at once would keep one unlucky caller waiting.
    cut: usize,
}

impl Chunk {
    /// Whether a piece was cut from this chunk.
    fn holds(&self, iova: u64) -> bool {
        (self.buf.iova()..self.buf.iova() + self.buf.len() as u64).contains(&iova)
    }
}

impl DmaShelf {
    /// An empty shelf for buffers of `piece_bytes`. Panics: when `piece_bytes` is 0.
    pub fn new(piece_bytes: usize) -> Self {
        assert!(piece_bytes > 0, "pieces of no bytes");
        Self(Arc::new(Shelf { piece_bytes, state: Mutex::default() }))
    }

    /// Length of the memory of each buffer, in bytes.
    pub fn piece_bytes(&self) -> usize {
        self.0.piece_bytes
    }

    /// Gives the shelf a chunk to cut. Panics: when not a single piece fits, or the chunk is of another pool
    /// than those before it.
    pub fn add(&self, chunk: DmaBuf) {
        assert!(chunk.len() >= self.0.piece_bytes, "{chunk:?} is shorter than {}", self.0.piece_bytes);
        let mut state = self.0.lock();
        let pool = *state.pool.get_or_insert(chunk.pool());
        assert!(pool == chunk.pool(), "{chunk:?} is of another pool than the shelf's chunks");
        state.uncut += chunk.len() / self.0.piece_bytes;
        state.chunks.push(Chunk { buf: chunk, cut: 0 });
    }

    /// A buffer of length `bytes`, if there is one; the one that came back last. It holds what its last owner
    /// left in it. Panics: when `bytes` is more than [`DmaShelf::piece_bytes`].
    pub fn take(&self, bytes: usize) -> Option<DmaBuf> {
        let size = self.0.piece_bytes;
        assert!(bytes <= size, "{bytes} bytes of a piece of {size}");
        let (region, iova, pool) = {
            let mut state = self.0.lock();
            let (region, iova) = match state.free.pop() {
                Some(piece) => piece,
                None => state.cut(size)?,
            };
            state.taken += 1;
            state.taken_max = state.taken_max.max(state.taken);
            (region, iova, state.pool?)
        };
        let home = Home::Shelf(Arc::clone(&self.0));
        Some(DmaBuf(Box::new(Piece { region, iova, bytes, pool, home })))
    }

    /// Takes a chunk back of which no buffer is in use, if there is one. Takes time in proportion to the free
    /// pieces.
    pub fn reclaim(&self) -> Option<DmaBuf> {
        let size = self.0.piece_bytes;
        let mut state = self.0.lock();
        let State { free, chunks, uncut, .. } = &mut *state;
        if !chunks.iter().any(|chunk| chunk.buf.len() / size <= free.len() + *uncut) {
            return None;
        }
        // Addresses by chunk: one search per piece.
        chunks.sort_by_key(|chunk| chunk.buf.iova());
        let mut idle = vec![0; chunks.len()];
        for (_, iova) in free.iter() {
            let at = chunks.partition_point(|chunk| chunk.buf.iova() <= *iova) - 1;
            idle[at] += 1;
        }
        let at = chunks.iter().zip(&idle).position(|(chunk, idle)| idle * size == chunk.cut)?;
        let chunk = chunks.swap_remove(at);
        free.retain(|(_, iova)| !chunk.holds(*iova));
        *uncut -= (chunk.buf.len() - chunk.cut) / size;
        Some(chunk.buf)
    }

    /// Whether `buf` came from this shelf.
    pub fn owns(&self, buf: &DmaBuf) -> bool {
        matches!(&buf.0.home, Home::Shelf(shelf) if Arc::ptr_eq(shelf, &self.0))
    }

    /// Buffers in use now.
    pub fn taken(&self) -> usize {
        self.0.lock().taken
    }

    /// Most buffers in use at any one time.
    pub fn taken_max(&self) -> usize {
        self.0.lock().taken_max
    }
}

impl fmt::Debug for DmaShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("DmaShelf")
            .field("piece_bytes", &self.0.piece_bytes)
            .field("chunks", &state.chunks.len())
            .field("taken", &state.taken)
            .finish()
    }
}

impl State {
    /// The next piece of a chunk that is not cut up yet.
    fn cut(&mut self, size: usize) -> Option<(Region, u64)> {
        if self.uncut == 0 {
            return None;
        }
        let chunk = self.chunks.iter_mut().rfind(|chunk| chunk.buf.len() - chunk.cut >= size)?;
        self.uncut -= 1;
        let offset = chunk.cut;
        chunk.cut += size;
        Some((chunk.buf.region().slice(offset, size), chunk.buf.iova() + offset as u64))
    }
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Lists and counters are whole after every statement: a panic elsewhere does not spoil them.
        lock(&self.state)
    }

    pub(super) fn put(&self, piece: (Region, u64)) {
        let mut state = self.lock();
        state.free.push(piece);
        state.taken -= 1;
    }
}
