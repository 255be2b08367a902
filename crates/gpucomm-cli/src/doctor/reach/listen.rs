//! Listening at all addresses of this host, for other ranks to try them.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::hello::Place;
use crate::doctor::interfaces::Interface;

/// How long a caller and an answer may take: long enough for two packets that were lost, which TCP sends again after 1 and 3 seconds.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How many addresses of a host are tried.
const MOST_PLACES: usize = 8;

/// How many callers are heard at once; more are turned away.
const MOST_CALLERS: usize = 128;

/// How often is looked for callers.
const ROUND: Duration = Duration::from_millis(5);

/// Listens for as long as it lives.
#[derive(Debug)]
pub struct Listening {
    pub places: Vec<Place>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Listening {
    /// At the addresses of all interfaces that are up, those that NCCL takes first. At the loopback where there is nothing else, or where
    /// NCCL takes it.
    pub fn start(interfaces: &[Interface], taken: &[(String, IpAddr)], nonce: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut places, mut threads) = (Vec::new(), Vec::new());
        for (interface, ip, taken) in addresses(interfaces, taken) {
            // An address may go while it is looked at; then nobody is to try it.
            let Ok(listener) = TcpListener::bind((ip, 0)) else { continue };
            let (Ok(address), Ok(())) = (listener.local_addr(), listener.set_nonblocking(true)) else { continue };
            let stop = stop.clone();
            let serve = move || serve(&listener, nonce, &stop);
            let Ok(thread) = thread::Builder::new().name("doctor-listen".to_owned()).spawn(serve) else { continue };
            threads.push(thread);
            places.push(Place { interface, address, taken });
        }
        Self { places, stop, threads }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The addresses to listen at, each with its interface, and with the place of that among those that NCCL takes.
fn addresses(interfaces: &[Interface], taken: &[(String, IpAddr)]) -> Vec<(String, IpAddr, Option<usize>)> {
    let mut all: Vec<_> = taken.iter().enumerate().map(|(at, (name, ip))| (name.clone(), *ip, Some(at))).collect();
    for interface in interfaces.iter().filter(|one| one.is_running && !one.is_loopback) {
        for ip in &interface.addresses {
            if !all.iter().any(|(_, known, _)| known == ip) {
                all.push((interface.name.clone(), *ip, None));
            }
        }
    }
    // Those of a link take its name as well, which the other end does not know.
    all.retain(|(_, ip, _)| !matches!(ip, IpAddr::V6(six) if six.is_unicast_link_local()));
    if all.is_empty() {
        let ips = interfaces
            .iter()
            .filter(|one| one.is_loopback)
            .flat_map(|one| one.addresses.iter().map(|ip| (&one.name, *ip)));
        all.extend(ips.map(|(name, ip)| (name.clone(), ip, None)));
    }
    all.truncate(MOST_PLACES);
    all
}

fn serve(listener: &TcpListener, nonce: u64, stop: &AtomicBool) {
    let callers = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) if callers.load(Ordering::Relaxed) < MOST_CALLERS => {
                callers.fetch_add(1, Ordering::Relaxed);
                let counted = callers.clone();
                let hear = move || {
                    let _ = answer(stream, nonce);
                    counted.fetch_sub(1, Ordering::Relaxed);
                };
                if thread::Builder::new().name("doctor-answer".to_owned()).spawn(hear).is_err() {
                    callers.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => thread::sleep(ROUND),
        }
    }
}

/// Gives back what the caller says, and the nonce.
fn answer(mut stream: TcpStream, nonce: u64) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut said = [0; 8];
    stream.read_exact(&mut said)?;
    let mut answer = [0; 16];
    answer[..8].copy_from_slice(&said);
    answer[8..].copy_from_slice(&nonce.to_le_bytes());
    stream.write_all(&answer)
}

/// Calls at an address, and expects the one who has this nonce to answer; why not, where it does not.
pub fn call(address: SocketAddr, nonce: u64, within: Duration) -> Result<(), String> {
    let why = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no answer in {} ms", within.as_millis()),
        ErrorKind::UnexpectedEof => "somebody else answers there".to_owned(),
        // Without the number, which says the same.
        _ => error.to_string().split(" (os error").next().unwrap_or_default().to_lowercase(),
    };
    let mut stream = TcpStream::connect_timeout(&address, within).map_err(why)?;
    stream.set_read_timeout(Some(within)).map_err(why)?;
    stream.set_write_timeout(Some(within)).map_err(why)?;
    let said = (!nonce).to_le_bytes();
    stream.write_all(&said).map_err(why)?;
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).map_err(why)?;
    if answer[..8] == said && answer[8..] == nonce.to_le_bytes() {
        return Ok(());
    }
    Err("somebody else answers there".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::fake::interface;

    #[test]
    fn who_listens_is_reached_and_nobody_else() {
        let lo = [interface("lo", &["127.0.0.1"])];
        let listening = Listening::start(&lo, &[], 7);
        let [place] = &listening.places[..] else { panic!("{listening:?}") };
        assert_eq!((place.interface.as_str(), place.taken), ("lo", None));
        let within = Duration::from_secs(20);
        assert_eq!(call(place.address, 7, within), Ok(()));
        assert_eq!(call(place.address, 8, within), Err("somebody else answers there".to_owned()));
        let address = place.address;
        drop(listening);
        assert_eq!(call(address, 7, within), Err("connection refused".to_owned()));
    }

    #[test]
    fn who_hears_and_does_not_answer_is_not_waited_for() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = call(silent.local_addr().unwrap(), 7, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error, "no answer in 50 ms");
    }

    #[test]
    fn where_to_listen() {
        let interfaces = [
            interface("lo", &["127.0.0.1"]),
            interface("eth0", &["10.0.0.2", "fe80::1"]),
            interface("eth1", &["10.1.0.2"]),
        ];
        let of = |interfaces: &[Interface], taken: &[(&str, &str)]| {
            let taken: Vec<_> = taken.iter().map(|(name, ip)| ((*name).to_owned(), ip.parse().unwrap())).collect();
            addresses(interfaces, &taken).into_iter().map(|(name, _, taken)| (name, taken)).collect::<Vec<_>>()
        };
        let name = str::to_owned;
        assert_eq!(of(&interfaces, &[("eth1", "10.1.0.2")]), [(name("eth1"), Some(0)), (name("eth0"), None)]);
        assert_eq!(of(&interfaces[..1], &[]), [(name("lo"), None)]);
        assert_eq!(of(&interfaces, &[("lo", "127.0.0.1")])[0], (name("lo"), Some(0)));
        let many: Vec<_> = (0..20).map(|at| interface(&format!("eth{at}"), &[&format!("10.0.0.{at}")])).collect();
        assert_eq!(of(&many, &[]).len(), MOST_PLACES);
    }
}
