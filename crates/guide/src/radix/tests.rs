use std::collections::BTreeMap;

use proptest::prelude::*;

use super::RadixTree;
use super::node::Kind;

/// Compares everything a tree says with what a map says.
fn assert_same(tree: &RadixTree<u32>, map: &BTreeMap<Vec<u8>, u32>) {
    assert_eq!((tree.len(), tree.is_empty()), (map.len(), map.is_empty()));
    let listed: Vec<_> = tree.iter().map(|(key, value)| (key.to_vec(), *value)).collect();
    let expected: Vec<_> = map.iter().map(|(key, value)| (key.clone(), *value)).collect();
    assert_eq!(listed, expected);
    for (key, value) in map {
        assert_eq!(tree.get(key), Some(value), "{key:02x?}");
    }
}

/// Keys that share starts, end within each other's paths, branch widely and are longer than what a node keeps
/// of a path.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let few = prop::collection::vec(0u8..3, 0..12);
    let wide = (prop::collection::vec(0u8..2, 0..2), any::<u8>(), prop::collection::vec(0u8..2, 0..2))
        .prop_map(|(start, byte, end)| [start, vec![byte], end].concat());
    let long = (0usize..40, prop::collection::vec(0u8..2, 0..3), 0usize..40)
        .prop_map(|(start, middle, end)| [vec![7; start], middle, vec![7; end]].concat());
    prop_oneof![few, wide, long, prop::collection::vec(any::<u8>(), 0..300)]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, u32),
    Remove(Vec<u8>),
    RemoveSome(prop::sample::Index),
    Change(prop::sample::Index, u32),
    Prefix(Vec<u8>),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (key(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        5 => key().prop_map(Step::Remove),
        20 => any::<prop::sample::Index>().prop_map(Step::RemoveSome),
        5 => (any::<prop::sample::Index>(), any::<u32>()).prop_map(|(at, value)| Step::Change(at, value)),
        5 => key().prop_map(Step::Prefix),
        1 => Just(Step::Clear),
    ]
}

fn pick(map: &BTreeMap<Vec<u8>, u32>, at: prop::sample::Index) -> Option<Vec<u8>> {
    (!map.is_empty()).then(|| map.keys().nth(at.index(map.len())).unwrap().clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_tree_says_what_a_sorted_map_says(steps in prop::collection::vec(step(), 0..400)) {
        let mut tree = RadixTree::new();
        let mut map = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(key, value) => {
                    prop_assert_eq!(tree.insert(&key, value), map.insert(key, value));
                }
                Step::Remove(key) => prop_assert_eq!(tree.remove(&key), map.remove(&key)),
                Step::RemoveSome(at) => {
                    if let Some(key) = pick(&map, at) {
                        prop_assert_eq!(tree.remove(&key), map.remove(&key));
                        prop_assert_eq!(tree.get(&key), None);
                    }
                }
                Step::Change(at, value) => {
                    if let Some(key) = pick(&map, at) {
                        *tree.get_mut(&key).unwrap() = value;
                        map.insert(key, value);
                    }
                }
                Step::Prefix(prefix) => {
                    let found: Vec<_> = tree.prefix(&prefix).map(|(key, value)| (key.to_vec(), *value)).collect();
                    let expected: Vec<_> = map
                        .iter()
                        .filter(|(key, _)| key.starts_with(&prefix))
                        .map(|(key, value)| (key.clone(), *value))
                        .collect();
                    prop_assert_eq!(found, expected);
                }
                Step::Clear => {
                    tree.clear();
                    map.clear();
                }
            }
        }
        assert_same(&tree, &map);
    }
}

#[test]
fn nodes_grow_to_every_size_and_shrink_again() {
    let mut tree = RadixTree::new();
    let mut map = BTreeMap::new();
    let keys: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![b'k', byte.wrapping_mul(167), b'v']).collect();
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(tree.insert(key, at as u32), None);
        map.insert(key.clone(), at as u32);
        assert_same(&tree, &map);
        let expected = match map.len() {
            1 => Kind::Leaf,
            2..=4 => Kind::Node4,
            5..=16 => Kind::Node16,
            17..=48 => Kind::Node48,
            _ => Kind::Node256,
        };
        assert_eq!(tree.root.kind(), expected, "{} children", map.len());
    }
    for key in &keys {
        assert_eq!(tree.remove(key), map.remove(key));
        assert_same(&tree, &map);
        let expected = match map.len() {
            0 => Kind::None,
            1 => Kind::Leaf,
            2..=3 => Kind::Node4,
            4..=12 => Kind::Node16,
            13..=37 => Kind::Node48,
            _ => Kind::Node256,
        };
        assert_eq!(tree.root.kind(), expected, "{} children left", map.len());
    }
    assert!(tree.is_empty());
}

#[test]
fn keys_that_start_each_other_have_values_of_their_own() {
    let mut tree = RadixTree::new();
    let all = [0x55; 40];
    for bytes in [40, 0, 9, 8, 17, 1, 39] {
        assert_eq!(tree.insert(&all[..bytes], bytes), None);
    }
    assert_eq!(tree.iter().map(|(key, _)| key.len()).collect::<Vec<_>>(), [0, 1, 8, 9, 17, 39, 40]);
    assert_eq!(tree.get(&all[..16]), None);
    assert_eq!(tree.prefix(&all[..10]).map(|(_, value)| *value).collect::<Vec<_>>(), [17, 39, 40]);
    for bytes in [9, 0, 40, 17] {
        assert_eq!(tree.remove(&all[..bytes]), Some(bytes));
        assert_eq!(tree.remove(&all[..bytes]), None);
    }
    assert_eq!(tree.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [1, 8, 39]);
}

#[test]
fn memory_of_removed_keys_is_used_again_and_that_of_a_cleared_tree_given_back() {
    let mut tree = RadixTree::new();
    let empty = tree.memory_bytes();
    let key = |at: u32| [at.wrapping_mul(0x9e37_79b9).to_be_bytes().as_slice(), &[0; 60]].concat();
    for at in 0..10_000 {
        tree.insert(&key(at), at);
    }
    let full = tree.memory_bytes();
    assert!(full > 10_000 * 64, "{full}");
    for round in 1..5 {
        for at in 0..10_000 {
            tree.remove(&key((round - 1) * 10_000 + at)).unwrap();
            tree.insert(&key(round * 10_000 + at), at);
        }
    }
    // Other shapes take other nodes, but nothing piles up.
    assert!(tree.memory_bytes() < full * 3 / 2, "{} after {full}", tree.memory_bytes());
    tree.clear();
    assert_eq!(tree.memory_bytes(), empty);
}
