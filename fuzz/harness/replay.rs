//! Replays valid messages and the corpora, without a fuzzer.

use std::path::PathBuf;

use super::super::wire::Writer;
use super::*;
use crate::exchange::Vote;

/// Valid messages, from which a fuzzer begins.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "greeting" => tcp::seeds::greetings(),
        "request" => tcp::seeds::requests(),
        "service" => tcp::seeds::scripts(),
        "c10d" => torch::seeds::messages(),
        "c10d_service" => torch::seeds::scripts(),
        _ => {
            let now = Current { path: "g/1-00/".to_owned(), generation: 1, id: 7, old: vec!["g/0-00/".to_owned()] };
            let vote = Vote {
                no: vec![(1, "no \u{fc}".to_owned())],
                missing: vec![(2, "has died".to_owned()), (3, "has not come".to_owned())],
                not_ready: vec![1],
                late: vec![3],
            };
            let announced = Writer::default().u8(1).text("7").text("a job").count(1).text("10.0.0.1:7").0;
            let header = Header { token: 7, from: 1, count: 2, purpose: "memory".to_owned(), about: vec![1, 2] };
            let values = [
                (0, announced),
                (0, Announced::encode(&Err("no port is free".to_owned()))),
                (1, now.encode()),
                (2, Writer::default().u64(1).u64(2).0),
                (3, vote::encode(&vote)),
                (4, Writer::default().u8(4).u8(0).text("not ready").0),
                (5, header.encode()),
                (6, b"-17".to_vec()),
                (7, "g/1-00/u/a key \u{fc}/../x".into()),
            ];
            values.into_iter().map(|(what, value)| [&[what], &value[..]].concat()).collect()
        }
    }
}

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// Runs all valid messages. With `GPUCOMM_WRITE_SEEDS` set, writes them to the corpora.
#[test]
fn valid_messages() {
    for (name, target) in TARGETS {
        for (at, seed) in seeds(name).iter().enumerate() {
            target(seed);
            if std::env::var_os("GPUCOMM_WRITE_SEEDS").is_some() {
                std::fs::create_dir_all(corpus(name)).unwrap();
                std::fs::write(corpus(name).join(format!("valid-{at:02}")), seed).unwrap();
            }
        }
    }
}

/// Runs all that a fuzzer has reached and found.
#[test]
fn the_corpus() {
    for (name, target) in TARGETS {
        let files: Vec<_> = std::fs::read_dir(corpus(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() > 5, "{name}: {} files", files.len());
        for path in files {
            println!("{}", path.display());
            target(&std::fs::read(path).unwrap());
        }
    }
}

/// Runs valid messages with each byte changed in turn, and cut off there.
#[test]
fn almost_valid_messages() {
    let mut random = fastrand::Rng::with_seed(7);
    for (name, target) in &TARGETS[..4] {
        for mut bytes in seeds(name) {
            for at in 0..bytes.len() {
                let right = bytes[at];
                bytes[at] = random.u8(..);
                target(&bytes);
                target(&bytes[..at]);
                bytes[at] = right;
            }
        }
    }
}
