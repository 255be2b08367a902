//! The store at which ranks meet: the launcher hosts its server, so that it outlives every rank.

use std::ffi::OsString;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};

use gpucomm::Launch;
use gpucomm::exchange::{TcpPlace, TcpServer};

use super::variables::{World, of_a_launcher};
use crate::failure::{Failure, Result};
use crate::options::RunOptions;

const STORE: &str = "GPUCOMM_STORE";
const SECRET: &str = "GPUCOMM_STORE_SECRET";

/// The store at which ranks meet, with its server if this launcher hosts it.
#[derive(Debug, Default)]
pub struct Store {
    server: Option<TcpServer>,
    /// What ranks find in their environment, besides what the user has set.
    variables: Vec<(&'static str, String)>,
    /// Whether ranks must not have the secret of this process's environment.
    no_secret: bool,
    /// The name of the ranks' job at the server.
    job: Option<String>,
}

impl Store {
    /// Hosts the server, unless the user has named a store or another node hosts it.
    pub fn new(world: &World, options: &RunOptions) -> Result<Self> {
        if user_says(STORE, options).is_some() {
            return Ok(Self::default());
        }
        let mut secret = user_says(SECRET, options);
        let mut variables = Vec::new();
        // On one host only the ranks need the secret. An empty secret turns it off.
        if secret.is_none() && options.nodes == 1 && cfg!(feature = "secret") {
            let random = random()?;
            variables.push((SECRET, random.clone()));
            secret = Some(random.into());
        }
        let no_secret = secret.is_none();
        let secret = secret.filter(|secret| !secret.is_empty());
        let (address, server) = match &options.master {
            None => {
                let server = host(&format!("{}:0", Ipv4Addr::LOCALHOST), secret)?;
                (server.address().to_string(), Some(server))
            }
            Some(master) => {
                let port = match options.store_port {
                    Some(port) => port,
                    None => master.port.checked_add(1).ok_or_else(|| {
                        Failure::usage("no port follows that of --master: --store-port names one for the store")
                    })?,
                };
                let server = (options.node_rank == 0).then(|| host_everywhere(port, secret)).transpose()?;
                let host = if server.is_some() { Ipv4Addr::LOCALHOST.to_string() } else { in_brackets(&master.host) };
                (format!("{host}:{port}"), server)
            }
        };
        variables.push((STORE, format!("server://{address}")));
        let mut store = Self { server, variables, no_secret, job: None };
        store.job = store.job(world, options);
        Ok(store)
    }

    /// Returns the variables to set for the ranks, and those to remove.
    pub fn variables(&self) -> (&[(&'static str, String)], &'static [&'static str]) {
        (&self.variables, if self.no_secret { &[SECRET] } else { &[] })
    }

    /// Tells the other ranks how a rank has ended. The server notices that by itself, unless a
    /// process that the rank has forked holds its connections open.
    pub fn rank_ended(&self, rank: usize, how: &str) {
        if let (Some(server), Some(job)) = (&self.server, &self.job) {
            server.rank_ended(job, rank, how);
        }
    }

    /// Whether ranks of other nodes use the server.
    pub fn is_in_use(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.connected() > 0)
    }

    /// What ranks call their job, by their environment.
    fn job(&self, world: &World, options: &RunOptions) -> Option<String> {
        let own = world.of(0);
        let get = |name: &str| {
            let given = options.env.iter().rev().find(|(is, _)| is == name).map(|(_, value)| value.clone());
            let given = given.or_else(|| Some(own.iter().find(|(is, _)| *is == name)?.1.clone().into()));
            let given = given.or_else(|| Some(self.variables.iter().find(|(is, _)| *is == name)?.1.clone().into()));
            let removed = of_a_launcher(name.as_ref()) || self.no_secret && name == SECRET;
            given.or_else(|| std::env::var_os(name).filter(|_| !removed))?.into_string().ok()
        };
        Launch::from_vars(get).ok().map(|launch| launch.job().to_owned())
    }
}

/// The value that the user has set for all ranks. An empty secret counts, an empty store does not.
/// Neither does what another `gpucomm run` has set that has started this process as a rank.
fn user_says(name: &str, options: &RunOptions) -> Option<OsString> {
    let given = options.env.iter().rev().find(|(is, _)| is == name).map(|(_, value)| value.clone());
    let of_a_server = |value: &OsString| value.to_str().is_some_and(|value| value.starts_with("server://"));
    let is_inner =
        std::env::var_os("GPUCOMM_RUN").is_some() && std::env::var_os(STORE).is_some_and(|store| of_a_server(&store));
    let value = given.or_else(|| std::env::var_os(name).filter(|_| !is_inner))?;
    (name == SECRET || !value.is_empty()).then_some(value)
}

fn host(address: &str, secret: Option<OsString>) -> Result<TcpServer> {
    place(address, secret)?.host().map_err(Failure::run)
}

/// At all addresses, of IPv6 and IPv4 if the host has both.
fn host_everywhere(port: u16, secret: Option<OsString>) -> Result<TcpServer> {
    let all = if TcpListener::bind("[::]:0").is_ok() { "[::]" } else { "0.0.0.0" };
    host(&format!("{all}:{port}"), secret).map_err(|failure| {
        let why = failure.one_line();
        Failure::run(format!("no store for the ranks at port {port}, and --store-port names another: {why}"))
    })
}

/// A place for a server that admits those with this secret, if there is one.
pub fn place(address: &str, secret: Option<OsString>) -> Result<TcpPlace> {
    let place = TcpPlace::new(address);
    let Some(secret) = secret else { return Ok(place) };
    let Some(secret) = secret.to_str() else {
        return Err(Failure::usage(format!("{SECRET}: expected UTF-8, got bytes that are not")));
    };
    #[cfg(feature = "secret")]
    return Ok(place.with_secret(secret));
    #[cfg(not(feature = "secret"))]
    {
        let _ = (place, secret);
        Err(Failure::usage(format!("{SECRET} is set, and this gpucomm is built without the feature `secret`")))
    }
}

/// 16 random bytes, as text.
fn random() -> Result<String> {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Failure::run(format!("no secret for the store of the ranks: /dev/urandom: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// An IPv6 address as it stands before a port.
fn in_brackets(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
