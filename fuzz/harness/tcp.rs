//! The store over TCP under a fuzzer. Whatever bytes come, nothing panics, and what is decoded
//! encodes to the same bytes.

// Without the feature there are no secrets, so what follows a secret is unreachable.
#![cfg_attr(not(feature = "secret"), allow(unreachable_code))]

use super::codec::{self, Request};
use super::greeting::{Admission, Decision, Hello, Purpose, Reply, prove, trust};
use super::secret::{FrameCipher, Secret};
use super::server::Service;
use crate::exchange::fuzz::stage::Stage;
use crate::exchange::store::random;

#[cfg(feature = "secret")]
fn secret(wanted: bool) -> Option<Secret> {
    wanted.then(|| Secret::new(b"a secret"))
}

#[cfg(not(feature = "secret"))]
fn secret(_wanted: bool) -> Option<Secret> {
    None
}

/// Bytes as the first frame of a client, as an answer to it, and as a proof.
pub(in crate::exchange) fn greeting(bytes: &[u8]) {
    if let Ok(hello) = Hello::decode(bytes) {
        assert_eq!(hello.encode(), bytes);
    }
    match Reply::decode(bytes) {
        Reply::Unknown | Reply::Refused(_) => {}
        known => assert_eq!(known.encode(), bytes),
    }
    let open = Admission::new(String::new(), 2, None);
    let decision = open.decide(None, bytes);
    assert!(matches!(decision, Decision::Admit(_, None, _) | Decision::Refuse(_) | Decision::Ignore));
    let closed = Admission::new(String::new(), 2, secret(true));
    match closed.decide(None, bytes) {
        Decision::Admit(..) => assert!(secret(true).is_none(), "without a proof"),
        // Nobody guesses a proof.
        Decision::Challenge(challenged, _) => {
            assert!(matches!(closed.decide(Some(&challenged), bytes), Decision::Refuse(_)));
        }
        Decision::Refuse(_) | Decision::Ignore => {}
    }
}

/// Bytes as a request, and as an answer.
pub(in crate::exchange) fn request(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(request.encode(), bytes);
    }
    if let Some(Ok(reader)) = codec::open(bytes) {
        let _ = (codec::read_swap(reader), codec::read_values(reader), codec::read_departures(reader));
    }
}

/// Bytes as a script of what some clients of one server do in turn; see [`Stage::play`]. The first
/// byte says whether there is a secret, and whether the server is at rank 0.
pub(in crate::exchange) fn service(script: &[u8]) {
    let [mode, script @ ..] = script else { return };
    let secret = secret(mode & 1 == 1);
    let admission = match mode & 2 {
        0 => Admission::new(String::new(), 4, secret.clone()),
        _ => Admission::of_jobs(None, secret.clone()),
    };
    let service = Service::new(admission);
    Stage::new(service, || None, Service::check).play(script, |stage, what, who, bytes| match what {
        0 => stage.write(who, bytes),
        1 => stage.write(who, &framed(bytes)),
        2 => connect(stage, who, Purpose::Requests, secret.as_ref(), mode & 2 == 0),
        3 => connect(stage, who, Purpose::Presence, secret.as_ref(), true),
        4 => stage.leave(who),
        // A valid frame of a client that has been admitted.
        5 => ask(stage, who, bytes),
        6 => {
            let value = vec![7; bytes.len() << 12];
            stage.write_in_two(who, &framed(&Request::Set { key: "long", value: &value }.encode()));
        }
        _ => _ = stage.read(who),
    });
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes(), bytes].concat()
}

/// A server, and its clients with what seals their frames.
type Scene = Stage<Service, Option<FrameCipher>>;

fn reply(stage: &mut Scene, who: usize) -> Reply {
    stage.turn();
    let bytes = stage.read(who);
    Reply::decode(bytes.get(4..).expect("an answer"))
}

/// Connects anew, and is admitted; if it need not be, it may be refused.
fn connect(stage: &mut Scene, who: usize, purpose: Purpose, secret: Option<&Secret>, must: bool) {
    stage.leave(who);
    let nonce = secret.map(|_| random());
    let id = who as u64;
    let said = Hello { purpose, rank: who, size: 4, id, job: String::new(), server: 0, nonce }.encode();
    stage.write(who, &framed(&said));
    match (reply(stage, who), secret) {
        (Reply::Welcome { proof: None, .. }, None) => {}
        (Reply::Challenge(nonce), Some(secret)) => {
            stage.write(who, &framed(&prove(secret, &nonce, &said)));
            match reply(stage, who) {
                Reply::Welcome { server, at_rank_0, proof: Some(proof) } => {
                    let cipher = trust(secret, &nonce, &said, (server, at_rank_0), &proof);
                    stage.client(who).state = Some(cipher.expect("a proof"));
                }
                Reply::Refused(_) if !must => stage.leave(who),
                answer => panic!("{answer:?}"),
            }
        }
        (Reply::Refused(_), None) if !must => stage.leave(who),
        other => panic!("not admitted: {other:?}"),
    }
}

fn ask(stage: &mut Scene, who: usize, bytes: &[u8]) {
    let sealed = stage.client(who).state.as_mut().and_then(|cipher| cipher.seal(std::iter::once(bytes)));
    stage.write(who, &framed(sealed.as_deref().unwrap_or(bytes)));
}

#[cfg(test)]
#[path = "tcp_seeds.rs"]
pub(in crate::exchange) mod seeds;
