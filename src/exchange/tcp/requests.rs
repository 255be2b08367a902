//! What the server does with requests: it looks into the table and changes it, and knows who waits for what.

use std::time::{Duration, Instant};

use super::answer;
use super::connection::Waiting;
use super::message::Request;
use super::service::Service;
use crate::exchange::wire::Writer;

impl Service {
    pub(super) fn answer(&mut self, token: u64, frame: &[u8]) -> Option<bool> {
        let request = match Request::decode(frame) {
            Ok(request) => request,
            Err(reason) => return self.refuse(token, answer::refused(&reason)),
        };
        let (changed, pieces) = match request {
            Request::Set { key, value } => {
                (Some(key), self.table.set(key, value).map(|()| answer::done(Writer::default())))
            }
            Request::Add { key, by } => {
                (Some(key), self.table.add(key, by).map(|sum| answer::done(Writer::default().u64(sum.cast_unsigned()))))
            }
            Request::CompareAndSet { key, expected, value } => {
                (Some(key), self.table.compare_and_set(key, expected, value).map(|swap| answer::swap(&swap)))
            }
            Request::Delete { key } => (None, Ok(answer::done(Writer::default().u8(self.table.delete(key).into())))),
            Request::Clear { prefix } => {
                self.table.clear(prefix);
                (None, Ok(answer::done(Writer::default())))
            }
            Request::Ended { ids } => (None, Ok(answer::ends(ids.iter().map(|id| self.table.ended(*id))))),
            Request::Get { keys, ms } => return self.get(token, &keys, Duration::from_millis(ms.into())),
            Request::Bye => return None,
        };
        let pieces = pieces.unwrap_or_else(|reason| answer::refused(&reason));
        self.connections.get_mut(&token)?.send(pieces);
        if let Some(key) = changed {
            self.came(key);
        }
        Some(true)
    }

    fn get(&mut self, token: u64, keys: &[&str], within: Duration) -> Option<bool> {
        let missing: Vec<&str> = keys.iter().filter(|key| self.table.get(key).is_none()).copied().collect();
        let connection = self.connections.get_mut(&token)?;
        if missing.is_empty() || within.is_zero() {
            connection.send(answer::values(keys.iter().map(|key| self.table.get(key)).collect()));
            return Some(true);
        }
        let until = Instant::now() + within;
        for key in &missing {
            self.waits.entry((*key).to_owned()).or_default().push(token);
        }
        connection.waiting = Some(Waiting {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            missing: missing.into_iter().map(str::to_owned).collect(),
            until,
        });
        self.schedule(token);
        Some(true)
    }

    /// A key may be there now that was not.
    fn came(&mut self, key: &str) {
        if self.waits.is_empty() || self.table.get(key).is_none() {
            return;
        }
        for token in self.waits.remove(key).unwrap_or_default() {
            let waiting = self.connections.get_mut(&token).and_then(|one| one.waiting.as_mut());
            if let Some(waiting) = waiting {
                waiting.missing.remove(key);
                if waiting.missing.is_empty() {
                    self.end_wait(token);
                }
            }
        }
    }

    /// Sends who waits what is there.
    pub(super) fn end_wait(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Some(waiting) = connection.waiting.take() else { return };
        connection.send(answer::values(waiting.keys.iter().map(|key| self.table.get(key)).collect()));
        self.forget(token, &waiting);
        self.send(token);
    }

    pub(super) fn forget(&mut self, token: u64, waiting: &Waiting) {
        for key in &waiting.missing {
            if let Some(tokens) = self.waits.get_mut(key) {
                tokens.retain(|other| *other != token);
                if tokens.is_empty() {
                    self.waits.remove(key);
                }
            }
        }
    }
}
