//! What ranks tell each other of where they listen, and of whom they do not reach.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// A place at which a rank listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub interface: String,
    pub address: SocketAddr,
    /// Which of the interfaces that NCCL takes it is; ranks meet at the first, and `None` is left out by NCCL.
    pub taken: Option<usize>,
}

/// What a rank says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub host: String,
    /// By which the store knows this start of the rank.
    pub id: u64,
    /// What who listens there answers: another program has another one, or none.
    pub nonce: u64,
    pub places: Vec<Place>,
}

/// A place that a rank does not reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    pub to: usize,
    pub place: Place,
    pub why: String,
}

impl Place {
    fn json(&self) -> Value {
        json!({ "interface": self.interface, "address": self.address.to_string(), "taken": self.taken })
    }

    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            interface: value["interface"].as_str()?.to_owned(),
            address: value["address"].as_str()?.parse().ok()?,
            taken: value["taken"].as_u64().and_then(|at| at.try_into().ok()),
        })
    }
}

impl Hello {
    pub fn json(&self) -> Value {
        let places: Vec<_> = self.places.iter().map(Place::json).collect();
        json!({ "host": self.host, "id": self.id, "nonce": self.nonce, "places": places })
    }

    pub fn read(value: &Value) -> Option<Self> {
        Some(Self {
            host: value["host"].as_str()?.to_owned(),
            id: value["id"].as_u64()?,
            nonce: value["nonce"].as_u64()?,
            places: value["places"].as_array()?.iter().map(Place::read).collect::<Option<_>>()?,
        })
    }
}

impl Closed {
    pub fn json(&self) -> Value {
        json!({ "to": self.to, "place": self.place.json(), "why": self.why })
    }

    pub fn read(value: &Value) -> Option<Self> {
        Some(Self {
            to: value["to"].as_u64()?.try_into().ok()?,
            place: Place::read(&value["place"])?,
            why: value["why"].as_str()?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way() {
        let place =
            |address: &str, taken| Place { interface: "eth0".to_owned(), address: address.parse().unwrap(), taken };
        let places = vec![place("10.0.0.2:7", Some(0)), place("[fd00::2]:8", None)];
        let hello = Hello { host: "a \"b\"".to_owned(), id: u64::MAX, nonce: 7, places: places.clone() };
        assert_eq!(Hello::read(&hello.json()), Some(hello));
        let closed = Closed { to: 3, place: places[1].clone(), why: "refused".to_owned() };
        assert_eq!(Closed::read(&closed.json()), Some(closed));
        assert_eq!((Hello::read(&json!({})), Closed::read(&json!([]))), (None, None));
    }
}
