//! Keys: set, get, add, compare-and-set, delete.

use gpucomm::Error;
use gpucomm::exchange::{MAX_NAME, MAX_VALUE, Swap};

use crate::support::everywhere;

#[test]
fn each_operation() {
    everywhere(&[1, 3], |x| {
        let own = format!("own/{}", x.rank());
        assert_eq!(x.try_get(&own).unwrap(), None);
        x.set(&own, b"first").unwrap();
        x.set(&own, b"second").unwrap();
        for rank in 0..x.size() {
            // The first value may be met, and none in between.
            let value = x.get_from(rank, &format!("own/{rank}")).unwrap();
            assert!(value == b"first" || value == b"second", "{value:?}");
        }
        x.barrier().unwrap();
        let keys: Vec<String> = (0..x.size()).map(|rank| format!("own/{rank}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        assert_eq!(x.get_all(&keys).unwrap(), vec![b"second".to_vec(); x.size()]);
        x.barrier().unwrap();
        assert_eq!(x.get_all(&[]).unwrap(), Vec::<Vec<u8>>::new());

        x.set(&own, b"").unwrap();
        assert_eq!(x.get(&own).unwrap(), b"");
        assert_eq!(x.compare_and_set(&own, None, b"x").unwrap(), Swap::Found(Some(Vec::new())));
        assert_eq!(x.compare_and_set(&own, Some(b"y"), b"x").unwrap(), Swap::Found(Some(Vec::new())));
        assert_eq!(x.compare_and_set(&own, Some(b""), b"x").unwrap(), Swap::Done);
        assert_eq!(x.try_get(&own).unwrap().as_deref(), Some(&b"x"[..]));
        assert!(x.delete(&own).unwrap());
        assert!(!x.delete(&own).unwrap());
        assert_eq!(x.compare_and_set(&own, Some(b"x"), b"y").unwrap(), Swap::Found(None));
        assert_eq!(x.compare_and_set(&own, None, b"y").unwrap(), Swap::Done);
        x.barrier().unwrap();

        let mut sums = Vec::new();
        for by in [1, 0, 5, -2] {
            sums.push(x.add("count", by).unwrap());
        }
        assert!(x.size() > 1 || sums == [1, 1, 6, 4], "{sums:?}");
        x.barrier().unwrap();
        assert_eq!(x.get("count").unwrap(), (4 * x.size()).to_string().as_bytes());
        let error = x.add(&own, 1).unwrap_err();
        assert!(matches!(error, Error::Exchange { operation: "Store::add", .. }), "{error}");
        assert!(error.to_string().contains("expected a number as decimal text, got 1 bytes (\"y\")"), "{error}");
        x.set(&own, i64::MAX.to_string().as_bytes()).unwrap();
        assert!(x.add(&own, 1).unwrap_err().to_string().contains("64 bits"));
    });
}

#[test]
fn one_of_all_swaps() {
    everywhere(&[8], |x| {
        for round in 0..20 {
            let mine = [x.rank() as u8];
            let won = x.compare_and_set(&format!("lock/{round}"), None, &mine).unwrap();
            let winner = x.get(&format!("lock/{round}")).unwrap();
            match won {
                Swap::Done => assert_eq!(winner, mine),
                Swap::Found(found) => assert_eq!(found, Some(winner)),
            }
            // Tickets: each number once.
            let ticket = x.add("tickets", 1).unwrap();
            assert_eq!(x.compare_and_set(&format!("ticket/{ticket}"), None, &mine).unwrap(), Swap::Done);
        }
        x.barrier().unwrap();
        assert_eq!(x.get("tickets").unwrap(), b"160");
    });
}

#[test]
fn strange_keys() {
    everywhere(&[1], |x| {
        let long = "x".repeat(MAX_NAME);
        let slashes = "/".repeat(MAX_NAME);
        let multibyte = "ü".repeat(MAX_NAME / 2);
        let keys = [
            "a",
            "a/b",
            "a/b/c",
            "a//b",
            "/",
            "//",
            ".",
            "..",
            "../..",
            "/etc/passwd",
            "a\0b",
            "A",
            "%41",
            "=",
            "+a",
            "~a",
            "🦀 crab\n",
            &long,
            &slashes,
            &multibyte,
        ];
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(x.compare_and_set(key, None, &[at as u8]).unwrap(), Swap::Done, "{key:?}");
        }
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(x.get(key).unwrap(), [at as u8], "{key:?}");
        }
        for key in keys {
            assert!(x.delete(key).unwrap(), "{key:?}");
        }
        for key in ["", &"x".repeat(MAX_NAME + 1)] {
            let error = x.set(key, b"").unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { operation: "Exchange::set", what: "key", .. }), "{error}");
        }
        let error = x.set("big", &vec![0; MAX_VALUE + 1]).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { what: "value", .. }), "{error}");
        assert!(x.get_from(1, "a").is_err());
    });
}

#[test]
fn many_and_large() {
    everywhere(&[2], |x| {
        let (rank, peer) = (x.rank(), 1 - x.rank());
        for at in 0..2000_u32 {
            x.set(&format!("many/{rank}/{at}"), &at.to_le_bytes()).unwrap();
        }
        let large: Vec<u8> = (0..1 << 20).map(|at| (at * 7 + rank) as u8).collect();
        x.set(&format!("large/{rank}"), &large).unwrap();
        x.barrier().unwrap();
        let keys: Vec<String> = (0..2000).map(|at| format!("many/{peer}/{at}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        for (at, value) in x.get_all(&keys).unwrap().iter().enumerate() {
            assert_eq!(*value, (at as u32).to_le_bytes());
        }
        let theirs: Vec<u8> = (0..1 << 20).map(|at| (at * 7 + peer) as u8).collect();
        assert!(x.get_from(peer, &format!("large/{peer}")).unwrap() == theirs);
        assert!(x.all_gather(&large).unwrap()[peer] == theirs);
        let most = vec![1; MAX_VALUE];
        if rank == 0 {
            x.set("most", &most).unwrap();
        }
        assert!(x.get("most").unwrap() == most);
        x.barrier().unwrap();
    });
}
