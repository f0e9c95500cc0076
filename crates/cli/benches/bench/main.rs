//! `make bench`: what the SDK costs, each figure beside its target.
//!
//! Every ratio is taken within one run, its two sides interleaved (A B A B), and is the median of the pairs'
//! ratios. The figures are measurements, not tests: a row below its target is printed as such and the exit
//! code stays 0.
//!
//! | module | concept |
//! |---|---|
//! | `row` | a figure, its target, and how the table and `target/bench.json` show it |
//! | `pairs` | interleaved measurement, medians |
//! | `load` | a device, and the loop that an application would run on it |
//! | `bare` | the loops without a device that it is compared with |
//! | `cores` | pinning, and what a cache line costs between two cores |
//! | `allocs` | an allocator that counts |
//! | `kv_load` | a key-value device, and its loop |
//! | `delayed` | a device that is as slow as flash |
//! | `peer` | programs in C that a row compares with |
//! | `tcp_bare` | what sockets alone can do |
//! | `fs_load` | a file system, its loops and the kernel's |
//! | `fs`, `fs_programs` | the rows of files, by calls and by way of programs |
//! | `block`, `atomic`, `vfio_user`, `tcp`, `wall`, `ftl`, `flash` | the rows |
//! | `kv`, `kv_rocksdb`, `kv_session`, `kv_memory` | those of pairs |
//! | `handle` | those of handles: what keeps one apart from another, and what waiting costs |
//! | `fio` | those of fio with our engine |
//! | `rocksdb` | those of RocksDB on files and on pairs |
//! | `preload`, `preload_db` | those of programs and databases by the preload library |
#![deny(unsafe_code)]

mod allocs;
mod atomic;
mod bare;
mod block;
mod cores;
mod delayed;
mod fio;
mod flash;
mod fs;
mod fs_load;
mod fs_programs;
mod ftl;
mod handle;
mod kv;
mod kv_load;
mod kv_memory;
mod kv_rocksdb;
mod kv_session;
mod load;
mod pairs;
mod peer;
mod preload;
mod preload_db;
mod rocksdb;
mod row;
mod tcp;
mod tcp_bare;
mod vfio_user;
mod wall;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::pairs::Effort;
use crate::row::Row;

/// A row's identifier and what measures it.
type Bench = (&'static str, fn(&Effort) -> Result<Row>);

const BENCHES: [Bench; 84] = [
    (block::READ, block::read),
    (block::WRITE, block::write),
    (atomic::WRITE, atomic::write),
    (block::NULL_RATE, block::null_rate),
    (block::TWO_CORES, block::two_cores),
    (block::QD1, block::qd1),
    (vfio_user::READ, vfio_user::read),
    (block::ALLOCS, block::allocs),
    (flash::CHECKED_READ, flash::checked_read),
    (flash::CHECKED_WRITE, flash::checked_write),
    (kv::RETRIEVE, kv::retrieve),
    (kv::STORE, kv::store),
    (kv::SMALL, kv::small),
    (kv_rocksdb::READ, kv_rocksdb::read),
    (kv_rocksdb::WRITE, kv_rocksdb::write),
    (kv::TWO_CORES, kv::two_cores),
    (kv_session::CAPI, kv_session::capi),
    (kv_session::CACHE, kv_session::cache),
    (kv_session::CACHE_SLOW, kv_session::cache_slow),
    (kv_memory::INDEX, kv_memory::index),
    (kv_memory::REOPEN, kv_memory::reopen),
    (kv_memory::REOPEN_KILLED, kv_memory::reopen_killed),
    (kv_memory::REOPEN_BYTES, kv_memory::reopen_bytes),
    (flash::READ_COST, flash::read_cost),
    (flash::WRITE_COST, flash::write_cost),
    (ftl::RECIPE_A, ftl::recipe_a),
    (ftl::RECIPE_B, ftl::recipe_b),
    (ftl::SIM_RATE, ftl::sim_rate),
    (wall::ERROR, wall::error),
    (handle::ISOLATION, handle::isolation),
    (handle::HYBRID, handle::hybrid),
    (tcp::QD1, tcp::qd1),
    (tcp::READ, tcp::read),
    (tcp::WRITE, tcp::write),
    (tcp::BIG, tcp::big),
    (tcp::BIG_WRITE, tcp::big_write),
    (tcp::HUGE, tcp::huge),
    (tcp::HUGE_WRITE, tcp::huge_write),
    (tcp::KV, tcp::kv),
    (tcp::VS_LOCAL, tcp::vs_local),
    (tcp::IDLE, tcp::idle),
    (fs::READ, fs::read),
    (fs::WRITE, fs::write),
    (fs::TWO_CORES_READ, fs::two_cores_read),
    (fs::TWO_CORES_WRITE, fs::two_cores_write),
    (fs::TWO_CORES_CREATE, fs::two_cores_create),
    (fs::HIT, fs::hit),
    (fs::HOT, fs::hot),
    (fs::CREATE, fs::create),
    (fs::UNLINK, fs::unlink),
    (fs::STAT, fs::stat),
    (fs::FSYNC, fs::fsync),
    (fs::MOUNT, fs::mount),
    (fs_programs::FUSE, fs_programs::fuse),
    (fs_programs::BLOBFS, fs_programs::blobfs),
    (fio::NULL, fio::null),
    (fio::READ, fio::read),
    (fio::QD1, fio::qd1),
    (fio::URING, fio::uring),
    (fio::KV, fio::kv),
    (rocksdb::FILLSEQ, rocksdb::fillseq),
    (rocksdb::FILLRANDOM, rocksdb::fillrandom),
    (rocksdb::OVERWRITE, rocksdb::overwrite),
    (rocksdb::FILLSYNC, rocksdb::fillsync),
    (rocksdb::HIT, rocksdb::hit),
    (rocksdb::BUFFERED, rocksdb::buffered),
    (rocksdb::DIRECT, rocksdb::direct),
    (rocksdb::WHILE_WRITING, rocksdb::while_writing),
    (rocksdb::SEEK, rocksdb::seek),
    (rocksdb::SEQUENTIAL, rocksdb::sequential),
    (rocksdb::MULTI, rocksdb::multi),
    (rocksdb::FDP, rocksdb::fdp),
    (rocksdb::KV_FILL, rocksdb::kv_fill),
    (rocksdb::KV_READ, rocksdb::kv_read),
    (rocksdb::KV_OVERWRITE, rocksdb::kv_overwrite),
    (preload::HIT, preload::hit),
    (preload::PASS, preload::pass),
    (preload::FSYNC, preload::fsync),
    (preload_db::SQLITE, preload_db::sqlite),
    (preload_db::YCSB_A, preload_db::ycsb_a),
    (preload_db::YCSB_C, preload_db::ycsb_c),
    (preload_db::WTPERF, preload_db::wtperf),
    (preload::SHARED_HIT, preload::shared_hit),
    (preload::SHARED_MISS, preload::shared_miss),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [flag, directory, bytes] if flag == fs_programs::SERVE => fs_programs::serve(directory, bytes),
        [flag, socket, core, bytes] if flag == vfio_user::SERVE => vfio_user::serve(socket, core, bytes),
        _ => run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let mut effort = Effort::full();
    let mut wanted: Vec<&str> = Vec::new();
    for argument in arguments {
        match argument.as_str() {
            // What `cargo bench` adds.
            "--bench" => {}
            "--smoke" => effort = Effort::smoke(),
            flag if flag.starts_with('-') => {
                bail!("{flag}: expected --smoke, or parts of the rows' names to run only those")
            }
            part => wanted.push(part),
        }
    }
    let chosen: Vec<&Bench> = BENCHES
        .iter()
        .filter(|(id, _)| wanted.is_empty() || wanted.iter().any(|part| id.contains(part)))
        .collect();
    if chosen.is_empty() {
        let ids = BENCHES.map(|(id, _)| id).join(", ");
        bail!("{}: no such row; there are {ids}", wanted.join(", "));
    }
    let mut out = std::io::stdout();
    Row::write_header(&mut out)?;
    let mut rows = Vec::new();
    let two_cores = cores::are_two()?;
    for (id, measure) in chosen {
        let needs_two = [block::TWO_CORES, vfio_user::READ, kv::TWO_CORES].contains(id)
            || id.starts_with("tcp.")
            || *id == handle::ISOLATION
            || id.starts_with("fs.two_cores")
            || *id == fs_programs::BLOBFS;
        if !two_cores && needs_two {
            writeln!(out, "{id:<25} skipped: it takes two cores, and this process may use one")?;
            continue;
        }
        let is_fio = id.starts_with("fio.");
        let obstacle = if is_fio { fio::obstacle() } else { None };
        let obstacle = obstacle.or_else(|| if *id == fio::URING { fio::no_loop() } else { None });
        let obstacle = obstacle.or_else(|| fs::obstacle(id)).or_else(|| fs_programs::obstacle(id));
        let obstacle = obstacle.or_else(|| rocksdb::obstacle(id)).or_else(|| preload::obstacle(id));
        let obstacle = obstacle.or_else(|| preload_db::obstacle(id));
        if let Some(reason) = obstacle {
            writeln!(out, "{id:<25} skipped: {reason}")?;
            continue;
        }
        let mut row = measure(&effort).context(*id)?;
        if effort.smoke {
            row.note.insert_str(0, "smoke run, too short to mean anything; ");
        }
        row.write(&mut out)?;
        rows.push(row);
    }
    if wanted.is_empty() {
        // Cargo gives benches a folder for their files in the target folder.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("find the target folder")?;
        let path = target.join("bench.json");
        row::save(&rows, &path)?;
        writeln!(out, "\n{}", path.display())?;
    }
    Ok(())
}
