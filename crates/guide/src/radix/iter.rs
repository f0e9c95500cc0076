//! Keys in order.

use super::node::Ref;
use super::{LeafId, RadixTree};

/// The keys that start with a prefix and their values, in ascending order.
pub struct Prefix<'a, V> {
    tree: &'a RadixTree<V>,
    /// From the top to where the next leaf is: a node, and what of it comes next.
    way: Vec<(Ref, Next)>,
}

#[derive(Clone, Copy)]
enum Next {
    /// The node itself: a leaf, or an inner node not looked at yet.
    Itself,
    /// Children from this byte on.
    From(u8),
}

impl<'a, V> Prefix<'a, V> {
    pub(super) fn new(tree: &'a RadixTree<V>, top: Ref) -> Self {
        let way = if top.is_none() { Vec::new() } else { vec![(top, Next::Itself)] };
        Self { tree, way }
    }

    pub(crate) fn next_leaf(&mut self) -> Option<LeafId> {
        while let Some((at, next)) = self.way.pop() {
            if at.is_leaf() {
                return Some(LeafId(at.index() as u32));
            }
            let nodes = &self.tree.nodes;
            let from = match next {
                Next::Itself => {
                    self.way.push((at, Next::From(0)));
                    let end = nodes.header(at).end;
                    if !end.is_none() {
                        self.way.push((end, Next::Itself));
                    }
                    continue;
                }
                Next::From(from) => from,
            };
            if let Some((byte, child)) = nodes.next_child(at, from) {
                if let Some(from) = byte.checked_add(1) {
                    self.way.push((at, Next::From(from)));
                }
                self.way.push((child, Next::Itself));
            }
        }
        None
    }
}

impl<'a, V> Iterator for Prefix<'a, V> {
    type Item = (&'a [u8], &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let leaf = self.next_leaf()?;
        self.tree.leaf(leaf)
    }
}
