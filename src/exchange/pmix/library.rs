//! The functions of vendor/shim that call PMIx. Any thread may call them; those that ask the server
//! may wait for as long as they like.

use std::ffi::{CStr, c_int};

use crate::sys::pmix as sys;

/// The longest value that is taken, in bytes.
const MAX_VALUE: usize = 64 << 10;

/// The longest list of the ranks of a node, in bytes.
const MAX_PEERS: usize = 64 << 10;

/// Under which rank 0 says where it is. PMIx keeps it for one start of the job: another one reads
/// nothing of it.
const KEY: &CStr = c"gpucomm.exchange";

/// What PMIx says where it fails.
pub(super) type Said<T> = Result<T, String>;

/// A rank of PMIx, and what the job is to it.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) local_rank: u32,
    pub(super) local_size: u32,
    /// The ranks of this node.
    pub(super) peers: String,
}

/// Who has ended, as PMIx has told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Rank(usize, String),
    Server(String),
}

/// Wraps `PMIx_Init`, which a process calls once, and `PMIx_Get` of what it says of the job.
pub(super) fn init() -> Said<Job> {
    let mut rank = 0;
    // SAFETY: writes a number to the place given; what calls this does so once a process.
    said("PMIx_Init", unsafe { sys::gpucommPmixInit(&raw mut rank) })?;
    let job = job(rank);
    if job.is_err() {
        // Why it cannot begin is what is said; a launcher would take a process that has not left
        // PMIx for one that has died.
        let _ = finalize();
    }
    job
}

/// What PMIx, which runs, says of the job.
fn job(rank: u32) -> Said<Job> {
    let number = |what: &str, ask: unsafe extern "C" fn(*mut u32) -> c_int| {
        let mut number = 0;
        // SAFETY: PMIx runs, and writes a number to the place given.
        said(what, unsafe { ask(&raw mut number) }).map(|()| number)
    };
    let size = number("PMIx_Get of PMIX_JOB_SIZE", sys::gpucommPmixSize)?;
    let local_size = number("PMIx_Get of PMIX_LOCAL_SIZE", sys::gpucommPmixLocalSize)?;
    let local_rank = number("PMIx_Get of PMIX_LOCAL_RANK", sys::gpucommPmixLocalRank)?;
    let mut text = vec![0u8; MAX_PEERS];
    // SAFETY: PMIx runs, and writes a text that ends with 0 and has at most as many bytes as are
    // given.
    let status = unsafe { sys::gpucommPmixLocalPeers(text.as_mut_ptr().cast(), text.len()) };
    said("PMIx_Get of PMIX_LOCAL_PEERS", status)?;
    let peers = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned();
    Ok(Job { rank, size, local_rank, local_size, peers })
}

/// Wraps `PMIx_Put` and `PMIx_Commit`: what rank 0 tells all.
pub(super) fn tell(bytes: &[u8]) -> Said<()> {
    // SAFETY: the key and the bytes are only read, and copied.
    said("PMIx_Put", unsafe { sys::gpucommPmixPut(KEY.as_ptr(), bytes.as_ptr().cast(), bytes.len()) })
}

/// Wraps `PMIx_Get`: what rank 0 tells all, or `None` where it has not done so after `seconds`.
pub(super) fn told(seconds: c_int) -> Said<Option<Vec<u8>>> {
    let mut bytes = vec![0u8; MAX_VALUE];
    let mut len = 0;
    // SAFETY: the key is only read; at most as many bytes are written as are given, and their
    // number to the place given.
    let status =
        unsafe { sys::gpucommPmixGet(0, KEY.as_ptr(), seconds, bytes.as_mut_ptr().cast(), bytes.len(), &raw mut len) };
    if status == sys::GPUCOMM_PMIX_NOT_YET {
        return Ok(None);
    }
    said("PMIx_Get of what rank 0 says", status)?;
    bytes.truncate(len);
    Ok(Some(bytes))
}

/// Wraps `PMIx_Finalize`.
pub(super) fn finalize() -> Said<()> {
    // SAFETY: takes nothing. What this crate calls of PMIx afterwards needs none that runs.
    said("PMIx_Finalize", unsafe { sys::gpucommPmixFinalize() })
}

/// The first of the other ranks that is known to have ended, or the server. Does not wait.
pub(super) fn end() -> Option<End> {
    let (mut rank, mut how) = (0, 0);
    // SAFETY: writes two numbers to the places given.
    if unsafe { sys::gpucommPmixDeath(&raw mut rank, &raw mut how) } == 0 {
        return None;
    }
    Some(match usize::try_from(rank) {
        Ok(at) if rank != sys::GPUCOMM_PMIX_SERVER => End::Rank(at, text(how)),
        _ => End::Server(text(how)),
    })
}

fn said(what: &str, status: c_int) -> Said<()> {
    if status == 0 { Ok(()) } else { Err(format!("{what} says {} ({status})", text(status))) }
}

/// What a code means.
fn text(code: c_int) -> String {
    // SAFETY: takes any number.
    let text = unsafe { sys::gpucommPmixError(code) };
    // SAFETY: it is null or a text that ends with 0 and lasts as long as the process.
    if text.is_null() { "nothing".to_owned() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
}
