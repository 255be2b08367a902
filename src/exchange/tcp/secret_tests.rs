use super::*;

const SAID: &[&[u8]] = &[b"number", b"hello"];

/// HMAC-SHA-256 as RFC 4231 has it, in its second case, on the way that is used here.
#[test]
fn it_is_the_hmac_of_the_standard() {
    let key: [u8; 32] = Sha256::digest(b"Jefe").into();
    let mut padded = [0x36; 64];
    key.iter().zip(&mut padded).for_each(|(key, byte)| *byte ^= key);
    let inner = Sha256::digest([&padded[..], &[1], b"what do ya want ", b"for nothing?"].concat());
    padded.iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
    let outer: Tag = Sha256::digest([&padded[..], &inner].concat()).into();
    assert_eq!(Secret::new(b"Jefe").prove(End::Client, &[b"what do ya want ", b"for nothing?"]), outer);
}

#[test]
fn a_proof_is_of_one_secret_one_end_and_one_connection() {
    let secret = Secret::new(b"a secret");
    let proof = secret.prove(End::Client, SAID);
    assert!(secret.proves(End::Client, SAID, &proof));
    assert!(!secret.proves(End::Server, SAID, &proof), "what one end has said is no answer to it");
    assert!(!secret.proves(End::Client, &[b"numbex", b"hello"], &proof));
    assert!(!secret.proves(End::Client, SAID, &proof[..31]));
    assert!(!secret.proves(End::Client, SAID, &[]));
    for other in [&b"a secreT"[..], b"a secret\0", b"", b"a secret "] {
        assert!(!Secret::new(other).proves(End::Client, SAID, &proof), "{other:?}");
    }
}

#[test]
fn a_mark_is_of_one_frame_at_one_place() {
    let secret = Secret::new(b"a secret");
    let ends = || (secret.seals(End::Client, SAID), secret.seals(End::Server, SAID));
    let sent = |seals: &mut Seals, frame: &[u8]| {
        let mark = seals.mark([&frame[..1], &frame[1..]].into_iter());
        [frame, &mark].concat()
    };
    let (mut client, mut server) = ends();
    for frame in [&b"one"[..], b"one", b"other"] {
        let mut bytes = sent(&mut client, frame);
        assert!(server.open(&mut bytes));
        assert_eq!(bytes, frame);
        let mut bytes = sent(&mut server, frame);
        assert!(client.open(&mut bytes));
    }
    // Again, too late, changed, cut off, back where it came from, of another connection.
    let (mut client, mut server) = ends();
    let mut first = sent(&mut client, b"first");
    let again = first.clone();
    assert!(server.open(&mut first) && !server.open(&mut again.clone()));
    assert!(!ends().1.open(&mut sent(&mut client, b"second")));
    for at in 0..again.len() {
        let mut changed = again.clone();
        changed[at] ^= 1;
        assert!(!ends().1.open(&mut changed), "{at}");
        assert!(!ends().1.open(&mut again[..at].to_vec()), "{at}");
    }
    assert!(!ends().0.open(&mut again.clone()));
    assert!(!secret.seals(End::Server, &[b"numbex", b"hello"]).open(&mut again.clone()));
}

#[test]
fn nothing_of_it_is_shown() {
    let secret = Secret::new(b"hunter2");
    let shown = format!("{secret:?} {:#?}", secret.seals(End::Client, SAID));
    assert_eq!(shown, "Secret(..) Seals(..)");
}
