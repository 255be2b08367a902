//! Dumps that are broken: `gpucomm diagnose` makes of them what it can, and does not stay with them.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fastrand::Rng;
use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream, nccl};

use crate::harness;
use crate::place::{Place, all_reduce};

/// Random changes of real dumps; so many at once, in programs beside each other.
const ROUNDS: usize = 80;
const AT_ONCE: usize = 3;

/// No one of them takes so long.
const LONG: Duration = Duration::from_secs(30);

/// Numbers that lie at ends.
const NUMBERS: [&str; 9] = [
    "0",
    "1",
    "-1",
    "1048576",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "1e400",
    "36893488147419103232",
];

/// Dumps of a clique that has done a little of everything.
fn real() -> Vec<String> {
    let place = std::env::temp_dir().join(format!("gpucomm-real-{}", std::process::id()));
    let clique = Clique::init_all(&Device::all().unwrap()[..2]).unwrap();
    let run = clique.spmd(|comm| {
        let (stream, other) = (Stream::new(comm.device())?, 1 - comm.rank());
        let _part = comm.split(Some(0), 0)?;
        let mut x = DeviceBuffer::from_slice(&stream, &[1f32; 10])?;
        for _ in 0..3 {
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
            match comm.rank() {
                0 => comm.send(&x, other, &stream)?,
                _ => comm.recv(&mut x, other, &stream)?,
            }
        }
        stream.synchronize()
    });
    run.unwrap();
    let paths = nccl::dump_all(&place).unwrap();
    let texts = paths.iter().map(|path| old(&fs::read_to_string(path).unwrap())).collect();
    fs::remove_dir_all(place).unwrap();
    texts
}

/// The same of long ago: nothing is on its way.
fn old(text: &str) -> String {
    let (before, time) = text.split_once("\"time_ns\": ").unwrap();
    let after = time.trim_start_matches(|digit: char| digit.is_ascii_digit());
    format!("{before}\"time_ns\": 1700000000000000000{after}")
}

/// Something of it is not as it was: a byte, a number, a text, a field, or its end is missing.
fn mutated(text: &str, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let of = |is: fn(&u8) -> bool| (0..bytes.len()).filter(|at| is(&text.as_bytes()[*at])).collect::<Vec<_>>();
    let (digits, quotes) = (of(u8::is_ascii_digit), of(|byte| *byte == b'"'));
    match rng.u32(..6) {
        0 => {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        1 => bytes.truncate(rng.usize(..text.len())),
        2 | 3 => {
            let at = digits[rng.usize(..digits.len())];
            let is_digit = |byte: &u8| byte.is_ascii_digit();
            let start = at - bytes[..at].iter().rev().take_while(|byte| is_digit(byte)).count();
            let end = at + bytes[at..].iter().take_while(|byte| is_digit(byte)).count();
            bytes.splice(start..end, rng.choice(NUMBERS).unwrap().bytes());
        }
        4 => {
            let at = quotes[rng.usize(..quotes.len())] + 1;
            bytes.splice(at..at, "ÄÖ€𝄞".bytes());
        }
        _ => {
            let lines: Vec<&str> = text.split_inclusive(',').collect();
            let gone = rng.usize(..lines.len());
            let twice = rng.bool();
            let left = lines.iter().enumerate().flat_map(|(at, line)| match at == gone {
                true => vec![*line; if twice { 2 } else { 0 }],
                false => vec![*line],
            });
            bytes = left.collect::<String>().into_bytes();
        }
    }
    bytes
}

#[test]
fn broken_dumps_break_nothing() {
    let seed = std::env::var("GPUCOMM_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let texts = real();
    for round in 0..ROUNDS {
        let places: Vec<_> = (0..AT_ONCE).map(|at| Place::new(&format!("broken-{round}-{at}"))).collect();
        let begin = Instant::now();
        let children: Vec<_> = places
            .iter()
            .map(|place| {
                let mut is_one = false;
                for (at, text) in texts.iter().enumerate() {
                    // One at least.
                    let breaks = rng.bool() || (!is_one && at + 1 == texts.len());
                    is_one |= breaks;
                    let bytes = if breaks { mutated(text, &mut rng) } else { text.clone().into_bytes() };
                    fs::write(place.0.join(format!("gpucomm-{at}.json")), bytes).unwrap();
                }
                let pipe = Stdio::piped;
                harness::command(&["diagnose", place.0.to_str().unwrap()])
                    .stdout(pipe())
                    .stderr(pipe())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for child in children {
            let output = harness::finish(child);
            // All of them may be unreadable.
            assert!(
                matches!(output.code, Some(0 | 1 | 3)),
                "seed {seed}, round {round}: {:?}: {}",
                output.code,
                output.err
            );
            assert!(!output.err.contains("panicked"), "seed {seed}, round {round}: {}", output.err);
        }
        assert!(begin.elapsed() < LONG, "seed {seed}, round {round}: {:?}", begin.elapsed());
    }
}

/// What each of these has been, or might be.
#[test]
fn numbers_at_their_ends_are_taken() {
    let place = Place::new("ends");
    let most = u64::MAX.to_string();
    let write = |time: u128| {
        for rank in 0..2 {
            place.write_counted("000000", (rank, 2), (time, "null"), (1, ""), &all_reduce(1, 5));
        }
    };
    write(1);
    place.change("000000", 0, "\"size\": 2", &format!("\"size\": {most}"));
    assert!(place.told().contains("rank 0 has left no dump"), "{}", place.told());
    write(u64::MAX.into());
    place.change("000000", 0, "\"collectives\": 1", &format!("\"collectives\": {most}"));
    assert!(place.told().contains("rank 1 has not"), "{}", place.told());
    // A key that is cut within a letter.
    write(1);
    for rank in 0..2 {
        place.change("000000", rank, "0000000000000000", "€€€€");
    }
    assert!(place.told().starts_with("communicator €€€€, 2 ranks"), "{}", place.told());
}

#[test]
fn what_ras_has_said_and_is_cut_off_does_not_hide_the_dumps() {
    let place = Place::new("cut-ras");
    for rank in 0..2 {
        place.write_counted("000000", (rank, 2), (1, "null"), (1, ""), &all_reduce(1, 5));
    }
    let cut = place.0.join("ras-here-1.json");
    fs::write(&cut, "{\"schema\": \"gpucomm-ra").unwrap();
    let whole = "{\"schema\": \"gpucomm-ras/1\", \"time_ns\": 5, \"answer\": \"{\\\"communicators\\\": []}\"}";
    fs::write(place.0.join("ras-here-2.json"), whole).unwrap();
    let output = harness::run(&["diagnose", place.0.to_str().unwrap()]);
    assert_eq!(output.code, Some(3), "{}", output.err);
    assert!(
        output.out.contains("2 ranks: all have come") && output.out.contains("knows of no communicator"),
        "{}",
        output.out
    );
    assert!(output.err.contains("ras-here-1.json: not valid JSON"), "{}", output.err);
    // That was asked for by its name.
    assert_eq!(harness::run(&["diagnose", cut.to_str().unwrap()]).code, Some(1));
}
