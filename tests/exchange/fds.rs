//! File descriptors between ranks.

use std::fs::File;
use std::io::{IoSlice, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpucomm::Error;
use gpucomm::exchange::{Exchange, FdSocket, MAX_FDS};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketType, connect, sendmsg, socket,
};

use crate::processes::{Child, ROLE, all_succeed, kill, line, spawn};
use crate::support::{everywhere, new_path, slower, where_ends_are_known};

/// A file in memory that holds a text.
fn memory(text: &str) -> File {
    let fd = rustix::fs::memfd_create("gpucomm-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(fd);
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn text(fd: OwnedFd) -> String {
    let (mut file, mut text) = (File::from(fd), String::new());
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// The socket of the only rank there is in a directory.
fn socket_in(directory: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(directory).unwrap();
    entries
        .find_map(|entry| Some(entry.ok()?.path()).filter(|path| path.extension().is_some_and(|end| end == "sock")))
        .unwrap()
}

#[test]
fn each_to_each() {
    let directory = std::env::temp_dir();
    everywhere(&[1, 4], |x| {
        let post = FdSocket::new(&x, &directory).unwrap();
        for round in 0..5 {
            for to in 0..x.size() {
                let files = [0, 1, 2].map(|at| memory(&format!("{round} {at} from {} to {to}", x.rank())));
                post.send(to, "memory", &files.each_ref().map(|file| file.as_fd())).unwrap();
                post.send(to, "more", &[memory("more").as_fd()]).unwrap();
            }
            for from in (0..x.size()).rev() {
                assert_eq!(post.receive(from, "more").unwrap().into_iter().map(text).collect::<Vec<_>>(), ["more"]);
                let texts: Vec<String> = post.receive(from, "memory").unwrap().into_iter().map(text).collect();
                assert_eq!(texts, [0, 1, 2].map(|at| format!("{round} {at} from {from} to {}", x.rank())));
            }
        }
        // In the order in which they were sent, though nobody looked in between.
        for at in 0..20 {
            post.send(0, "order", &[memory(&at.to_string()).as_fd()]).unwrap();
        }
        for at in 0..if x.rank() == 0 { 20 } else { 0 } {
            for from in 0..x.size() {
                assert_eq!(text(post.receive(from, "order").unwrap().remove(0)), at.to_string());
            }
        }
        x.barrier().unwrap();
    });
}

#[test]
fn what_cannot_be() {
    let directory = std::env::temp_dir();
    everywhere(&[2], |x| {
        let post = FdSocket::new(&x, &directory).unwrap();
        let file = memory("x");
        let fd = file.as_fd();
        let many: Vec<BorrowedFd<'_>> = vec![fd; MAX_FDS + 1];
        for error in [
            post.send(0, "none", &[]),
            post.send(0, "many", &many),
            post.send(2, "rank", &[fd]),
            post.send(0, &"long".repeat(100), &[fd]),
            post.receive(2, "rank").map(drop),
        ] {
            assert!(matches!(error, Err(Error::InvalidArgument { .. })), "{error:?}");
        }
        post.send(1 - x.rank(), "most", &many[..MAX_FDS]).unwrap();
        assert_eq!(post.receive(1 - x.rank(), "most").unwrap().len(), MAX_FDS);
        x.barrier().unwrap();
        let error = FdSocket::new(&x, "x".repeat(100)).unwrap_err();
        assert!(error.to_string().contains("a socket's path of at most 107 bytes"), "{error}");
        let error = FdSocket::new(&x, "/no/such/directory").unwrap_err();
        assert!(
            matches!(&error, Error::Exchange { operation: "FdSocket::new", key, .. } if key.starts_with("/no/such")),
            "{error}"
        );
        // Where one rank has no socket the others learn it, and all are in step after that.
        let own = if x.rank() == 0 { Path::new("/no/such/directory") } else { &*directory };
        let error = FdSocket::new(&x, own).unwrap_err();
        assert!(x.rank() == 0 || error.to_string().contains("got 0 bytes that are none"), "{error}");
        assert_eq!(x.all_gather(&[x.rank() as u8]).unwrap(), [[0], [1]]);
    });
}

#[test]
fn late_and_wrong_peers() {
    let directory = std::env::temp_dir();
    where_ends_are_known(&[3], |x| {
        let post = FdSocket::new(&x.with_timeout(slower(1.0)), &directory).unwrap();
        x.barrier().unwrap();
        match x.rank() {
            0 => {
                let start = Instant::now();
                let error = post.receive(1, "memory").unwrap_err();
                assert!(matches!(error, Error::Timeout { operation: "FdSocket::receive", .. }), "{error}");
                let text = error.to_string();
                assert!(text.contains("rank 1 has not sent \"memory\"; rank 2 has sent \"other\""), "{text}");
                assert!(start.elapsed() < slower(4.0), "{:?}", start.elapsed());
                // What came is kept.
                post.receive(2, "other").unwrap();
            }
            2 => post.send(0, "other", &[memory("x").as_fd()]).unwrap(),
            _ => {}
        }
        x.barrier().unwrap();
        if x.rank() == 1 {
            // The last words are heard, and then no more.
            post.send(0, "last", &[memory("words").as_fd()]).unwrap();
            return;
        }
        if x.rank() == 0 {
            assert_eq!(text(post.receive(1, "last").unwrap().remove(0)), "words");
            let patient = x.with_timeout(slower(20.0));
            assert!(matches!(patient.barrier().unwrap_err(), Error::Departed { rank: 1, .. }));
            let error = post.receive(1, "never").unwrap_err();
            assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error}");
            let error = post.send(1, "never", &[memory("x").as_fd()]).unwrap_err();
            assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error}");
        }
        let rest = x.survivors().unwrap();
        rest.barrier().unwrap();
    });
}

/// Connects to a socket, and says what it is told to.
fn say(path: &Path, bytes: &[u8]) -> rustix::io::Result<OwnedFd> {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    if !bytes.is_empty() {
        sendmsg(&socket, &[IoSlice::new(bytes)], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?;
    }
    Ok(socket)
}

#[test]
fn strangers() {
    let directory = new_path();
    std::fs::create_dir(&directory).unwrap();
    everywhere(&[1], |x| {
        let post = FdSocket::new(&x.with_timeout(Duration::from_millis(150)), &directory).unwrap();
        let path = socket_in(&directory);
        // The socket may be looked at later than one deadline.
        let give_up = Instant::now() + slower(20.0);
        let refused = |what: &str| loop {
            let error = post.receive(0, "memory").unwrap_err().to_string();
            if error.contains(&format!("refused: {what}")) {
                break;
            }
            assert!(Instant::now() < give_up, "{error}");
        };
        say(&path, b"garbage").unwrap();
        refused("expected a message of a rank, got 7 bytes that are none");
        // What is right but for the number that only ranks know.
        let mut message = b"gpucommF".to_vec();
        message.extend([7; 8]);
        message.extend([0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0]);
        message.extend(b"memory");
        message.extend([0; 4]);
        say(&path, &message).unwrap();
        refused("expected a rank of this exchange, got one of another that says \"memory\"");
        // A later refusal does not hide an earlier one.
        refused("expected a message of a rank, got 7 bytes that are none");
        say(&path, &[0; 5000]).unwrap();
        let silent: Vec<OwnedFd> = (0..100).map(|_| say(&path, b"").unwrap()).collect();
        post.send(0, "memory", &[memory("through").as_fd()]).unwrap();
        let through = loop {
            match post.receive(0, "memory") {
                Ok(mut through) => break through.remove(0),
                Err(error) => assert!(Instant::now() < give_up, "{error}"),
            }
        };
        assert_eq!(text(through), "through");
        drop(silent);

        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
            std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["processes::child", "--exact", "--ignored", "--nocapture"]).uid(65534).stdout(Stdio::null());
            command.env(ROLE, format!("stranger|unix|{}|0|1", path.display()));
            match command.status() {
                Ok(status) => {
                    assert!(status.success(), "{status}");
                    refused("expected a process of user 0, got one of user 65534");
                }
                Err(error) => println!("another user cannot run this program: {error}"),
            }
        }
        drop(post);
        assert!(!path.exists());
    });
    std::fs::remove_dir(&directory).unwrap();
}

/// The body of a process of another user.
pub fn stranger(path: &str) {
    say(Path::new(path), b"gpucommF").unwrap();
}

/// The body of a process that passes descriptors round; rank 1 of three is killed in the end.
pub fn between_processes(x: &Exchange, place: &str) {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let post = FdSocket::new(x, place).unwrap();
    let (next, before) = ((x.rank() + 1) % x.size(), (x.rank() + x.size() - 1) % x.size());
    let mut counts = Vec::new();
    for round in 0..50 {
        let file = memory(&format!("{round} of process {}", std::process::id()));
        post.send(next, "memory", &[file.as_fd(), file.as_fd()]).unwrap();
        let mut fds = post.receive(before, "memory").unwrap();
        // What this one writes the other sees: it is the same memory.
        assert!(text(fds.remove(0)).starts_with(&format!("{round} of process ")));
        File::from(fds.remove(0)).write_all(b" seen").unwrap();
        x.barrier().unwrap();
        assert_eq!(text(file.into()), format!("{round} of process {} seen", std::process::id()));
        counts.push(open());
    }
    assert_eq!(counts[49], counts[5], "descriptors stay open: {counts:?}");
    println!("!ready");
    if x.rank() == 1 {
        std::thread::sleep(slower(60.0));
    }
    if x.rank() == 2 {
        let error = post.receive(1, "memory").unwrap_err();
        assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error}");
    }
    x.survivors().unwrap().barrier().unwrap();
}

#[test]
fn processes() {
    let path = new_path();
    std::fs::create_dir(&path).unwrap();
    let mut children: Vec<Child> =
        (0..3).map(|rank| spawn("fds", ("directory", path.to_str().unwrap()), rank, 3)).collect();
    for child in &mut children {
        assert_eq!(line(child), "ready");
    }
    kill(&mut children[1]);
    children.remove(1);
    all_succeed(children);
    // That of the one that was killed is gone, too.
    std::fs::remove_dir(&path).unwrap();
}
