use super::super::greeting::Purpose;
use super::*;

const JOB: &str = "job";

fn hello(number: Option<Number>) -> Hello {
    Hello { purpose: Purpose::Requests, rank: 1, size: 2, id: 7, job: JOB.to_owned(), server: 0, number }
}

fn refused(heard: &(Step, Vec<u8>)) -> String {
    assert!(matches!(heard.0, Step::Refused), "{heard:?}");
    match Reception::decode(&heard.1) {
        Reception::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_a_secret_a_hello_is_enough() {
    let gate = Gate::new(JOB.to_owned(), 2, None);
    let (step, answer) = gate.hear(None, &hello(None).encode());
    assert!(matches!(step, Step::In(came, None) if came == hello(None)));
    assert_eq!(Reception::decode(&answer), Reception::Welcome { server: gate.server, proof: None });
    assert!(
        refused(&gate.hear(None, &hello(Some(draw())).encode())).contains("expected a rank without a shared secret")
    );
    let other = Hello { size: 3, ..hello(None) };
    assert!(refused(&gate.hear(None, &other.encode())).contains("expected one of 2 ranks, got one of 3"));
    assert!(matches!(gate.hear(None, b"GET / HTTP/1.1"), (Step::Stranger, answer) if answer.is_empty()));
}

#[cfg(feature = "secret")]
mod secrets {
    use super::*;

    fn asks(gate: &Gate, said: &[u8]) -> (Box<Asked>, Number) {
        let (step, answer) = gate.hear(None, said);
        match (step, Reception::decode(&answer)) {
            (Step::Ask(asked), Reception::Asked(number)) => (asked, number),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_prove_that_they_have_it() {
        let secret = Secret::new(b"ours");
        let gate = Gate::new(JOB.to_owned(), 2, Some(secret.clone()));
        let said = hello(Some(draw())).encode();
        let (asked, number) = asks(&gate, &said);
        let (step, answer) = gate.hear(Some(&asked), &prove(&secret, &number, &said));
        let Step::In(_, Some(mut theirs)) = step else { panic!("{step:?}") };
        let Reception::Welcome { server, proof: Some(proof) } = Reception::decode(&answer) else {
            panic!("{answer:?}")
        };
        let mut ours = trust(&secret, &number, &said, server, &proof).expect("the server's proof");
        let mut frame = [&b"get"[..], &ours.mark(std::iter::once(&b"get"[..]))].concat();
        assert!(theirs.open(&mut frame));
        // Another server's proof, or one of another connection, is none.
        assert!(trust(&Secret::new(b"theirs"), &number, &said, server, &proof).is_none());
        assert!(trust(&secret, &number, &hello(Some(draw())).encode(), server, &proof).is_none());
        assert!(trust(&secret, &number, &said, server ^ 1, &proof).is_none());
        // Nor what the client has said itself.
        assert!(trust(&secret, &number, &said, server, &prove(&secret, &number, &said)).is_none());
    }

    #[test]
    fn who_does_not_prove_it_is_refused() {
        let secret = Secret::new(b"ours");
        let gate = Gate::new(JOB.to_owned(), 2, Some(secret.clone()));
        let reason = refused(&gate.hear(None, &hello(None).encode()));
        assert!(reason.contains("expected a rank with the shared secret, got one without"), "{reason}");
        let said = hello(Some(draw())).encode();
        let (asked, number) = asks(&gate, &said);
        let right = prove(&secret, &number, &said);
        // What was proved before is of no use for the same hello, nor for another one.
        let (again, _) = asks(&gate, &said);
        let other = Hello { rank: 0, ..Hello::decode(&said).unwrap() }.encode();
        let (changed, _) = asks(&gate, &other);
        for (asked, proof) in [
            (&asked, prove(&Secret::new(b"theirs"), &number, &said)),
            (&again, right.clone()),
            (&changed, prove(&secret, &number, &said)),
            (&asked, right[..31].to_vec()),
            (&asked, Vec::new()),
        ] {
            let reason = refused(&gate.hear(Some(asked), &proof));
            assert!(reason.contains("expected a proof of the shared secret"), "{reason}");
            assert!(!reason.contains("ours"), "{reason}");
        }
        assert!(matches!(gate.hear(Some(&asked), &right).0, Step::In(..)));
    }

    /// Of what job the server is, who knows the secret learns, and nobody else.
    #[test]
    fn objections_come_after_the_proof() {
        let secret = Secret::new(b"ours");
        let gate = Gate::new(JOB.to_owned(), 2, Some(secret.clone()));
        let said = Hello { job: "another".to_owned(), ..hello(Some(draw())) }.encode();
        let (asked, number) = asks(&gate, &said);
        assert!(!refused(&gate.hear(Some(&asked), b"no proof")).contains(JOB));
        let reason = refused(&gate.hear(Some(&asked), &prove(&secret, &number, &said)));
        assert!(reason.contains("expected a rank of the job \"job\", got one of \"another\""), "{reason}");
    }
}
