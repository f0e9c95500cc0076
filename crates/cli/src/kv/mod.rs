//! `unvme kv`: pairs of a key-value namespace, one command at a time.
//!
//! | module | concept |
//! |---|---|
//! | `place` | which device, namespace and keyspace; keys as typed |
//! | `pairs` | `store`, `append`, `retrieve`, `delete`, `exist` |
//! | `list` | `list` |
//! | `batch` | `batch`: many stores and deletes from a file |
//! | [`nvme`] | `kv_nvme`, the guide's command, whose iterators live over its invocations |

mod batch;
mod list;
pub(crate) mod nvme;
mod pairs;
mod place;

use clap::Subcommand;

use crate::cmd::commands;

commands! {
/// Commands on pairs.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A key is text, or hexadecimal with --key-hex. Keys of 1 to 16 bytes go by the Key Value Command
Set, longer ones and the second keyspace by the vendor commands of Samsung's KV SSDs, where the
device has them.

Examples:
  unvme device create 0000:02:00.0 --type kv --size 1G
  unvme kv store 0000:02:00.0 user:1 Ada
  unvme kv retrieve 0000:02:00.0 user:1
  unvme kv list 0000:02:00.0 --prefix user:
  unvme kv delete 0000:02:00.0 user:1")]
pub(crate) enum Command {
    /// Store a pair
    Store(pairs::Store),
    /// Retrieve a value to a file or standard output
    Retrieve(pairs::Retrieve),
    /// Delete a pair
    Delete(pairs::Delete),
    /// Ask whether a key exists
    Exist(pairs::Exist),
    /// List keys
    List(list::List),
    /// Add to the end of a value
    Append(pairs::Append),
    /// Store and delete many pairs from a file or standard input
    Batch(batch::Batch),
}
}
