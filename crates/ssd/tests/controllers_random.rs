//! Random commands of the hosts of several controllers, which come and go, against a model of what they see.

mod host;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use host::blocks::{READ, SOURCE, WRITE};
use host::placement::identify;
use host::random::Random;
use host::{DATA, Host, MEDIA_BYTES, config, device, sqe};
use unvme_bus::Function;
use unvme_spec::{Sqe, Status};
use unvme_ssd::{Ssd, SsdConfig};

/// Namespaces that the model lets there be.
const NAMESPACES: u32 = 6;
/// Controllers beside the first.
const OTHERS: usize = 3;
/// Blocks that are looked at: the first ones of the namespace.
const BLOCKS: u64 = 8;
const STEPS: u32 = 6000;

struct Namespace {
    /// 9 or 12.
    block_shift: u32,
    bytes: u64,
    is_private: bool,
    attached: BTreeSet<u16>,
    data: [u8; BLOCKS as usize],
}

#[derive(Default)]
struct Model {
    namespaces: BTreeMap<u32, Namespace>,
    /// Namespaces of whose change each controller's host has not read yet.
    changed: BTreeMap<u16, BTreeSet<u32>>,
}

impl Model {
    fn change(&mut self, nsid: u32, controllers: &BTreeSet<u16>) {
        for id in controllers {
            self.changed.entry(*id).or_default().insert(nsid);
        }
    }

    fn active(&self, id: u16) -> Vec<u32> {
        self.namespaces.iter().filter(|(_, n)| n.attached.contains(&id)).map(|(&nsid, _)| nsid).collect()
    }
}

struct World {
    hosts: BTreeMap<u16, Host>,
    model: Model,
    random: Random,
}

fn host_at(ssd: Arc<Ssd>) -> Host {
    let mut host = Host::attach(ssd);
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

fn words(page: &[u8], bytes: usize) -> Vec<u32> {
    let word = |entry: &[u8]| entry.iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
    page.chunks_exact(bytes).map(word).collect()
}

fn named(page: &[u8]) -> Vec<u32> {
    words(page, 4).into_iter().take_while(|&nsid| nsid != 0).collect()
}

impl World {
    fn some_host(&mut self) -> u16 {
        let ids: Vec<u16> = self.hosts.keys().copied().collect();
        self.random.pick(&ids)
    }

    fn some_hosts(&mut self) -> BTreeSet<u16> {
        let ids: Vec<u16> = self.hosts.keys().copied().collect();
        let count = 1 + self.random.below(ids.len() as u64);
        (0..count).map(|_| self.random.pick(&ids)).collect()
    }

    fn some_nsid(&mut self) -> u32 {
        1 + self.random.below(NAMESPACES.into()) as u32
    }

    fn host(&mut self, id: u16) -> &mut Host {
        self.hosts.get_mut(&id).expect("a host")
    }

    fn send(&mut self, id: u16, mut sqe: Sqe, data: &[u8]) -> Result<u64, Status> {
        let host = self.host(id);
        host.memory.fill(DATA, 4096, 0);
        host.memory.write(DATA, data);
        host.set_prps(&mut sqe, DATA, 4096);
        host.admin(sqe)
    }

    fn access(&mut self) {
        let (id, nsid, block) = (self.some_host(), self.some_nsid(), self.random.below(BLOCKS));
        let (writes, byte) = (self.random.below(2) == 0, self.random.next() as u8);
        let seen = self.model.namespaces.get_mut(&nsid).filter(|n| n.attached.contains(&id));
        let host = self.hosts.get_mut(&id).expect("a host");
        let bytes = seen.as_ref().map_or(512, |n| 1 << n.block_shift);
        let (opcode, offset) = if writes { (WRITE, SOURCE) } else { (READ, DATA) };
        host.memory.fill(offset, bytes, if writes { byte } else { !byte });
        let mut command = Sqe { cdw10: block as u32, ..sqe(opcode, nsid) };
        host.set_prps(&mut command, offset, bytes);
        let done = host.io(command);
        let Some(namespace) = seen else {
            return assert_eq!(done, Err(Status::INVALID_FIELD), "controller {id}, namespace {nsid}");
        };
        assert_eq!(done, Ok(0), "controller {id}, namespace {nsid}");
        let expected = &mut namespace.data[block as usize];
        match writes {
            true => *expected = byte,
            false => assert_eq!(host.bytes(DATA, bytes), vec![*expected; bytes], "{nsid}: block {block}"),
        }
    }

    fn create(&mut self) {
        let id = self.some_host();
        let (nmic, shift) = (self.random.below(2) as u8, self.random.pick(&[9u32, 12]));
        let free = (1..=NAMESPACES).find(|nsid| !self.model.namespaces.contains_key(nsid));
        let Some(nsid) = free else { return };
        let blocks = (2u64 << 20) >> shift;
        let mut data = [0; 31];
        data[0..8].copy_from_slice(&blocks.to_le_bytes());
        data[8..16].copy_from_slice(&blocks.to_le_bytes());
        (data[26], data[30]) = (u8::from(shift == 12), nmic);
        assert_eq!(self.send(id, sqe(0x0d, 0), &data), Ok(nsid.into()));
        let new = Namespace {
            block_shift: shift,
            bytes: 2 << 20,
            is_private: nmic == 0,
            attached: BTreeSet::new(),
            data: [0; BLOCKS as usize],
        };
        self.model.namespaces.insert(nsid, new);
    }

    fn attach_or_detach(&mut self) {
        let (id, nsid, attaches) = (self.some_host(), self.some_nsid(), self.random.below(3) > 0);
        let mut list = self.some_hosts();
        if self.random.below(20) == 0 {
            list.insert(9);
        }
        let is_valid = list.iter().all(|id| self.hosts.contains_key(id));
        let data: Vec<u8> =
            [list.len() as u16].iter().chain(&list).flat_map(|word| word.to_le_bytes()).collect();
        let done = self.send(id, Sqe { cdw10: u32::from(!attaches), ..sqe(0x15, nsid) }, &data);
        let Some(namespace) = self.model.namespaces.get_mut(&nsid) else {
            return assert_eq!(done, Err(Status::INVALID_FIELD));
        };
        let expected = if !is_valid {
            Err(Status::CONTROLLER_LIST_INVALID)
        } else if attaches && !namespace.attached.is_disjoint(&list) {
            Err(Status::NAMESPACE_ALREADY_ATTACHED)
        } else if attaches && namespace.is_private && namespace.attached.len() + list.len() > 1 {
            Err(Status::NAMESPACE_IS_PRIVATE)
        } else if !attaches && !list.is_subset(&namespace.attached) {
            Err(Status::NAMESPACE_NOT_ATTACHED)
        } else {
            Ok(0)
        };
        assert_eq!(done, expected, "{list:?} and {:?}", namespace.attached);
        if done.is_ok() {
            match attaches {
                true => namespace.attached.extend(&list),
                false => namespace.attached.retain(|id| !list.contains(id)),
            }
            self.model.change(nsid, &list);
        }
    }

    fn erase(&mut self) {
        let (id, nsid, deletes) = (self.some_host(), self.some_nsid(), self.random.below(3) == 0);
        let shift = self.random.pick(&[9u32, 12]);
        let command = match deletes {
            true => Sqe { cdw10: 1, ..sqe(0x0d, nsid) },
            false => Sqe { cdw10: u32::from(shift == 12), ..sqe(0x80, nsid) },
        };
        let done = self.host(id).admin(command);
        let Some(namespace) = self.model.namespaces.get_mut(&nsid) else {
            return assert_eq!(done, Err(Status::INVALID_FIELD));
        };
        assert_eq!(done, Ok(0));
        let attached = namespace.attached.clone();
        let is_news = deletes || namespace.block_shift != shift;
        (namespace.block_shift, namespace.data) = (shift, [0; BLOCKS as usize]);
        if deletes {
            self.model.namespaces.remove(&nsid);
        }
        if is_news {
            self.model.change(nsid, &attached);
        }
    }

    fn look(&mut self) {
        let (id, nsid) = (self.some_host(), self.some_nsid());
        let present: Vec<u32> = self.hosts.keys().map(|&id| id.into()).collect();
        let host = self.hosts.get_mut(&id).expect("a host");
        assert_eq!(named(&identify(host, 0x02, 0)), self.model.active(id), "controller {id}");
        let list = |page: Vec<u8>| {
            let entries = words(&page, 2);
            entries[1..=entries[0] as usize].to_vec()
        };
        assert_eq!(list(identify(host, 0x13, 0)), present);
        if let Some(namespace) = self.model.namespaces.get(&nsid) {
            let attached: Vec<u32> = namespace.attached.iter().map(|&id| id.into()).collect();
            assert_eq!(list(identify(host, 0x12, nsid)), attached, "namespace {nsid}");
            let page = identify(host, 0x11, nsid);
            let blocks = u64::from_le_bytes(page[..8].try_into().unwrap());
            assert_eq!(
                (blocks << namespace.block_shift, page[30] == 0),
                (namespace.bytes, namespace.is_private)
            );
        }
        let page = host.admin_in(Sqe { cdw10: 0x03ff_0004, ..sqe(0x02, 0) }, 4096).unwrap();
        let expected: Vec<u32> = self.model.changed.remove(&id).unwrap_or_default().into_iter().collect();
        assert_eq!(named(&page), expected, "what controller {id} has not heard of");
    }

    fn come_or_go(&mut self) {
        let id = self.some_host();
        match self.random.below(4) {
            0 | 1 if self.hosts.len() <= OTHERS => {
                let ssd = self.host(id).ssd.add_controller().unwrap();
                let new = ssd.controller_id();
                let free = (1..).find(|id| !self.hosts.contains_key(id));
                assert_eq!(Some(new), free);
                for namespace in self.model.namespaces.values_mut().filter(|n| !n.is_private) {
                    if namespace.attached.contains(self.hosts.keys().next().unwrap()) {
                        namespace.attached.insert(new);
                    }
                }
                self.hosts.insert(new, host_at(ssd));
            }
            2 if id != 0 => {
                self.hosts.remove(&id);
                self.model.changed.remove(&id);
                for namespace in self.model.namespaces.values_mut() {
                    namespace.attached.remove(&id);
                }
            }
            _ => {
                let host = self.hosts.get_mut(&id).expect("a host");
                if self.model.namespaces.len().is_multiple_of(2) {
                    host.disable();
                } else {
                    host.ssd.reset().unwrap();
                }
                host.enable();
                host.create_queue_pair(1, 64);
                self.model.changed.remove(&id);
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..60 => self.access(),
            60..66 => self.create(),
            66..82 => self.attach_or_detach(),
            82..86 => self.erase(),
            86..96 => self.look(),
            _ => self.come_or_go(),
        }
    }
}

#[test]
fn hosts_of_several_controllers_see_what_a_model_says() {
    let random = Random::from_environment();
    let ssd = device(SsdConfig { namespaces: Vec::new(), ..config(512) });
    assert!(u64::from(NAMESPACES) * (2 << 20) <= MEDIA_BYTES);
    // From now on namespaces say whether they can be shared.
    drop(ssd.add_controller().unwrap());
    let hosts = BTreeMap::from([(0, host_at(ssd))]);
    let mut world = World { hosts, model: Model::default(), random };
    (0..STEPS).for_each(|_| world.step());
}
