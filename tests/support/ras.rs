//! A service that speaks as NCCL's RAS does (`src/ras/client_support.cc` of 2.28.9 and 2.30.7).

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How it misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "not all tests have all of them")]
pub enum Manner {
    Well,
    /// As NCCL before 2.28.7, which has no formats.
    Old,
    /// Takes the question, and never answers.
    Silent,
    /// Hangs up instead of an answer.
    Leaves,
    /// Answers byte by byte.
    Slow,
    /// Is another program.
    Other,
}

/// The service, on a port of its own, until the process ends.
pub struct Service {
    pub address: String,
    /// The lines that it was sent.
    #[allow(dead_code, reason = "not for all tests")]
    pub heard: Arc<Mutex<Vec<String>>>,
}

impl Service {
    pub fn new(manner: Manner, status: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (lines, status) = (Arc::clone(&heard), status.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = talk(stream.expect("a client"), manner, &status, &lines);
            }
        });
        Self { address, heard }
    }
}

fn talk(mut stream: TcpStream, manner: Manner, status: &str, heard: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut json = false;
    for line in BufReader::new(stream.try_clone()?).lines() {
        let line = line?;
        heard.lock().unwrap().push(line.clone());
        let command = line.to_lowercase();
        let answer = if manner == Manner::Other {
            "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned()
        } else if command.starts_with("client protocol ") {
            "SERVER PROTOCOL 2\n".to_owned()
        } else if let Some(timeout) = command.strip_prefix("timeout ") {
            match timeout.parse::<u32>() {
                Ok(_) => "OK\n".to_owned(),
                Err(_) => format!("ERROR: Invalid timeout value {timeout}\n"),
            }
        } else if command == "set format json" && manner != Manner::Old {
            json = true;
            "OK\n".to_owned()
        } else if matches!(command.as_str(), "status" | "verbose status") {
            match manner {
                Manner::Silent => {
                    std::thread::sleep(Duration::from_secs(30));
                    return Ok(());
                }
                Manner::Leaves => return Ok(()),
                Manner::Slow => {
                    for byte in status.bytes() {
                        stream.write_all(&[byte])?;
                    }
                }
                _ if json => stream.write_all(status.as_bytes())?,
                _ => stream.write_all(b"NCCL version 2.28.9 compiled with CUDA 13.0\n")?,
            }
            // It hangs up when it is done.
            return Ok(());
        } else {
            format!("ERROR: Unknown command {line}\n")
        };
        stream.write_all(answer.as_bytes())?;
    }
    Ok(())
}

/// One communicator as NCCL writes it: the numbers of all_reduces that its ranks have issued, and who is missing: whether it does not
/// answer, and whether it counts as dead. NCCL 2.28.7 and 2.28.9 forget a comma.
pub fn status(counts: &[(usize, u64)], missing: &[(usize, bool, bool)], forgets: bool) -> String {
    let ranks: Vec<_> = counts.iter().map(|(rank, count)| one(*rank, *count)).collect();
    let comma = if forgets { "" } else { "," };
    let missing: Vec<_> = missing.iter().map(|(rank, silent, dead)| lost(*rank, *silent, *dead, comma)).collect();
    format!(
        "{{\n  \"nccl_version\": \"2.28.9\",\n  \"cuda_runtime_version\": 13000,\n  \"cuda_driver_version\": 13000,\n  \
         \"timestamp\": \"2026-11-23 16:00:00\",\n  \"communicators_count\": 1,\n  \"communicators\": [\n    {{\n      \
         \"hash\": \"0xabc\",\n      \"secondary_hash\": \"0x1:0x2\",\n      \"size\": {},\n      \"ranks_count\": {},\n      \
         \"missing_ranks_count\": {},\n      \"ranks\": [\n{}\n      ],\n      \"missing_ranks\": [\n{}\n      ]\n    }}\n  ],\n  \
         \"ras\": {{\n    \"collection_time_sec\": 0.001,\n    \"timeouts_count\": 0\n  }}\n}}\n",
        ranks.len() + missing.len(),
        ranks.len(),
        missing.len(),
        ranks.join(",\n"),
        missing.join(",\n"),
    )
}

fn one(rank: usize, count: u64) -> String {
    format!(
        "        {{\n          \"rank\": {rank},\n          \"host\": \"10.0.0.{rank}\",\n          \"pid\": {},\n          \
         \"cuda_dev\": {rank},\n          \"nvml_dev\": {rank},\n          \"status\": {{\n            \"init_state\": 0,\n            \
         \"async_error\": {},\n            \"finalize_called\": false,\n            \"destroy_flag\": false,\n            \
         \"abort_flag\": {}\n          }},\n          \"collective_counts\": {{\n            \"Broadcast\": 7,\n            \
         \"AllReduce\": {count}\n          }}\n        }}",
        100 + rank,
        if rank == 5 { 6 } else { 0 },
        rank == 6,
    )
}

fn lost(rank: usize, silent: bool, dead: bool, comma: &str) -> String {
    format!(
        "        {{\n          \"rank\": {rank},\n          \"host\": \"10.0.0.{rank}\",\n          \"pid\": {},\n          \
         \"cuda_dev\": {rank},\n          \"nvml_dev\": {rank}{comma}\n          \"status\": {{\n            \
         \"unresponsive\": {silent},\n            \"considered_dead\": {dead}\n          }}\n        }}",
        100 + rank,
    )
}
