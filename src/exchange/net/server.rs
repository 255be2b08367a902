//! The thread of a server, as the process that has started it holds it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

/// A server and its thread.
#[derive(Debug)]
pub(in crate::exchange) struct Server {
    pub(in crate::exchange) address: SocketAddr,
    control: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Runs what `make` makes of `listener` and of the connection at which the thread is told to end.
    pub(in crate::exchange) fn start<R: FnOnce() + Send + 'static>(
        listener: TcpListener,
        make: impl FnOnce(TcpListener, UnixStream) -> io::Result<R>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (control, ours) = UnixStream::pair()?;
        let run = make(listener, ours)?;
        let thread = std::thread::Builder::new().name("gpucomm-exchange".to_owned()).spawn(run)?;
        Ok(Self { address, control: Some(control), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Closed, it asks the thread to end when all others have left; with a byte before, at once.
        if let Some(control) = self.control.take()
            && std::thread::panicking()
        {
            let _ = io::Write::write(&mut &control, &[1]);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
