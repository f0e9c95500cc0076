//! Everything that can be seen of a file system.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use unvme_fs::{Credentials, FileSystem, FileType, Vnode};

/// Paths, and the bytes of files and links.
pub(crate) type Sight = BTreeMap<String, Option<Vec<u8>>>;

fn look(directory: &Vnode, path: &str, sight: &mut Sight) {
    let mut entries = Vec::new();
    let listed = directory.list(2, |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    });
    listed.expect("list");
    for entry in entries {
        let node = directory.lookup(&entry.name, &Credentials::root()).expect("lookup");
        let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        match entry.file_type {
            FileType::Directory => {
                sight.insert(path.clone(), None);
                look(&node, &path, sight);
            }
            FileType::Symlink => {
                sight.insert(path, Some(node.target().expect("target")));
            }
            _ => {
                let mut data = vec![0; node.attributes().size as usize];
                node.read_at(0, &mut data).expect("read");
                sight.insert(path, Some(data));
            }
        }
    }
}

pub(crate) fn sight(fs: &FileSystem) -> Sight {
    let mut sight = Sight::new();
    look(&fs.root().expect("root"), "", &mut sight);
    sight
}
