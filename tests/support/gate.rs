//! Host functions that hold up streams until the program lets them go on.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gpucomm::{Result, Stream};

/// Longer than any part of a program takes that is right: the process of a failed one goes on.
const PATIENCE: Duration = Duration::from_secs(600);

/// Opens when it is dropped.
#[derive(Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Work that `stream` is given from now on begins when the gate is open.
    pub fn hold(&self, stream: &Stream) -> Result<()> {
        let shared = Arc::clone(&self.0);
        stream.launch_host(move || {
            let (open, changed) = &*shared;
            let open = open.lock().unwrap_or_else(PoisonError::into_inner);
            drop(changed.wait_timeout_while(open, PATIENCE, |open| !*open));
        })
    }

    pub fn open(&self) {
        let (open, changed) = &*self.0;
        *open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}
