//! Who waits for which keys.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::exchange::table::ENTRY;

/// Clients by their number, and the keys that each still waits for.
#[derive(Debug, Default)]
pub(super) struct Waits {
    clients: HashMap<u64, HashSet<Arc<[u8]>>>,
    /// In the order in which they came.
    keys: HashMap<Arc<[u8]>, Vec<u64>>,
    /// What all that takes, about.
    bytes: usize,
}

impl Waits {
    /// A client waits for these keys, and for no others any more.
    pub(super) fn begin(&mut self, client: u64, keys: HashSet<Arc<[u8]>>) {
        self.end(client);
        for key in &keys {
            self.bytes += cost(key);
            self.keys.entry(Arc::clone(key)).or_default().push(client);
        }
        self.clients.insert(client, keys);
    }

    /// A client waits no more.
    pub(super) fn end(&mut self, client: u64) {
        for key in self.clients.remove(&client).unwrap_or_default() {
            self.bytes -= cost(&key);
            if let Some(clients) = self.keys.get_mut(&key) {
                clients.retain(|other| *other != client);
                if clients.is_empty() {
                    self.keys.remove(&key);
                }
            }
        }
    }

    /// A key is there: those who have waited for nothing else.
    pub(super) fn came(&mut self, key: &[u8]) -> Vec<u64> {
        let clients = self.keys.remove(key).unwrap_or_default();
        clients.into_iter().filter(|client| self.strike(*client, key)).collect()
    }

    /// One client may have what is at a key: the first who has waited for nothing else.
    pub(super) fn came_for_one(&mut self, key: &[u8]) -> Option<u64> {
        let clients = self.keys.get_mut(key)?;
        let only = |client: &u64| self.clients.get(client).is_some_and(|keys| keys.len() == 1);
        let Some(at) = clients.iter().position(only) else {
            // All who wait for it wait for more, and for this no longer: nobody tells them of it again.
            self.came(key);
            return None;
        };
        let client = clients.remove(at);
        self.bytes -= cost(key);
        if clients.is_empty() {
            self.keys.remove(key);
        }
        self.clients.remove(&client);
        Some(client)
    }

    /// Whether a client waits.
    pub(super) fn is_held(&self, client: u64) -> bool {
        self.clients.contains_key(&client)
    }

    /// How many bytes all waits take, about.
    pub(super) fn held(&self) -> usize {
        self.bytes
    }

    /// Whether those who wait are there, and the two sides say the same.
    #[cfg(any(test, fuzzing))]
    pub(super) fn adds_up(&self, is_there: impl Fn(&u64) -> bool) -> bool {
        let one_side = |(client, keys): (&u64, &HashSet<Arc<[u8]>>)| {
            is_there(client) && !keys.is_empty() && keys.iter().all(|key| self.keys[key].contains(client))
        };
        let waited =
            |(key, clients): (&Arc<[u8]>, &Vec<u64>)| clients.iter().all(|one| self.clients[one].contains(key));
        let bytes: usize = self.clients.values().flatten().map(|key| cost(key)).sum();
        self.clients.iter().all(one_side) && self.keys.iter().all(waited) && self.bytes == bytes
    }

    /// Whether nothing is left that the client waits for.
    fn strike(&mut self, client: u64, key: &[u8]) -> bool {
        let Some(keys) = self.clients.get_mut(&client) else { return false };
        if keys.remove(key) {
            self.bytes -= cost(key);
        }
        let done = keys.is_empty();
        if done {
            self.clients.remove(&client);
        }
        done
    }
}

/// What a key takes that one client waits for.
fn cost(key: &[u8]) -> usize {
    ENTRY + key.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once() {
        let keys = |names: &[&str]| names.iter().map(|name| Arc::from(name.as_bytes())).collect();
        let mut waits = Waits::default();
        waits.begin(1, keys(&["a", "b"]));
        waits.begin(2, keys(&["a"]));
        waits.begin(3, keys(&["a"]));
        assert_eq!(waits.came_for_one(b"a"), Some(2));
        assert_eq!(waits.came(b"a"), [3]);
        assert_eq!(waits.came(b"a"), [0_u64; 0]);
        assert_eq!(waits.came(b"b"), [1]);
        waits.begin(4, keys(&["c"]));
        waits.begin(4, keys(&["d"]));
        assert_eq!(waits.came(b"c"), [0_u64; 0]);
        waits.end(4);
        assert_eq!(waits.came_for_one(b"d"), None);
        assert!(waits.clients.is_empty() && waits.keys.is_empty() && waits.bytes == 0);
        // A queue that has something, and then a key.
        waits.begin(5, keys(&["queue", "key"]));
        assert!(waits.is_held(5) && waits.held() > 8);
        assert_eq!(waits.came_for_one(b"queue"), None);
        assert_eq!(waits.came(b"key"), [5]);
        assert!(!waits.is_held(5) && waits.held() == 0 && waits.keys.is_empty());
    }
}
