//! Ranks meet in a store, and try each other's addresses.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpucomm::exchange::{MAX_KEYS, Store};
use serde_json::{Value, json};

use super::hello::{Closed, Hello};
use super::listen::{PATIENCE, call};

/// Up to so many ranks, each tries all others.
const ALL_TO_ALL: usize = 64;

/// With more, each tries so many after it.
const NEIGHBOURS: usize = 16;

/// How many addresses are tried at once.
const AT_ONCE: usize = 32;

/// How long an answer of the store may take beside what is waited for.
const SLACK: Duration = Duration::from_secs(5);

/// How long the store is waited for at once: then is looked who has ended.
const SLICE: Duration = Duration::from_millis(500);

/// What all ranks have said, on rank 0.
#[derive(Debug, Default)]
pub struct Told {
    pub hellos: BTreeMap<usize, Hello>,
    /// By rank: what it does not reach, and the report of its own checks.
    pub results: BTreeMap<usize, (Vec<Closed>, Value)>,
}

/// What comes of a meeting.
#[derive(Debug)]
pub enum Met {
    /// This is rank 0, which knows all, and for which the others wait: [`finish`].
    First(Told),
    /// Rank 0 has all that this rank knows, and says whether all is well.
    Other(bool),
    /// Rank 0 has gone on without this rank.
    Late,
}

/// Meets the others: says where this rank listens, tries the others' addresses, and hands `report` and what is closed to rank 0.
pub fn meet(store: &dyn Store, hello: &Hello, report: &Value, timeout: Duration) -> gpucomm::Result<Met> {
    let (rank, size) = (store.rank(), store.size());
    let start = Instant::now();
    set(store, &format!("hello/{rank}"), &hello.json())?;
    let present = if rank == 0 {
        let hellos = gather(store, &(0..size).collect::<Vec<_>>(), "hello", &BTreeMap::new(), start + timeout)?;
        let present: Vec<usize> = hellos.into_keys().collect();
        set(store, "go", &present.clone().into())?;
        present
    } else {
        // Rank 0 may have begun as long after this rank as it waits itself.
        let Some(go) = wait(store, "go", start + 2 * timeout + SLACK)? else { return Ok(Met::Late) };
        go.as_array().into_iter().flatten().filter_map(Value::as_u64).filter_map(|rank| rank.try_into().ok()).collect()
    };
    if !present.contains(&rank) {
        return Ok(Met::Late);
    }
    let targets = targets(rank, size, &present);
    let wanted = if rank == 0 { &present } else { &targets };
    let hellos = gather(store, wanted, "hello", &BTreeMap::new(), Instant::now() + SLACK)?;
    let hellos: BTreeMap<_, _> =
        hellos.into_iter().filter_map(|(rank, value)| Some((rank, Hello::read(&value)?))).collect();
    let begin = Instant::now();
    let closed = attempt(hellos.iter().filter(|(rank, _)| targets.contains(rank)), begin + timeout);
    let closed_json: Vec<_> = closed.iter().map(Closed::json).collect();
    set(store, &format!("result/{rank}"), &json!({ "closed": closed_json, "report": report }))?;
    if rank != 0 {
        // Until then others may call here.
        let done = wait(store, "done", begin + timeout + 2 * SLACK)?;
        return Ok(Met::Other(done == Some(Value::Bool(true))));
    }
    let ids = hellos.iter().map(|(rank, hello)| (*rank, hello.id)).collect();
    let results = gather(store, &present, "result", &ids, begin + timeout + SLACK)?;
    let results = results.into_iter().map(|(rank, value)| {
        let closed = value["closed"].as_array().into_iter().flatten().filter_map(Closed::read).collect();
        (rank, (closed, value["report"].clone()))
    });
    Ok(Met::First(Told { results: results.collect(), hellos }))
}

/// Lets the others go, once rank 0 knows what it comes to.
pub fn finish(store: &dyn Store, is_well: bool) -> gpucomm::Result<()> {
    set(store, "done", &is_well.into())
}

/// Whom a rank tries, of those who are there.
fn targets(rank: usize, size: usize, present: &[usize]) -> Vec<usize> {
    if size <= ALL_TO_ALL {
        return present.iter().copied().filter(|&other| other != rank).collect();
    }
    let far = |other: usize| (other + size - rank) % size;
    let mut others: Vec<_> = present.iter().copied().filter(|&other| other != rank).collect();
    others.sort_by_key(|&other| far(other));
    others.truncate(NEIGHBOURS);
    others
}

/// Tries all addresses of these ranks, many at once, until there is no time left.
fn attempt<'a>(hellos: impl Iterator<Item = (&'a usize, &'a Hello)>, deadline: Instant) -> Vec<Closed> {
    let all: Vec<_> =
        hellos.flat_map(|(rank, hello)| hello.places.iter().map(move |place| (*rank, hello.nonce, place))).collect();
    let (next, closed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(&(to, nonce, place)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let left = deadline.saturating_duration_since(Instant::now());
            let outcome = match left.is_zero() {
                true => Err("there was no time left to try it".to_owned()),
                false => call(place.address, nonce, left.min(PATIENCE)),
            };
            if let Err(why) = outcome {
                let one = Closed { to, place: place.clone(), why };
                closed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(one);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(all.len()) {
            scope.spawn(work);
        }
    });
    let mut closed = closed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    closed.sort_by_key(|one| (one.to, one.place.address));
    closed
}

fn set(store: &dyn Store, key: &str, value: &Value) -> gpucomm::Result<()> {
    store.set(&name(key), value.to_string().as_bytes(), SLACK)
}

/// A key of this start of all ranks: the store of an agent that starts them again keeps those of the last one.
fn name(key: &str) -> String {
    let restarts = std::env::var("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
    format!("doctor/{restarts}/{key}")
}

/// The value of one key, once it is there; `None` where it does not come in time.
fn wait(store: &dyn Store, key: &str, deadline: Instant) -> gpucomm::Result<Option<Value>> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut values = store.get(&[&name(key)], left.min(SLICE))?;
        match values.pop().flatten() {
            Some(bytes) => return Ok(serde_json::from_slice(&bytes).ok()),
            None if left.is_zero() => return Ok(None),
            None => {}
        }
    }
}

/// What these ranks say, by rank. Who has ended, of those whose `ids` are known, is not waited for.
fn gather(
    store: &dyn Store,
    ranks: &[usize],
    what: &str,
    ids: &BTreeMap<usize, u64>,
    deadline: Instant,
) -> gpucomm::Result<BTreeMap<usize, Value>> {
    let mut values = BTreeMap::new();
    let mut missing: Vec<usize> = ranks.to_vec();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut still = Vec::new();
        for some in missing.chunks(MAX_KEYS) {
            let keys: Vec<_> = some.iter().map(|rank| name(&format!("{what}/{rank}"))).collect();
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            for (&rank, bytes) in some.iter().zip(store.get(&keys, left.min(SLICE))?) {
                match bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                    Some(value) => drop(values.insert(rank, value)),
                    None => still.push(rank),
                }
            }
        }
        missing = still;
        if missing.is_empty() || left.is_zero() {
            return Ok(values);
        }
        let (known, starts): (Vec<_>, Vec<_>) =
            missing.iter().filter_map(|rank| Some((*rank, *ids.get(rank)?))).unzip();
        if !known.is_empty() {
            let ended = store.ended(&starts, SLACK)?;
            let ended: Vec<_> =
                known.into_iter().zip(ended).filter(|(_, how)| how.is_some()).map(|(rank, _)| rank).collect();
            missing.retain(|rank| !ended.contains(rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use gpucomm::exchange::Threads;

    use super::super::hello::Place;
    use super::super::listen::Listening;
    use super::*;
    use crate::doctor::fake::interface;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn whom_to_try() {
        assert_eq!(targets(1, 4, &[0, 1, 3]), [0, 3]);
        let present: Vec<_> = (0..100).filter(|&rank| rank != 2).collect();
        let some = targets(95, 100, &present);
        assert_eq!((some.len(), some[0], some[5], some[7]), (NEIGHBOURS, 96, 1, 4));
    }

    /// Meets as these ranks of three; `change` makes something of what a rank says.
    fn meet_as(ranks: &[usize], timeout: Duration, change: impl Fn(usize, &mut Hello) + Sync) -> Told {
        let place = Threads::new(3);
        let met = std::thread::scope(|scope| {
            let (place, change) = (&place, &change);
            let one = |&rank: &usize| {
                scope.spawn(move || {
                    let store = place.store(rank).unwrap();
                    let nonce = 100 + rank as u64;
                    let listening = Listening::start(&[interface("lo", &["127.0.0.1"])], &[], nonce);
                    let mut hello =
                        Hello { host: "a".to_owned(), id: store.id(), nonce, places: listening.places.clone() };
                    change(rank, &mut hello);
                    let met = meet(&store, &hello, &json!(rank), timeout).unwrap();
                    if rank == 0 {
                        finish(&store, true).unwrap();
                    }
                    met
                })
            };
            let threads: Vec<_> = ranks.iter().map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let mut told = None;
        for (rank, met) in ranks.iter().zip(met) {
            match met {
                Met::First(all) => told = Some(all),
                Met::Other(is_well) => assert!(*rank > 0 && is_well),
                Met::Late => panic!("{rank} is late"),
            }
        }
        told.unwrap()
    }

    #[test]
    fn all_reach_each_other() {
        let told = meet_as(&[0, 1, 2], TIMEOUT, |_, _| ());
        assert_eq!(told.hellos.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        for (rank, (closed, report)) in &told.results {
            assert_eq!((closed.len(), report), (0, &json!(rank)));
        }
        assert_eq!(told.results.len(), 3);
    }

    #[test]
    fn an_address_that_leads_to_nobody_is_closed_to_all_others() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let told = meet_as(&[0, 1, 2], TIMEOUT, |rank, hello| {
            if rank == 1 {
                hello.places = vec![Place { interface: "eth1".to_owned(), address: free, taken: Some(0) }];
            }
        });
        for rank in [0, 2] {
            let [one] = &told.results[&rank].0[..] else { panic!("{told:?}") };
            assert_eq!((one.to, one.place.address, one.why.as_str()), (1, free, "connection refused"));
        }
        assert_eq!(told.results[&1].0, []);
    }

    #[test]
    fn who_does_not_come_is_missing_and_the_others_try_each_other() {
        let told = meet_as(&[0, 2], Duration::from_secs(2), |_, _| ());
        assert_eq!(told.hellos.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(told.results.len(), 2);
    }
}
