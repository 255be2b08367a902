//! Where the PEs of a job meet: in a file by the name of the job, PE 0 says what leads to their segment.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::meet::plan::Plan;
use crate::meet::register;
use crate::meet::segment::Id;
use crate::nvshmem::basics::entry::{Outcome, refused};
use crate::report;
use crate::settings::settings;
use crate::sys::NVSHMEMX_ERROR_INTERNAL;

/// How often a PE looks whether PE 0 has come.
const LOOK: Duration = Duration::from_millis(1);

/// What PE 0 has written. Gone when this is: by then all have come, or will not.
#[derive(Debug)]
pub(crate) struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Says, as PE 0 of the job of that name, where the others come to.
pub(crate) fn open<P: Plan>(name: &str) -> Outcome<(Id, Written)> {
    let failed = |what: String| refused(NVSHMEMX_ERROR_INTERNAL, format!("no place for {name} to meet: {what}"));
    let id = register::create::<P>().map_err(|trouble| failed(format!("{trouble:?}")))?;
    let (path, own) = (path(name), path(&format!("{name} of {}", std::process::id())));
    let write = || -> io::Result<()> {
        let _ = fs::remove_file(&own);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own)?;
        file.write_all(&id.words().map(u64::to_le_bytes).concat())?;
        // All at once: nobody reads a part of it. What a job of that name has left behind goes.
        fs::rename(&own, &path)
    };
    write().map_err(|error| failed(format!("{}: {error}", path.display())))?;
    Ok((id, Written(path)))
}

/// Comes, as another PE, to where PE 0 has said. As in the library, that is waited for for ever.
pub(crate) fn come<P: Plan>(name: &str, me: i32) -> Id {
    let (path, begin) = (path(name), Instant::now());
    let mut patience = settings().deadlock;
    loop {
        // An id of a job that has ended leads nowhere.
        if let Some(id) = read(&path).filter(|id| register::open::<P>(*id).is_ok()) {
            return id;
        }
        if patience.is_some_and(|patience| begin.elapsed() > patience) {
            report::line(format!("PE {me} waits for PE 0 of {name}, which has not come"));
            patience = None;
        }
        std::thread::sleep(LOOK);
    }
}

fn read(path: &PathBuf) -> Option<Id> {
    let bytes: [u8; 32] = fs::read(path).ok()?.try_into().ok()?;
    Some(Id::from_words(std::array::from_fn(|word| {
        u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * word + byte]))
    })))
}

/// A name may hold anything.
fn path(name: &str) -> PathBuf {
    let hash = |seed: u64| {
        name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(5))
    };
    // SAFETY: asks a number of this process, and cannot fail.
    let user = unsafe { libc::getuid() };
    std::env::temp_dir().join(format!("gpucomm-job-{user}-{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meet::plan::bare::Bare;

    fn name(what: &str) -> String {
        format!("{what} of test process {}", std::process::id())
    }

    #[test]
    fn who_comes_first_waits_for_what_pe_0_says() {
        let name = name("waits");
        let comes = std::thread::spawn({
            let name = name.clone();
            move || come::<Bare>(&name, 1)
        });
        std::thread::sleep(20 * LOOK);
        assert!(!comes.is_finished());
        let (id, written) = open::<Bare>(&name).expect("a place");
        assert_eq!(comes.join().expect("no panic"), id);
        drop(written);
        assert!(!path(&name).exists());
    }

    /// What a job of that name has left behind leads nowhere, whatever it is.
    #[test]
    fn what_was_left_behind_is_passed_over() {
        let name = name("left");
        let (id, written) = open::<Bare>(&name).expect("a place");
        std::mem::forget(written);
        let [words @ .., _] = id.words();
        // As of a process of that number that was born at another time, and has ended.
        let gone = [words[0], words[1] & !0xffff_ffff | u64::from(u32::MAX), words[2] ^ 2, 7];
        for left in [gone.map(u64::to_le_bytes).concat(), b"half".to_vec(), Vec::new()] {
            fs::write(path(&name), left).expect("what is left");
            let comes = std::thread::spawn({
                let name = name.clone();
                move || come::<Bare>(&name, 1)
            });
            std::thread::sleep(20 * LOOK);
            assert!(!comes.is_finished());
            let (id, _written) = open::<Bare>(&name).expect("a place");
            assert_eq!(comes.join().expect("no panic"), id);
        }
    }

    #[test]
    fn jobs_of_other_names_have_other_places() {
        assert_ne!(path("a"), path("b"));
        assert_ne!(path("job 1, start 0"), path("job 1, start 1"));
    }
}
