//! Inner nodes in four sizes, and the arenas they live in.

/// Bytes of a compressed path that a node keeps. Longer paths are compared with the key of a leaf below.
pub(super) const PATH_BYTES: usize = 8;

/// Where something is: its kind in bits 31:29, its place in the arena of that kind in bits 28:0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ref(u32);

/// What a [`Ref`] leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    None,
    Leaf,
    Node4,
    Node16,
    Node48,
    Node256,
}

const KIND_SHIFT: u32 = 29;
/// Things one arena can hold.
pub(super) const ARENA_MAX: usize = 1 << KIND_SHIFT;

impl Ref {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(kind: Kind, index: u32) -> Self {
        Self((kind as u32) << KIND_SHIFT | index)
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self.0 >> KIND_SHIFT {
            1 => Kind::Leaf,
            2 => Kind::Node4,
            3 => Kind::Node16,
            4 => Kind::Node48,
            5 => Kind::Node256,
            _ => Kind::None,
        }
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        (self.0 & (ARENA_MAX as u32 - 1)) as usize
    }

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    #[inline]
    pub(super) fn is_leaf(self) -> bool {
        self.kind() == Kind::Leaf
    }
}

/// What every inner node has.
#[derive(Clone, Copy)]
pub(super) struct Header {
    /// Bytes all keys below share from where the parent ends; may be more than `path` holds.
    pub(super) path_bytes: u32,
    pub(super) path: [u8; PATH_BYTES],
    /// The leaf whose key ends with this node's path.
    pub(super) end: Ref,
    /// Children, `end` not counted.
    pub(super) count: u16,
}

impl Header {
    pub(super) fn new(path: &[u8]) -> Self {
        let mut header = Self { path_bytes: 0, path: [0; PATH_BYTES], end: Ref::NONE, count: 0 };
        header.set_path(path);
        header
    }

    pub(super) fn set_path(&mut self, path: &[u8]) {
        let kept = path.len().min(PATH_BYTES);
        self.path_bytes = path.len() as u32;
        self.path[..kept].copy_from_slice(&path[..kept]);
    }

    /// The bytes of the path that are kept here.
    #[inline]
    pub(super) fn path(&self) -> &[u8] {
        &self.path[..(self.path_bytes as usize).min(PATH_BYTES)]
    }

    /// Compares what is kept of the path with `key` from `depth` on, and moves on to its end.
    #[inline(always)]
    fn pass(&self, key: &[u8], depth: &mut usize) -> Passed {
        if self.path_bytes > 0 {
            if !key[*depth..].starts_with(self.path()) {
                return Passed::Off;
            }
            *depth += self.path_bytes as usize;
        }
        match key.get(*depth) {
            Some(byte) => {
                *depth += 1;
                Passed::Byte(*byte)
            }
            // Or before the end of a path that is longer than what is kept of it: the leaf's key will tell.
            None => Passed::End,
        }
    }

    /// The path becomes `above`'s path, `byte`, and what it was.
    pub(super) fn prepend(&mut self, above: &Self, byte: u8) {
        let mut path = [0; 2 * PATH_BYTES + 1];
        let mut bytes = 0;
        for part in [above.path(), &[byte], self.path()] {
            // A part that is cut off fills what is kept by itself, so nothing after it matters.
            path[bytes..bytes + part.len()].copy_from_slice(part);
            bytes += part.len();
        }
        self.path.copy_from_slice(&path[..PATH_BYTES]);
        self.path_bytes += above.path_bytes + 1;
    }
}

/// How a key goes on after a node's path.
enum Passed {
    /// With this byte.
    Byte(u8),
    /// Not at all: it ends here.
    End,
    /// It left the path.
    Off,
}

/// Up to 4 or 16 children, by ascending byte.
pub(super) struct Sorted<const N: usize> {
    header: Header,
    bytes: [u8; N],
    children: [Ref; N],
}

/// Up to 48 children behind a table of all bytes.
pub(super) struct Node48 {
    header: Header,
    /// Place of the child plus one; 0 when there is none.
    places: [u8; 256],
    children: [Ref; 48],
}

/// A child for every byte.
pub(super) struct Node256 {
    header: Header,
    children: [Ref; 256],
}

impl<const N: usize> Sorted<N> {
    fn new(header: Header) -> Self {
        Self { header, bytes: [0; N], children: [Ref::NONE; N] }
    }

    #[inline]
    fn place(&self, byte: u8) -> Option<usize> {
        // All of them at once, in one vector register; those beyond the count do not matter.
        let mut equal = 0u32;
        for (at, candidate) in self.bytes.iter().enumerate() {
            equal |= u32::from(*candidate == byte) << at;
        }
        let at = equal.trailing_zeros() as usize;
        // Unused bytes are 0 and come after the used ones.
        (at < usize::from(self.header.count)).then_some(at)
    }

    #[inline]
    fn child(&self, byte: u8) -> Ref {
        self.place(byte).map_or(Ref::NONE, |place| self.children[place])
    }

    fn add(&mut self, byte: u8, child: Ref) {
        let count = usize::from(self.header.count);
        let at = self.bytes[..count].partition_point(|other| *other < byte);
        self.bytes.copy_within(at..count, at + 1);
        self.children.copy_within(at..count, at + 1);
        self.bytes[at] = byte;
        self.children[at] = child;
        self.header.count += 1;
    }

    fn remove(&mut self, byte: u8) {
        let Some(at) = self.place(byte) else { return };
        let count = usize::from(self.header.count);
        self.bytes.copy_within(at + 1..count, at);
        self.children.copy_within(at + 1..count, at);
        self.bytes[count - 1] = 0;
        self.children[count - 1] = Ref::NONE;
        self.header.count -= 1;
    }

    fn next(&self, from: u8) -> Option<(u8, Ref)> {
        let count = usize::from(self.header.count);
        let at = self.bytes[..count].partition_point(|byte| *byte < from);
        (at < count).then(|| (self.bytes[at], self.children[at]))
    }
}

impl Node48 {
    #[inline]
    fn child(&self, byte: u8) -> Ref {
        match self.places[usize::from(byte)] {
            0 => Ref::NONE,
            place => self.children[usize::from(place - 1)],
        }
    }

    fn next(&self, from: u8) -> Option<(u8, Ref)> {
        let byte = (from..=255).find(|byte| self.places[usize::from(*byte)] != 0)?;
        Some((byte, self.children[usize::from(self.places[usize::from(byte)] - 1)]))
    }

    fn add(&mut self, byte: u8, child: Ref) {
        // Removal leaves holes, so the next free place is not always the last.
        let at = self.children.iter().position(|child| child.is_none()).expect("a full node grows first");
        self.children[at] = child;
        self.places[usize::from(byte)] = at as u8 + 1;
        self.header.count += 1;
    }
}

impl Node256 {
    #[inline]
    fn child(&self, byte: u8) -> Ref {
        self.children[usize::from(byte)]
    }

    fn next(&self, from: u8) -> Option<(u8, Ref)> {
        let byte = (from..=255).find(|byte| !self.children[usize::from(*byte)].is_none())?;
        Some((byte, self.children[usize::from(byte)]))
    }
}

/// Things of one type that are referred to by index.
pub(super) struct Arena<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Arena<T> {
    const fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }

    fn add(&mut self, item: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.items[index as usize] = item;
            return index;
        }
        assert!(self.items.len() < ARENA_MAX, "a radix tree holds at most {ARENA_MAX} keys");
        self.items.push(item);
        self.items.len() as u32 - 1
    }

    fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

/// All inner nodes of a tree. Methods take references to inner nodes only.
pub(super) struct Nodes {
    four: Arena<Sorted<4>>,
    sixteen: Arena<Sorted<16>>,
    forty_eight: Arena<Node48>,
    all: Arena<Node256>,
}

/// The same expression on a node of whatever size.
macro_rules! on_node {
    ($nodes:expr, $at:expr, $node:ident => $then:expr) => {
        match $at.kind() {
            Kind::Node4 => {
                let $node = &$nodes.four.items[$at.index()];
                $then
            }
            Kind::Node16 => {
                let $node = &$nodes.sixteen.items[$at.index()];
                $then
            }
            Kind::Node48 => {
                let $node = &$nodes.forty_eight.items[$at.index()];
                $then
            }
            Kind::Node256 => {
                let $node = &$nodes.all.items[$at.index()];
                $then
            }
            Kind::Leaf | Kind::None => unreachable!("an inner node is expected"),
        }
    };
}

impl Nodes {
    pub(super) const fn new() -> Self {
        Self { four: Arena::new(), sixteen: Arena::new(), forty_eight: Arena::new(), all: Arena::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.four.bytes() + self.sixteen.bytes() + self.forty_eight.bytes() + self.all.bytes()
    }

    /// A node without children.
    pub(super) fn add_node(&mut self, header: Header) -> Ref {
        Ref::new(Kind::Node4, self.four.add(Sorted::new(header)))
    }

    pub(super) fn free(&mut self, at: Ref) {
        let free = match at.kind() {
            Kind::Node4 => &mut self.four.free,
            Kind::Node16 => &mut self.sixteen.free,
            Kind::Node48 => &mut self.forty_eight.free,
            Kind::Node256 => &mut self.all.free,
            Kind::Leaf | Kind::None => unreachable!("an inner node is expected"),
        };
        free.push(at.index() as u32);
    }

    #[inline]
    pub(super) fn header(&self, at: Ref) -> &Header {
        on_node!(self, at, node => &node.header)
    }

    pub(super) fn header_mut(&mut self, at: Ref) -> &mut Header {
        match at.kind() {
            Kind::Node4 => &mut self.four.items[at.index()].header,
            Kind::Node16 => &mut self.sixteen.items[at.index()].header,
            Kind::Node48 => &mut self.forty_eight.items[at.index()].header,
            Kind::Node256 => &mut self.all.items[at.index()].header,
            Kind::Leaf | Kind::None => unreachable!("an inner node is expected"),
        }
    }

    /// The child for `byte`, or [`Ref::NONE`].
    #[inline]
    pub(super) fn child(&self, at: Ref, byte: u8) -> Ref {
        on_node!(self, at, node => node.child(byte))
    }

    /// One step down: where `key` goes on from `depth`, or [`Ref::NONE`]. Asks once for the kind of the node,
    /// which no processor can guess.
    #[inline]
    pub(super) fn step(&self, at: Ref, key: &[u8], depth: &mut usize) -> Ref {
        on_node!(self, at, node => match node.header.pass(key, depth) {
            Passed::Byte(byte) => node.child(byte),
            Passed::End => node.header.end,
            Passed::Off => Ref::NONE,
        })
    }

    /// The child with the lowest byte that is at least `from`.
    pub(super) fn next_child(&self, at: Ref, from: u8) -> Option<(u8, Ref)> {
        on_node!(self, at, node => node.next(from))
    }

    /// Puts another child where there is one for `byte`.
    pub(super) fn replace_child(&mut self, at: Ref, byte: u8, child: Ref) {
        let old = match at.kind() {
            Kind::Node4 => {
                let node = &mut self.four.items[at.index()];
                node.place(byte).map(|place| &mut node.children[place])
            }
            Kind::Node16 => {
                let node = &mut self.sixteen.items[at.index()];
                node.place(byte).map(|place| &mut node.children[place])
            }
            Kind::Node48 => {
                let node = &mut self.forty_eight.items[at.index()];
                usize::from(node.places[usize::from(byte)])
                    .checked_sub(1)
                    .map(|place| &mut node.children[place])
            }
            Kind::Node256 => Some(&mut self.all.items[at.index()].children[usize::from(byte)]),
            Kind::Leaf | Kind::None => None,
        };
        *old.expect("the child is there") = child;
    }

    /// Adds a child for a `byte` that has none. The node that has it then is another one if it had to grow.
    pub(super) fn add_child(&mut self, at: Ref, byte: u8, child: Ref) -> Ref {
        let capacity = match at.kind() {
            Kind::Node4 => 4,
            Kind::Node16 => 16,
            Kind::Node48 => 48,
            _ => 256,
        };
        let at = if self.header(at).count == capacity { self.resize(at, capacity + 1) } else { at };
        match at.kind() {
            Kind::Node4 => self.four.items[at.index()].add(byte, child),
            Kind::Node16 => self.sixteen.items[at.index()].add(byte, child),
            Kind::Node48 => self.forty_eight.items[at.index()].add(byte, child),
            _ => {
                let node = &mut self.all.items[at.index()];
                node.children[usize::from(byte)] = child;
                node.header.count += 1;
            }
        }
        at
    }

    /// Removes the child for `byte`. The node is another one if it had to shrink.
    pub(super) fn remove_child(&mut self, at: Ref, byte: u8) -> Ref {
        // Some below the size of the next kind, so that a node at the border does not change with every call.
        let keep_above = match at.kind() {
            Kind::Node4 => {
                self.four.items[at.index()].remove(byte);
                return at;
            }
            Kind::Node16 => {
                self.sixteen.items[at.index()].remove(byte);
                3
            }
            Kind::Node48 => {
                let node = &mut self.forty_eight.items[at.index()];
                let place = std::mem::take(&mut node.places[usize::from(byte)]);
                node.children[usize::from(place) - 1] = Ref::NONE;
                node.header.count -= 1;
                12
            }
            _ => {
                let node = &mut self.all.items[at.index()];
                node.children[usize::from(byte)] = Ref::NONE;
                node.header.count -= 1;
                37
            }
        };
        let count = self.header(at).count;
        if count > keep_above { at } else { self.resize(at, count) }
    }

    /// Moves a node to the smallest kind that holds `children`.
    fn resize(&mut self, at: Ref, children: u16) -> Ref {
        let header = Header { count: 0, ..*self.header(at) };
        let new = match children {
            0..=4 => Ref::new(Kind::Node4, self.four.add(Sorted::new(header))),
            5..=16 => Ref::new(Kind::Node16, self.sixteen.add(Sorted::new(header))),
            17..=48 => {
                let node = Node48 { header, places: [0; 256], children: [Ref::NONE; 48] };
                Ref::new(Kind::Node48, self.forty_eight.add(node))
            }
            _ => Ref::new(Kind::Node256, self.all.add(Node256 { header, children: [Ref::NONE; 256] })),
        };
        let mut from = Some(0);
        while let Some((byte, child)) = from.and_then(|from| self.next_child(at, from)) {
            self.add_child(new, byte, child);
            from = byte.checked_add(1);
        }
        self.free(at);
        new
    }
}
