//! A process that shares a drive and does anything: registers, doorbells, entries of the admin queue, memory
//! that comes and goes. The holder never notices, and nothing of the client is left.
//!
//! Input: operations of 8 bytes, an operation (byte 0), a place (byte 1 and 2) and a value; operation 0 is
//! followed by the 64 bytes of an entry.
#![no_main]

use std::sync::atomic::Ordering;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use unvme_bus::function::DmaAddressing;
use unvme_bus::{Clock, Dma, DmaAccess, Function, Region};
use unvme_driver::{Controller, ControllerOptions, QueueOptions, Sharing};
use unvme_ssd::{MemoryStore, Ssd, SsdConfig};

const MEMORY_BYTES: usize = 256 << 10;

fuzz_target!(|data: &[u8]| {
    let config = SsdConfig::block(4 << 20, 512);
    let store = MemoryStore::new(config.store_bytes().unwrap()).unwrap();
    let clock = Clock::manual();
    let options = ControllerOptions { clock: clock.clone(), io_queues: 8, ..ControllerOptions::default() };
    let holder = Controller::open(Ssd::new(config, Box::new(store)).unwrap(), options).unwrap();
    let sharing = Sharing::new(&holder).unwrap();
    let client = sharing.share().unwrap();
    let DmaAddressing::Chosen(window) = client.dma_addressing() else { unreachable!() };
    let memory = Region::shared("client", MEMORY_BYTES).unwrap();
    client.dma_map(window.start, &memory, DmaAccess::READ_WRITE).unwrap();
    let page = client.bar(0).unwrap().unwrap().windows[0].region.clone();
    // A controller that is enabled, which random registers would seldom reach.
    client.bar_write(0, 0x24, &0x000f_000f_u32.to_le_bytes()).unwrap();
    client.bar_write(0, 0x28, &window.start.to_le_bytes()).unwrap();
    client.bar_write(0, 0x30, &(window.start + 4096).to_le_bytes()).unwrap();
    client.bar_write(0, 0x14, &0x0046_0001_u32.to_le_bytes()).unwrap();
    let (mut data, mut tail) = (data, 0);
    while let Some((&[what, low, high, spare, value @ ..], rest)) = data.split_first_chunk::<8>() {
        data = rest;
        let (place, value) = (usize::from(u16::from_le_bytes([low, high])), u32::from_le_bytes(value));
        match what % 8 {
            0 => {
                let Some((entry, rest)) = data.split_first_chunk::<64>() else { break };
                data = rest;
                memory.write(tail * 64, entry);
                tail = (tail + 1) % 16;
                page.store_u32(0, tail as u32, Ordering::Release);
            }
            1 => page.store_u32(place % (page.len() / 4) * 4, value, Ordering::Release),
            2 => drop(client.bar_write(0, (place % 0x1000) as u64 & !3, &value.to_le_bytes())),
            3 => drop(client.dma_unmap(window.start, MEMORY_BYTES as u64)),
            4 => drop(client.dma_map(window.start, &memory, DmaAccess::READ_WRITE)),
            5 => client.reset().unwrap(),
            6 => drop(client.config_write(place % 4096, &[spare])),
            _ => clock.advance(Duration::from_millis(u64::from(spare))),
        }
        client.advance(None, &clock);
    }
    drop(client);
    assert_eq!(holder.epoch(), 1, "the drive is never reset for it");
    let queues: Vec<_> = (0..holder.queues_max())
        .map(|_| holder.create_queue(&QueueOptions { depth: 2, ..QueueOptions::default() }))
        .collect();
    assert!(queues.iter().all(Result::is_ok), "all identifiers are free again");
});
