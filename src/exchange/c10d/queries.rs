//! How each query is answered.

use std::collections::HashSet;
use std::sync::Arc;

use super::dialect::{Query, STOP_WAITING, WAIT_CANCELED};
use super::scan::Whole;
use super::service::Service;
use crate::exchange::net::line::Piece;

impl Service {
    /// Answers one query; an error if its client is to be let go.
    pub(super) fn answer(&mut self, token: u64, whole: &Whole, bytes: &[u8]) -> Result<(), ()> {
        let parts = whole.parts(bytes);
        let number = |count: usize| Piece::Own(u64::try_from(count).unwrap_or(u64::MAX).to_le_bytes().to_vec());
        let byte = |byte| vec![Piece::Own(vec![byte])];
        let pieces = match (whole.query, &parts[..]) {
            (Query::Set | Query::MultiSet, pairs) => {
                for pair in pairs.chunks_exact(2) {
                    self.values.set(pair[0], pair[1])?;
                    self.came(pair[0]);
                }
                Vec::new()
            }
            (Query::CompareSet, [key, expected, new]) => {
                let (found, changed) = self.values.compare_and_set(key, expected, new)?;
                if changed {
                    self.came(key);
                }
                vec![number(found.len()), Piece::Value(found)]
            }
            (Query::Get | Query::MultiGet, keys) => {
                let values = keys.iter().map(|key| self.values.get(key).unwrap_or_default());
                values.flat_map(|value| [number(value.len()), Piece::Value(value)]).collect()
            }
            (Query::Add, [key, by]) => {
                let sum = self.values.add(key, i64::from_le_bytes((*by).try_into().map_err(drop)?))?;
                self.came(key);
                vec![Piece::Own(sum.to_le_bytes().to_vec())]
            }
            (Query::Check, keys) => byte(u8::from(!keys.iter().all(|key| self.values.is_there(key)))),
            (Query::Wait, keys) => {
                let missing = keys.iter().filter(|key| !self.values.is_there(key)).map(|key| Arc::from(*key));
                let missing: HashSet<Arc<[u8]>> = missing.collect();
                if missing.is_empty() {
                    byte(STOP_WAITING)
                } else {
                    self.waits.begin(token, missing);
                    Vec::new()
                }
            }
            (Query::CancelWait, _) => {
                self.waits.end(token);
                byte(WAIT_CANCELED)
            }
            (Query::CountKeys, _) => vec![number(self.values.len())],
            (Query::Delete, [key]) => vec![number(self.values.delete(key).into())],
            (Query::Append, [key, more]) => {
                self.values.append(key, more)?;
                self.came(key);
                Vec::new()
            }
            (Query::Ping, [nonce]) => vec![Piece::Own(nonce.to_vec())],
            (Query::QueuePush, [key, value]) => {
                self.values.push(key, value)?;
                if let Some(client) = self.waits.came_for_one(key) {
                    self.tell(client);
                }
                Vec::new()
            }
            (Query::QueuePop, [key]) => {
                let (len, value) = self.values.pop(key);
                let value = value.into_iter().flat_map(|value| [number(value.len()), Piece::Value(value)]);
                std::iter::once(number(len)).chain(value).collect()
            }
            (Query::QueueLen, [key]) => vec![number(self.values.queued(key))],
            (Query::ListKeys, _) => {
                let keys = self.values.keys();
                let keys = keys.flat_map(|key| [number(key.len()), Piece::Value(key)]);
                std::iter::once(number(self.values.len())).chain(keys).collect()
            }
            _ => return Err(()),
        };
        self.connections.get_mut(&token).ok_or(())?.line.put(pieces);
        Ok(())
    }

    /// A key is there that may not have been.
    fn came(&mut self, key: &[u8]) {
        for client in self.waits.came(key) {
            self.tell(client);
        }
    }

    /// Tells a client that it need not wait any more.
    fn tell(&mut self, client: u64) {
        if let Some(connection) = self.connections.get_mut(&client) {
            connection.line.put([Piece::Own(vec![STOP_WAITING])]);
            // What it has asked meanwhile may not have been looked at, as it did not take its answers.
            if connection.held() > 0 {
                self.again.insert(client);
            }
            self.send(client);
        }
    }
}
