//! The order of things in a listing that takes several List commands. Decisions alone: nothing here talks to
//! a device.

/// In which order a device lists keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Byte by byte, a shorter key before the longer ones that it begins.
    Ascending,
    /// Any other; the specification leaves it to the device.
    Unknown,
}

/// Keys in ascending order, at the start of a listing, that tell that a device lists in this order: it takes
/// luck of one in 16! for another order to look the same.
pub(crate) const ORDER_KEYS: usize = 16;

/// Which keys are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// This one and those that follow it in byte order.
    pub from: Vec<u8>,
    /// Those that begin with this.
    pub prefix: Vec<u8>,
    /// Those of at least so many bytes.
    pub bytes_min: usize,
}

impl Wanted {
    /// True for a key that is wanted.
    pub(crate) fn takes(&self, key: &[u8]) -> bool {
        key.len() >= self.bytes_min && key >= self.from.as_slice() && key.starts_with(&self.prefix)
    }

    /// True when neither `key` nor any that follows it in byte order is wanted.
    fn ends_before(&self, key: &[u8]) -> bool {
        key > self.prefix.as_slice() && !key.starts_with(&self.prefix)
    }

    /// The least key, in byte order, that can be wanted.
    fn least(&self) -> &[u8] {
        self.from.as_slice().max(self.prefix.as_slice())
    }
}

/// A listing of several pages, each of which starts with the last key of the one before.
#[derive(Debug)]
pub struct Scan {
    wanted: Wanted,
    order: Order,
    /// Where the next page starts.
    start: Vec<u8>,
    /// The key that was listed first: when it comes again, the device has begun anew.
    first: Option<Vec<u8>>,
    /// A key that was listed later, in case the first is deleted meanwhile.
    mark: Option<Vec<u8>>,
    /// Keys until another one is marked. The distance doubles, so that a mark is met again whatever the
    /// length of the listing.
    until_mark: u64,
    mark_distance: u64,
    is_done: bool,
}

impl Scan {
    /// A listing on a device of that order, whose keys have at most `key_bytes_max` bytes.
    pub fn new(wanted: Wanted, order: Order, key_bytes_max: usize) -> Self {
        let start = match order {
            // Cut off, it is before what was cut: nothing is missed.
            Order::Ascending => {
                let least = wanted.least();
                least[..least.len().min(key_bytes_max)].to_vec()
            }
            Order::Unknown => Vec::new(),
        };
        let is_done = wanted.prefix.len() > key_bytes_max;
        Self { wanted, order, start, first: None, mark: None, until_mark: 1, mark_distance: 1, is_done }
    }

    /// Where the next page starts; `None` when nothing is left.
    pub fn start(&self) -> Option<&[u8]> {
        (!self.is_done).then_some(self.start.as_slice())
    }

    /// Takes a page; returns those of its keys that are wanted.
    pub fn take<'a>(&mut self, page: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        let first_page = self.first.is_none();
        let mut last: Option<&[u8]> = None;
        for (index, key) in page.enumerate() {
            if index == 0 && !first_page && key == self.start.as_slice() {
                // The page before ended with it.
                continue;
            }
            if self.is_over(key, last) {
                self.is_done = true;
                return taken;
            }
            self.mark(key);
            if self.wanted.takes(key) {
                taken.push(key.to_vec());
            }
            last = Some(key);
        }
        match last {
            Some(key) => self.start = key.to_vec(),
            None => self.is_done = true,
        }
        taken
    }

    /// True when `key`, which came after `last` or at the start of a page, is not part of the listing any
    /// more.
    fn is_over(&self, key: &[u8], last: Option<&[u8]>) -> bool {
        if self.first.as_deref() == Some(key) || self.mark.as_deref() == Some(key) {
            return true;
        }
        let has_fallen = match (last, &self.first) {
            (Some(last), _) => key <= last,
            (None, Some(_)) => key <= self.start.as_slice(),
            (None, None) => false,
        };
        self.order == Order::Ascending && (has_fallen || self.wanted.ends_before(key))
    }

    fn mark(&mut self, key: &[u8]) {
        if self.first.is_none() {
            self.first = Some(key.to_vec());
            return;
        }
        self.until_mark -= 1;
        if self.until_mark == 0 {
            self.mark = Some(key.to_vec());
            self.mark_distance = self.mark_distance.saturating_mul(2);
            self.until_mark = self.mark_distance;
        }
    }
}

/// What the first page of a listing from the beginning says about a device's order; `None` when it has too
/// few keys.
pub(crate) fn order_of<'a>(page: impl Iterator<Item = &'a [u8]>) -> Option<Order> {
    let mut last: Option<&[u8]> = None;
    let mut keys = 0;
    for key in page {
        if last.is_some_and(|last| key <= last) {
            return Some(Order::Unknown);
        }
        last = Some(key);
        keys += 1;
    }
    (keys >= ORDER_KEYS).then_some(Order::Ascending)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device does with List.
    struct Device {
        keys: Vec<Vec<u8>>,
        page_keys: usize,
        /// After the last key comes the first.
        wraps: bool,
    }

    impl Device {
        /// A device whose order is that of `keys`. An unknown start begins where the next greater key is, or
        /// at the beginning.
        fn list(&self, start: &[u8]) -> Vec<&[u8]> {
            let at = self
                .keys
                .iter()
                .position(|key| key == start)
                .or_else(|| self.keys.iter().position(|key| key.as_slice() > start))
                .unwrap_or(if start.is_empty() || self.wraps { 0 } else { self.keys.len() });
            let order = self.keys.iter().skip(at);
            let again = self.keys.iter().take(if self.wraps { at } else { 0 });
            order.chain(again).take(self.page_keys).map(Vec::as_slice).collect()
        }

        fn scan(&self, wanted: Wanted, order: Order) -> Vec<Vec<u8>> {
            let mut scan = Scan::new(wanted, order, 16);
            let mut all = Vec::new();
            for _ in 0..1000 {
                let Some(start) = scan.start().map(<[u8]>::to_vec) else { return all };
                all.extend(scan.take(self.list(&start).into_iter()));
            }
            panic!("the listing does not end");
        }
    }

    fn keys(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    fn prefix(prefix: &str) -> Wanted {
        Wanted { prefix: prefix.into(), ..Wanted::default() }
    }

    const SORTED: [&str; 9] = ["a", "ab", "abc", "b", "ba", "bb", "bc", "c", "d"];

    #[test]
    fn a_listing_has_every_key_once_whatever_the_length_of_the_page() {
        for wraps in [false, true] {
            for page_keys in 2..=12 {
                let device = Device { keys: keys(&SORTED), page_keys, wraps };
                for order in [Order::Ascending, Order::Unknown] {
                    assert_eq!(device.scan(Wanted::default(), order), keys(&SORTED), "{page_keys} {wraps}");
                }
            }
        }
    }

    #[test]
    fn a_device_of_another_order_is_listed_whole() {
        let shuffled = ["d", "ab", "bc", "a", "ba", "c", "abc", "bb", "b"];
        for wraps in [false, true] {
            for page_keys in 2..=12 {
                let device = Device { keys: keys(&shuffled), page_keys, wraps };
                let mut all = device.scan(Wanted::default(), Order::Unknown);
                all.sort();
                assert_eq!(all, keys(&SORTED), "{page_keys} {wraps}");
                let mut some = device.scan(prefix("b"), Order::Unknown);
                some.sort();
                assert_eq!(some, keys(&["b", "ba", "bb", "bc"]), "{page_keys} {wraps}");
            }
        }
    }

    #[test]
    fn a_prefix_is_found_and_left_on_a_device_in_order() {
        let device = Device { keys: keys(&SORTED), page_keys: 3, wraps: false };
        assert_eq!(device.scan(prefix("b"), Order::Ascending), keys(&["b", "ba", "bb", "bc"]));
        assert_eq!(device.scan(prefix("ab"), Order::Ascending), keys(&["ab", "abc"]));
        assert_eq!(device.scan(prefix("bd"), Order::Ascending), keys(&[]));
        assert_eq!(device.scan(prefix("e"), Order::Ascending), keys(&[]));
        // One page is enough: the next key does not begin with it any more.
        let mut scan = Scan::new(prefix("a"), Order::Ascending, 16);
        assert_eq!(scan.start(), Some(&b"a"[..]));
        scan.take([&b"a"[..], b"b"].into_iter());
        assert_eq!(scan.start(), None);
    }

    #[test]
    fn a_listing_from_a_key_has_that_key_and_what_follows() {
        let device = Device { keys: keys(&SORTED), page_keys: 3, wraps: true };
        let from = |from: &str| Wanted { from: from.into(), ..Wanted::default() };
        for order in [Order::Ascending, Order::Unknown] {
            assert_eq!(device.scan(from("bb"), order), keys(&["bb", "bc", "c", "d"]));
            assert_eq!(device.scan(from("bbb"), order), keys(&["bc", "c", "d"]));
            assert_eq!(device.scan(from("e"), order), keys(&[]));
        }
    }

    #[test]
    fn a_prefix_longer_than_any_key_asks_the_device_nothing() {
        assert_eq!(Scan::new(prefix("12345678901234567"), Order::Ascending, 16).start(), None);
    }

    #[test]
    fn a_start_longer_than_any_key_is_cut_and_what_is_before_it_is_left_out() {
        let from = b"12345678901234567".to_vec();
        let mut scan = Scan::new(Wanted { from, ..Wanted::default() }, Order::Ascending, 16);
        assert_eq!(scan.start(), Some(&b"1234567890123456"[..]));
        let page = [&b"1234567890123456"[..], b"2"];
        assert_eq!(scan.take(page.into_iter()), keys(&["2"]));
    }

    #[test]
    fn an_empty_device_is_listed_with_one_command() {
        let mut scan = Scan::new(Wanted::default(), Order::Unknown, 16);
        assert!(scan.take(std::iter::empty()).is_empty());
        assert_eq!(scan.start(), None);
    }

    #[test]
    fn a_device_that_repeats_itself_for_ever_is_left() {
        let mut scan = Scan::new(Wanted::default(), Order::Unknown, 16);
        let mut pages = 0;
        while scan.start().is_some() {
            pages += 1;
            assert!(pages < 100);
            // The first key was deleted after it was listed; the device goes round and round.
            let page: &[&[u8]] = if pages == 1 { &[b"x", b"k", b"l"] } else { &[b"l", b"m", b"k"] };
            scan.take(page.iter().copied());
        }
    }

    #[test]
    fn few_keys_say_nothing_about_the_order_and_one_that_falls_says_all() {
        let many: Vec<Vec<u8>> = (0..ORDER_KEYS as u8).map(|i| vec![i]).collect();
        let slices = |keys: &'_ [Vec<u8>]| order_of(keys.iter().map(Vec::as_slice));
        assert_eq!(slices(&many[1..]), None);
        assert_eq!(slices(&many), Some(Order::Ascending));
        assert_eq!(slices(&keys(&["b", "a"])), Some(Order::Unknown));
        assert_eq!(slices(&keys(&["a", "a"])), Some(Order::Unknown));
    }
}
