//! A database of crate `rocksdb` on an NVMe device: RocksDB's shared library, and unvme's file system under
//! it. The crate knows no file system but the kernel's; RocksDB does, by the text of an option.

use std::error::Error;
use std::fs;
use std::path::Path;

use libloading::Library;
use rocksdb::{Cache, DB, Env, IteratorMode, Options};

/// What `Options::load_latest` reads: everything is as it is by default but where files are.
const OPTIONS: &str = "\
[Version]
  rocksdb_version=7.8.3
  options_file_version=1.1
[DBOptions]
  env={id=URI}
  create_if_missing=true
[CFOptions \"default\"]
";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, uri] = &arguments[..] else {
        return Err("usage: unvme-rocksdb-example LIBRARY URI, such as target/rocksdb/librocksdb_unvme.so \
                    unvme://mem:block:1G"
            .into());
    };
    // SAFETY: what the library does when it is loaded is to tell RocksDB of unvme://.
    let library = unsafe { Library::new(library) }?;
    // Threads of its own are behind the file system: it stays until the end.
    std::mem::forget(library);
    let options = options(uri)?;

    let db = DB::open(&options, "/base")?;
    for (name, born) in [("Ada", "1815"), ("Grace", "1906"), ("Barbara", "1928"), ("Frances", "1932")] {
        db.put(name, born)?;
    }
    db.delete("Frances")?;
    db.flush()?;
    let born = db.get("Ada")?.ok_or("Ada is not there")?;
    println!("Ada was born in {}", String::from_utf8(born)?);
    for entry in db.iterator(IteratorMode::Start) {
        let (name, born) = entry?;
        println!("{} {}", String::from_utf8_lossy(&name), String::from_utf8_lossy(&born));
    }
    for file in db.live_files()? {
        println!("/base{}: {} bytes, {} entries", file.name, file.size, file.num_entries);
    }
    Ok(())
}

/// Options with the file system of a URI.
fn options(uri: &str) -> Result<Options, Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("unvme-rocksdb-example-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let loaded = load(&folder, uri);
    fs::remove_dir_all(&folder)?;
    loaded
}

fn load(folder: &Path, uri: &str) -> Result<Options, Box<dyn Error>> {
    fs::write(folder.join("OPTIONS-000001"), OPTIONS.replace("URI", uri))?;
    let cache = Cache::new_lru_cache(64 << 20)?;
    let (options, _) = Options::load_latest(folder, Env::new()?, false, cache)?;
    Ok(options)
}
