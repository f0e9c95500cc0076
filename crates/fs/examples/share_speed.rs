//! How long a call to a server takes: `cargo run --release -p unvme-fs --example share_speed`.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use std::sync::Arc;
use std::time::Instant;

use unvme::{Nsid, OpenOptions, open};
use unvme_fs::calls::{At, OpenId, Processes, Reply, Request};
use unvme_fs::share::{Client, Identity, Server, ServerOptions};
use unvme_fs::{CacheOptions, Credentials, FileSystem, MakeOptions, MountOptions, make};

const CALLS: u32 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = open("mem:block:64M", &OpenOptions::default())?;
    let block = device.block(Nsid(1))?;
    make(&block, device.name(), &MakeOptions::default(), |_, _| ())?;
    let cache = CacheOptions { is_shared: true, ..CacheOptions::default() };
    let options = MountOptions { cache, ..MountOptions::default() };
    let processes = Processes::new(FileSystem::mount(&block, device.name(), &options)?);
    let here = processes.enter(0, Credentials::root());
    let socket = std::env::temp_dir().join(format!("unvme-share-speed-{}", std::process::id()));
    let server = Server::start(processes, &socket, &ServerOptions::default())?;
    let client = Client::connect(&socket, Identity::own())?;
    let at = At { base: OpenId::ROOT, path: b"file", follows: true };
    let opened = client.call(&Request::Open { at, flags: 0o102, mode: 0o644 }, &[], &mut [])?;
    let Reply::Opened(open, ..) = opened else { return Err("not opened".into()) };
    client.call(&Request::Write { open, offset: 0 }, &[7; 4096], &mut [])?;
    let mut page = [0; 4096];
    let per_call = |start: Instant| start.elapsed().as_nanos() / u128::from(CALLS);
    for _ in 0..3 {
        let start = Instant::now();
        for _ in 0..CALLS {
            client.ping()?;
        }
        let empty = per_call(start);
        let start = Instant::now();
        for _ in 0..CALLS {
            client.call(&Request::Read { open, offset: 0 }, &[], &mut page)?;
        }
        let asked = per_call(start);
        let watched = client.watch(open)?;
        let start = Instant::now();
        for _ in 0..CALLS {
            watched.read(0, &mut page).ok_or("not there")?;
        }
        let mapped = per_call(start);
        let node = here.fs().root()?.lookup(b"file", &Credentials::root())?;
        let start = Instant::now();
        for _ in 0..CALLS {
            node.read_at(0, &mut page)?;
        }
        let own = per_call(start);
        println!(
            "empty call {empty} ns; 4 KiB read: by asking {asked}, without {mapped}, in-process {own} ns"
        );
    }
    drop((client, Arc::new(server)));
    Ok(())
}
