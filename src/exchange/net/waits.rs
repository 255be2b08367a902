//! Which clients wait for which keys.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::exchange::table::ENTRY;

/// Clients, by their tokens, and the keys that each still waits for.
#[derive(Debug, Default)]
pub(super) struct Waits {
    clients: HashMap<u64, Wait>,
    /// The clients of each key, by the numbers of their waits: in the order in which they came.
    keys: HashMap<Arc<[u8]>, BTreeMap<u64, u64>>,
    /// How many waits have begun.
    begun: u64,
    /// The bytes that all keys take, roughly.
    bytes: usize,
}

/// The wait of one client.
#[derive(Debug)]
struct Wait {
    number: u64,
    keys: HashSet<Arc<[u8]>>,
}

impl Waits {
    /// The client waits for these keys, and for no others any more.
    pub(super) fn begin(&mut self, client: u64, keys: HashSet<Arc<[u8]>>) {
        self.end(client);
        self.begun += 1;
        let number = self.begun;
        for key in &keys {
            self.bytes += cost(key);
            self.keys.entry(Arc::clone(key)).or_default().insert(number, client);
        }
        self.clients.insert(client, Wait { number, keys });
    }

    /// The client waits no more.
    pub(super) fn end(&mut self, client: u64) {
        let Some(wait) = self.clients.remove(&client) else { return };
        for key in wait.keys {
            self.bytes -= cost(&key);
            if let Some(clients) = self.keys.get_mut(&key) {
                clients.remove(&wait.number);
                if clients.is_empty() {
                    self.keys.remove(&key);
                }
            }
        }
    }

    /// A key has been set: the clients that have waited for nothing else. Their waits are over.
    pub(super) fn key_set(&mut self, key: &[u8]) -> Vec<u64> {
        let clients = self.keys.remove(key).unwrap_or_default();
        clients.into_values().filter(|client| self.strike(*client, key)).collect()
    }

    /// A value has been put into the queue of a key: the first client that has waited for nothing
    /// else. Its wait is over.
    pub(super) fn key_pushed(&mut self, key: &[u8]) -> Option<u64> {
        let clients = self.keys.get_mut(key)?;
        let only = |client: &u64| self.clients.get(client).is_some_and(|wait| wait.keys.len() == 1);
        let Some((&number, &client)) = clients.iter().find(|(_, client)| only(client)) else {
            // All clients of this key wait for others as well. They wait for this one no longer, as
            // PyTorch's server has it.
            self.key_set(key);
            return None;
        };
        clients.remove(&number);
        self.bytes -= cost(key);
        if clients.is_empty() {
            self.keys.remove(key);
        }
        self.clients.remove(&client);
        Some(client)
    }

    pub(super) fn is_waiting(&self, client: u64) -> bool {
        self.clients.contains_key(&client)
    }

    /// All clients that wait.
    pub(super) fn clients(&self) -> Vec<u64> {
        self.clients.keys().copied().collect()
    }

    /// The bytes that all waits take, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the clients that wait are there, and both sides say the same.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_consistent(&self, is_there: impl Fn(&u64) -> bool) -> bool {
        let one_side = |(client, wait): (&u64, &Wait)| {
            let waited = |key: &Arc<[u8]>| self.keys[key].get(&wait.number) == Some(client);
            is_there(client) && !wait.keys.is_empty() && wait.keys.iter().all(waited)
        };
        let waited = |(key, clients): (&Arc<[u8]>, &BTreeMap<u64, u64>)| {
            clients.values().all(|one| self.clients[one].keys.contains(key))
        };
        let bytes: usize = self.clients.values().flat_map(|wait| &wait.keys).map(|key| cost(key)).sum();
        self.clients.iter().all(one_side) && self.keys.iter().all(waited) && self.bytes == bytes
    }

    /// The client waits for this key no longer. Returns whether its wait is over.
    fn strike(&mut self, client: u64, key: &[u8]) -> bool {
        let Some(wait) = self.clients.get_mut(&client) else { return false };
        if wait.keys.remove(key) {
            self.bytes -= cost(key);
        }
        let done = wait.keys.is_empty();
        if done {
            self.clients.remove(&client);
        }
        done
    }
}

/// The bytes that one client's wait for a key takes.
fn cost(key: &[u8]) -> usize {
    ENTRY + key.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_woken_once() {
        let keys = |names: &[&str]| names.iter().map(|name| Arc::from(name.as_bytes())).collect();
        let mut waits = Waits::default();
        waits.begin(1, keys(&["a", "b"]));
        waits.begin(2, keys(&["a"]));
        waits.begin(3, keys(&["a"]));
        assert_eq!(waits.key_pushed(b"a"), Some(2));
        assert_eq!(waits.key_set(b"a"), [3]);
        assert_eq!(waits.key_set(b"a"), [0_u64; 0]);
        assert_eq!(waits.key_set(b"b"), [1]);
        waits.begin(4, keys(&["c"]));
        waits.begin(4, keys(&["d"]));
        assert_eq!(waits.key_set(b"c"), [0_u64; 0]);
        waits.end(4);
        assert_eq!(waits.key_pushed(b"d"), None);
        assert!(waits.clients.is_empty() && waits.keys.is_empty() && waits.bytes == 0);
        // A queue gets a value, and then the key is set.
        waits.begin(5, keys(&["queue", "key"]));
        assert!(waits.is_waiting(5) && waits.bytes() > 8);
        assert_eq!(waits.key_pushed(b"queue"), None);
        assert_eq!(waits.key_set(b"key"), [5]);
        assert!(!waits.is_waiting(5) && waits.bytes() == 0 && waits.keys.is_empty());
    }
}
