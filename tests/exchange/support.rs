//! Ranks of an exchange, in each of its forms.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use gpucomm::exchange::{C10dPlace, Directory, Exchange, Store, TcpPlace, TcpServer, Threads};

#[path = "../support/slower.rs"]
mod slower;

pub use slower::slower;

/// A form, and where its ranks meet.
#[derive(Clone)]
pub enum Place {
    Threads(Threads),
    Directory(PathBuf),
    Tcp(TcpPlace),
    /// At a server that is no rank.
    Hosted(Arc<TcpServer>),
    C10d(C10dPlace),
    /// As PyTorch 1.13 has it.
    OldC10d(C10dPlace),
}

/// What keeps a place, and takes it away in the end.
pub struct Site {
    pub name: &'static str,
    pub place: Place,
    pub size: usize,
}

impl Place {
    /// Whether a rank can wait for rank 0 to come with nothing but a store.
    pub fn without_rank_0(&self) -> bool {
        matches!(self, Self::Threads(_) | Self::Directory(_) | Self::Hosted(_))
    }

    /// Whether what ranks have set is there after rank 0 has ended.
    pub fn outlives_rank_0(&self) -> bool {
        matches!(self, Self::Threads(_) | Self::Directory(_) | Self::Hosted(_))
    }

    /// Whether it is known of a rank that it has ended.
    pub fn knows_ends(&self) -> bool {
        !matches!(self, Self::C10d(_) | Self::OldC10d(_))
    }

    /// Whether its keys can be listed, and so removed by what they begin with.
    pub fn lists_keys(&self) -> bool {
        !matches!(self, Self::OldC10d(_))
    }

    /// The store of one rank. That of rank 0 first, where it has the server.
    pub fn store(&self, rank: usize, size: usize) -> gpucomm::Result<Arc<dyn Store>> {
        Ok(match self {
            Self::Threads(threads) => Arc::new(threads.store(rank)?),
            Self::Directory(path) => Arc::new(Directory::open(path, rank, size)?),
            Self::Tcp(place) => Arc::new(place.store(rank, size)?),
            Self::Hosted(server) => {
                let place = TcpPlace::new(server.address().to_string()).with_timeout(slower(20.0));
                Arc::new(place.connect(rank, size)?)
            }
            Self::C10d(place) | Self::OldC10d(place) => Arc::new(place.store(rank, size)?),
        })
    }
}

/// A place of each form.
pub fn sites(size: usize) -> Vec<Site> {
    let threads = Site { name: "threads", place: Place::Threads(Threads::new(size)), size };
    let directory = Site { name: "directory", place: Place::Directory(new_path()), size };
    let tcp = Site { name: "TCP", place: Place::Tcp(TcpPlace::new(free_address()).with_timeout(slower(20.0))), size };
    let server = TcpPlace::new("127.0.0.1:0").host().expect("a server");
    let hosted = Site { name: "TCP, hosted", place: Place::Hosted(Arc::new(server)), size };
    let c10d = |place: C10dPlace| place.with_timeout(slower(20.0));
    let today = Place::C10d(c10d(C10dPlace::new(free_address()).with_prefix("p/")));
    let today = Site { name: "c10d", place: today, size };
    let old = Place::OldC10d(c10d(C10dPlace::new(free_address()).old_protocol()));
    let old = Site { name: "c10d as of 1.13", place: old, size };
    vec![threads, directory, tcp, hosted, today, old]
}

/// An address of this host at which nobody listens.
pub fn free_address() -> String {
    // Below the ports that the system gives to those who ask for any, so that nobody else gets it before us.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let process = u16::try_from(std::process::id() % 500).unwrap();
        let port = 12_000 + (process * 32 + NEXT.fetch_add(1, Ordering::Relaxed)) % 16_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
}

/// The path of a directory or file that nobody has.
pub fn new_path() -> PathBuf {
    std::env::temp_dir().join(format!("gpucomm-test-{}-{:016x}", std::process::id(), fastrand::u64(..)))
}

impl Drop for Site {
    fn drop(&mut self) {
        let Place::Directory(path) = &self.place else { return };
        let left: Vec<_> =
            std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
        let _ = std::fs::remove_dir_all(path);
        assert!(left.is_empty() || std::thread::panicking(), "left in the directory: {left:?}");
    }
}

impl Site {
    /// Runs `body` as every rank of `ranks`, each with its store.
    pub fn stores<R: Send>(&self, ranks: &[usize], body: impl Fn(usize, Arc<dyn Store>) -> R + Sync) -> Vec<R> {
        std::thread::scope(|scope| {
            let body = &body;
            let threads: Vec<_> = ranks
                .iter()
                .map(|rank| {
                    scope.spawn(move || {
                        let store =
                            self.place.store(*rank, self.size).unwrap_or_else(|error| panic!("{}: {error}", self.name));
                        body(*rank, store)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }

    /// Runs `body` as every rank, once all have met.
    pub fn run<R: Send>(&self, body: impl Fn(Exchange) -> R + Sync) -> Vec<R> {
        let ranks: Vec<usize> = (0..self.size).collect();
        self.stores(&ranks, |_, store| {
            body(Exchange::join_timeout(store, slower(20.0)).unwrap_or_else(|error| panic!("{}: {error}", self.name)))
        })
    }
}

/// Runs `body` as every rank in every form, with each of the sizes.
pub fn everywhere(sizes: &[usize], body: impl Fn(Exchange) + Sync) {
    at(sizes, |_| true, body);
}

/// The same in those forms in which it is known of a rank that it has ended.
pub fn where_ends_are_known(sizes: &[usize], body: impl Fn(Exchange) + Sync) {
    at(sizes, Place::knows_ends, body);
}

/// The same in those forms that can list their keys.
pub fn where_keys_are_listed(sizes: &[usize], body: impl Fn(Exchange) + Sync) {
    at(sizes, Place::lists_keys, body);
}

fn at(sizes: &[usize], these: impl Fn(&Place) -> bool, body: impl Fn(Exchange) + Sync) {
    for size in sizes {
        for site in sites(*size).into_iter().filter(|site| these(&site.place)) {
            let start = Instant::now();
            site.run(&body);
            println!("{} ranks, {}: {:?}", size, site.name, start.elapsed());
        }
    }
}

/// The seed of this run.
pub fn seed() -> u64 {
    let seed = std::env::var("GPUCOMM_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("GPUCOMM_TEST_SEED={seed}");
    seed
}
