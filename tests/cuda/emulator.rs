//! What only the emulator has: it notices mistakes, and its variables are never guessed at.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use gpucomm::cuda::DeviceAttribute;
use gpucomm::{Backend, Device, emulator_violations, sys};

use crate::child::{Ended, child, command, is_child, refuses_devices};

const STRICT: &str = "GPUCOMM_EMULATOR_STRICT";

/// Whether this is the emulator; says so where it is not.
pub fn emulated() -> bool {
    let emulated = gpucomm::backend() == Backend::Emulator;
    if !emulated {
        eprintln!("skipped: needs the emulator");
        assert_eq!(emulator_violations(), 0);
    }
    emulated
}

/// Frees what is no device memory.
fn mistake() {
    assert_eq!(emulator_violations(), 0);
    // SAFETY: the emulator looks the address up, and follows no pointer.
    let code = unsafe { sys::cudaFree(std::ptr::without_provenance_mut(64)) };
    assert_eq!(code, sys::cudaError::cudaErrorInvalidValue);
}

#[test]
fn strict_mode_ends_the_process_at_the_first_violation() {
    if !emulated() {
        return;
    }
    let Ended { status, text } =
        child("emulator::strict_mode_ends_the_process_at_the_first_violation", &[(STRICT, "1")], || {
            mistake();
            println!("went on");
        });
    assert_eq!(status.code(), Some(86), "{text}");
    assert!(text.contains("gpucomm emulator: violation: cudaFree: 0x40 is no device memory"), "{text}");
    assert!(!text.contains("went on"), "{text}");
}

/// Or a violation would pass in all other tests.
#[test]
fn strict_mode_is_on_in_all_that_cargo_runs() {
    if emulated() {
        assert!(std::env::var_os(STRICT).is_some(), ".cargo/config.toml sets it; without cargo, set it by hand");
    }
}

#[test]
fn otherwise_violations_are_counted() {
    if !emulated() {
        return;
    }
    let end = child("emulator::otherwise_violations_are_counted", &[(STRICT, "0")], || {
        mistake();
        assert_eq!(emulator_violations(), 1);
    });
    end.assert_success();
    assert!(end.text.contains("cudaFree: 0x40 is no device memory"), "{}", end.text);
}

/// Each write to it arrives by itself, so that one which is not a whole line is found.
#[test]
fn each_line_is_one_write() {
    const THIS: &str = "emulator::each_line_is_one_write";
    const LINES: u32 = 100;
    if !emulated() {
        return;
    }
    if is_child(THIS) {
        mistake();
        for number in 0..LINES {
            Device::new(0).unwrap().attribute(DeviceAttribute(10_000 + number)).unwrap_err();
        }
        std::process::exit(0);
    }
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut child = command(THIS).env(STRICT, "0").stdout(Stdio::null()).stderr(OwnedFd::from(theirs)).spawn().unwrap();
    let (mut writes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let gone = child.try_wait().unwrap().is_some();
        match ours.recv(&mut buffer) {
            Ok(bytes) => writes.push(String::from_utf8_lossy(&buffer[..bytes]).into_owned()),
            Err(_) if gone => break,
            Err(_) => {}
        }
    }
    assert!(child.wait().unwrap().success(), "{writes:?}");
    assert_eq!(writes.len(), 1 + 1 + LINES as usize, "{writes:?}");
    for line in writes {
        assert!(line.starts_with("gpucomm") && line.find('\n') == Some(line.len() - 1), "{line:?}");
    }
}

#[test]
fn variables_that_cannot_be_understood_are_errors() {
    if !emulated() {
        return;
    }
    for (name, value, expected) in [
        ("DEVICES", "257", "a number from 0 to 256"),
        ("DEVICES", "x", "a number from 0 to 256"),
        ("MEMORY", "much", "bytes of memory"),
        ("DEADLOCK", "soon", "seconds"),
        (STRICT.trim_start_matches("GPUCOMM_EMULATOR_"), "yes", "0 or 1"),
        ("QUIET", "2", "0 or 1"),
        ("FAULTS", "explode=rank0@op1", "seed, die"),
    ] {
        let name = format!("GPUCOMM_EMULATOR_{name}");
        let this = "emulator::variables_that_cannot_be_understood_are_errors";
        let end = refuses_devices(this, (&name, value), &[&*name, value, expected]);
        assert!(!end.text.contains("running on the CPU emulator"), "{}", end.text);
    }
}
