//! `gpucomm store`: a server at which ranks meet, and which is none of them.

use std::process::ExitCode;

use gpucomm::exchange::TcpServer;
use libc::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::{Failure, Result};
use crate::options::StoreArgs;
use crate::output;
use crate::run::{signals, store};

/// Serves until a signal asks the program to end.
pub fn run(args: &StoreArgs) -> Result<ExitCode> {
    let secret = std::env::var_os("GPUCOMM_STORE_SECRET").filter(|secret| !secret.is_empty());
    let is_open = secret.is_none();
    let events = signals::listen()?;
    let server: TcpServer = store::place(&args.listen, secret)?.host().map_err(Failure::run)?;
    let address = server.address();
    if is_open && !address.ip().is_loopback() {
        output::note(&format!(
            "the store at {address} has no secret: every process that reaches it may take part (GPUCOMM_STORE_SECRET sets one)"
        ));
    }
    output::line(&address.to_string())?;
    for signal in events {
        if signals::ends(signal) {
            break;
        }
        if signal == SIGTSTP {
            let _ = emulate_default_handler(SIGTSTP);
        }
    }
    Ok(ExitCode::SUCCESS)
}
