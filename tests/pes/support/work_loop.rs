//! A thread that always has work under way on a device, as a training loop does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use gpucomm::{Device, Stream};

/// A thread that keeps two operations of a device under way until this is dropped.
#[derive(Debug)]
pub struct WorkLoop {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WorkLoop {
    /// Starts it with operations that take so long. Returns once the first one runs.
    pub fn start(device: Device, each: Duration) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        let (begun, begins) = sync_channel(0);
        let run = move || {
            let stream = Stream::new(device).unwrap();
            let (done, is_done) = sync_channel(2);
            let launch = || {
                let done = done.clone();
                let work = move || {
                    std::thread::sleep(each);
                    done.send(()).unwrap();
                };
                stream.launch_host(work).unwrap();
            };
            launch();
            launch();
            begun.send(()).unwrap();
            while !until.load(Ordering::SeqCst) {
                is_done.recv().unwrap();
                launch();
            }
            stream.synchronize().unwrap();
        };
        let thread = Some(std::thread::spawn(run));
        begins.recv().unwrap();
        Self { ends, thread }
    }
}

impl Drop for WorkLoop {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.take().map(JoinHandle::join);
    }
}
