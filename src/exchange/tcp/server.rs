//! The server of an exchange, as the process of rank 0 holds it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use super::service::Service;

/// The server of an exchange and its thread.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    control: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves those who come to `listener`.
    pub(super) fn start(listener: TcpListener, job: String, size: usize) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (control, ours) = UnixStream::pair()?;
        let service = Service::new(listener, ours, job, size)?;
        let thread = std::thread::Builder::new().name("gpucomm-exchange".to_owned()).spawn(move || service.run())?;
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
