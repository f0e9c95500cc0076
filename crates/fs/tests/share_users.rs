//! Clients of a shared file system that change their user: what one gave up does not come back.
//!
//! Root alone can run them; for other users they pass without a word.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tempfile::TempDir;
use unvme::{Nsid, OpenOptions, open};
use unvme_fs::calls::{At, OpenId, Processes, Reply, Request};
use unvme_fs::share::{Client, Forked, Identity, Server, ServerOptions};
use unvme_fs::{FileSystem, MakeOptions, MountOptions, make};

/// Set for child processes: an open file, and the inode number of a file that is root's alone.
const OPEN: &str = "UNVME_FS_SHARE_USERS_OPEN";
const SECRET: &str = "UNVME_FS_SHARE_USERS_SECRET";
const NOBODY: u32 = 65_534;

fn served() -> (Server, TempDir) {
    let device = open("mem:block:64M", &OpenOptions::default()).expect("a device");
    let block = device.block(Nsid(1)).expect("a namespace");
    make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("a file system");
    let fs = FileSystem::mount(&block, device.name(), &MountOptions::default()).expect("mounted");
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(Processes::new(fs), &folder.path().join("socket"), &ServerOptions::default());
    (server.expect("a server"), folder)
}

fn at(path: &[u8]) -> At<'_> {
    At { base: OpenId::ROOT, path, follows: true }
}

fn ask(client: &Client, request: &Request<'_>) -> Result<Reply, Errno> {
    client.call(request, &[], &mut []).map_err(|e| e.errno())
}

fn open_at(client: &Client, path: &[u8], flags: OFlags, mode: u32) -> Result<(OpenId, u64), Errno> {
    match ask(client, &Request::Open { at: at(path), flags: flags.bits(), mode })? {
        Reply::Opened(open, file, ..) => Ok((open, file.ino)),
        other => panic!("{other:?}"),
    }
}

fn identity(uid: u32) -> Identity {
    Identity { pid: std::process::id(), uid, gid: uid, groups: Vec::new() }
}

/// What the child does, as another user, with a connection that was root's; nothing when this is no child.
#[test]
fn child() {
    let Ok(opened) = std::env::var(OPEN) else { return };
    let number = |text: String| text.parse::<u64>().expect("a number");
    let (opened, secret) = (OpenId(number(opened)), number(std::env::var(SECRET).expect("said")));
    let fd = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    let client = Client::resume(Path::new("/nowhere"), Identity::own(), fd).expect("resumed");
    // What was open stays open, as with the kernel.
    let mut out = [0; 16];
    let read = client.call(&Request::Read { open: opened, offset: 0 }, &[], &mut out);
    assert_eq!(read.expect("read"), Reply::Number(6));
    assert_eq!(open_at(&client, b"secret", OFlags::RDONLY, 0).map(|_| ()), Err(Errno::ACCESS));
    assert_eq!(client.set_identity(identity(0)).map_err(|e| e.errno()), Err(Errno::PERM));
    let secret_now = Request::Open { at: at(b"secret"), flags: 0, mode: 0 };
    let as_root = client.call_as(&identity(0), &secret_now, &[], &mut []);
    assert_eq!(as_root.map_err(|e| e.errno()), Err(Errno::PERM));
    let adopted = ask(&client, &Request::Adopt { ino: secret, generation: None, flags: 0 });
    assert_eq!(adopted, Err(Errno::ACCESS), "a number leads past no directory");
    // The pages of the cache are of root's files, too.
    assert_eq!(client.watch(opened).map(drop).map_err(|e| e.errno()), Err(Errno::OPNOTSUPP));
    let (_, mine) = open_at(&client, b"open/mine", OFlags::WRONLY | OFlags::CREATE, 0o600).expect("its own");
    assert_ne!(mine, secret);
    // Who says that it is root again loses the connection, too.
    assert_eq!(client.change_user(identity(0)).map_err(|e| e.errno()), Err(Errno::PERM));
    assert_eq!(open_at(&client, b"open/mine", OFlags::RDONLY, 0).map(|_| ()), Err(Errno::IO));
    writeln!(std::io::stdout(), "\nnobody").expect("said");
}

#[test]
fn who_has_given_root_up_does_not_get_it_back_by_what_it_has_inherited() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (server, folder) = served();
    let client = Client::connect(&folder.path().join("socket"), Identity::own()).expect("connected");
    let new = OFlags::RDWR | OFlags::CREATE;
    let (_, secret) = open_at(&client, b"secret", new, 0o600).expect("opened");
    let (opened, _) = open_at(&client, b"opened", new, 0o600).expect("opened");
    client.call(&Request::Write { open: opened, offset: 0 }, b"opened", &mut []).expect("written");
    let directory = Request::Make { at: at(b"open"), mode: 0o040_777, rdev: 0, target: b"" };
    ask(&client, &directory).expect("made");
    let passed = client.prepare_fork().and_then(Forked::into_descriptor).expect("prepared");
    // By this name a user that may not enter the folder of the test program can run it.
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "child", "--nocapture"]).env(OPEN, opened.0.to_string());
    command.env(SECRET, secret.to_string()).uid(NOBODY).gid(NOBODY).current_dir("/");
    let mut child = command.stdin(passed).stdout(Stdio::piped()).spawn().expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let said: Vec<String> = lines.map(|line| line.expect("a line")).collect();
    assert!(child.wait().expect("waited for").success(), "{said:?}");
    assert!(said.iter().any(|line| line == "nobody"), "{said:?}");
    // The other users' clients have had no way to say that the server is gone.
    client.ping().expect("the server is there");
    drop(server);
}
