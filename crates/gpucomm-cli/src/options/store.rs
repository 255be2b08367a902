//! Options of `gpucomm store`.

use clap::Args;

/// What the user wrote.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// The address to listen at, of this host; [::] and 0.0.0.0 are all its addresses, and port 0 is
    /// a free port
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub listen: String,
}

fn address(text: &str) -> Result<String, String> {
    let is_host =
        |host: &str| !host.is_empty() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
    match text.rsplit_once(':') {
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT, such as 0.0.0.0:29400 or [::]:29400".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses() {
        for text in ["127.0.0.1:0", "[::]:29400", "node1:1"] {
            assert_eq!(address(text).as_deref(), Ok(text));
        }
        for text in ["", "node1", ":29400", "::1:29400", "node1:65536", "node1:x"] {
            assert!(address(text).is_err(), "{text:?}");
        }
    }
}
