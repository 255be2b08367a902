//! The same for people.

use gpucomm::known_bugs::BugStatus;
use serde_json::Value;

use crate::size::human;

/// The lines of `gpucomm info`; `verbose` lists all known bugs.
pub fn lines(info: &Value, verbose: bool) -> Vec<String> {
    let mut lines = vec![
        text(&info["program"]),
        match info["backend"].as_str() {
            Some("emulator") => "back end       CPU emulator: no GPU is used".to_owned(),
            _ => "back end       NVIDIA libraries".to_owned(),
        },
    ];
    for (name, key, what) in [
        ("NCCL", "nccl", "no communicator will be made"),
        ("NVSHMEM", "nvshmem", "it will not be started"),
        ("CUDA runtime", "cuda_runtime", "no device will be used"),
    ] {
        let library = &info["libraries"][key];
        if library.is_null() {
            continue;
        }
        lines.push(format!(
            "{name:<13}  {} is running, built for {}",
            text(&library["running"]),
            text(&library["built_for"])
        ));
        if let Some(refused) = library["refused"].as_str() {
            lines.push(format!("  refused      {what}: {refused}"));
        }
        for (what, key) in [
            ("headers", "headers"),
            ("linked", "library"),
            ("found by", "found_by"),
            ("loaded", "loaded"),
            ("NCCL", "collectives"),
        ] {
            if let Some(value) = library[key].as_str() {
                lines.push(format!("  {what:<11}  {value}"));
            }
        }
    }
    lines.push(match text(&info["driver"]) {
        driver if driver.starts_with(|c: char| c.is_ascii_digit()) => format!("driver         supports CUDA {driver}"),
        driver => format!("driver         {driver}"),
    });
    if let Value::String(why) = &info["ranks"] {
        lines.push(format!("ranks          {why}"));
    }
    if let Value::Array(ranks) = &info["ranks"] {
        lines.push(String::new());
        lines.push(format!("{} ranks, started by {}", ranks.len(), text(&ranks[0]["launcher"])));
        lines.extend(ranks.iter().map(|rank| {
            let (host, pid) = (text(&rank["host"]), &rank["pid"]);
            format!("  rank {:<4}  {host}, pid {pid}, device {}", rank["rank"], text(&rank["device"]))
        }));
    }
    lines.push(String::new());
    match &info["devices"] {
        Value::Array(devices) => {
            devices.iter().for_each(|one| lines.extend(device(one)));
            if devices.len() > 1 {
                lines.push(String::new());
                lines.extend(links(devices));
            }
        }
        error => {
            let why = if info["no_gpu"].is_null() { error } else { &info["no_gpu"] };
            lines.push(format!("no usable GPU: {}", text(why)));
        }
    }
    lines.push(String::new());
    lines.push(match info["backend"].as_str() {
        Some("emulator") => "What the emulated NCCL can do here".to_owned(),
        _ => "What NCCL can do here".to_owned(),
    });
    for capability in info["capabilities"].as_array().into_iter().flatten() {
        let (name, says) = (text(&capability["name"]), text(&capability["says"]));
        let mark = if capability["available"] == true { "yes" } else { "no " };
        lines.push(format!("  {mark}  {name:<28} {says}"));
    }
    match &info["probe"] {
        Value::Null => {
            lines.push("  (by versions; `gpucomm info --probe` starts NCCL on all GPUs and tries it)".to_owned())
        }
        probe => lines.extend(tried(probe)),
    }
    lines.extend(bugs(info, verbose));
    lines
}

/// Those that gpucomm goes around by their names, and how many others there are; all, with what is done about them, if `verbose`.
fn bugs(info: &Value, verbose: bool) -> Vec<String> {
    let bugs = info["known_bugs"].as_array().map_or(&[][..], |bugs| &bugs[..]);
    if bugs.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "Known bugs of the versions that are running".to_owned()];
    if verbose {
        for bug in bugs {
            let [library, name, status] = ["library", "name", "status"].map(|key| text(&bug[key]));
            lines.push(format!("  {status:<13}  {library} {name}: {}", text(&bug["what"])));
            lines.push(format!("  {:<13}  {}", "", text(&bug["how"])));
        }
    } else {
        let (active, others): (Vec<_>, Vec<_>) =
            bugs.iter().partition(|bug| bug["status"] == BugStatus::WorkedAround.name());
        lines.extend(active.iter().map(|bug| {
            let [library, name, status] = ["library", "name", "status"].map(|key| text(&bug[key]));
            format!("  {status:<13}  {library} {name}")
        }));
        let more = if active.is_empty() { "" } else { " more" };
        let others = if others.is_empty() { String::new() } else { format!("{}{more}; ", others.len()) };
        lines.push(format!("  ({others}`gpucomm info --verbose` says what happens, and what is done about it)"));
    }
    if info["backend"] == "emulator" {
        lines.push("  (the emulator has those that GPUCOMM_EMULATOR_BUGS asks for)".to_owned());
    }
    lines
}

fn tried(probe: &Value) -> Vec<String> {
    if let Some(error) = probe.as_str() {
        return vec![String::new(), format!("Tried on all GPUs: {error}")];
    }
    let windows = if probe["symmetric_windows"] == true { "yes" } else { "no" };
    vec![
        String::new(),
        format!("Tried on all GPUs, {} ranks", text(&probe["ranks"])),
        format!("  start              {:.3} s", probe["start_seconds"].as_f64().unwrap_or(f64::NAN)),
        format!("  symmetric windows  {windows}"),
        format!("  all_reduce         {}", text(&probe["all_reduce"])),
    ]
}

fn device(device: &Value) -> [String; 2] {
    let memory = device["memory_bytes"].as_u64().map_or("unknown".to_owned(), |bytes| human(bytes as usize));
    let has = |key: &str| match device[key].as_bool() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    [
        format!(
            "device {:<3}  {}, compute capability {}, {memory}, {} multiprocessors",
            text(&device["ordinal"]),
            text(&device["name"]),
            text(&device["compute_capability"]),
            text(&device["multiprocessors"]),
        ),
        format!(
            "            {}  {}  memory pools: {}, GPUDirect RDMA: {}",
            text(&device["pci"]),
            text(&device["uuid"]),
            has("memory_pools"),
            has("gpu_direct_rdma"),
        ),
    ]
}

/// A matrix: the performance rank from row to column, `-` where there is no direct access.
fn links(devices: &[Value]) -> Vec<String> {
    let mut lines = vec!["Direct access from row to column: performance rank, 0 is the fastest, - is none".to_owned()];
    let columns: String = devices.iter().map(|device| format!("{:>4}", text(&device["ordinal"]))).collect();
    lines.push(format!("      {columns}"));
    for device in devices {
        let mut line = format!("  {:>4}", text(&device["ordinal"]));
        for link in device["links"].as_array().into_iter().flatten() {
            let cell = match (link, link["access"].as_bool()) {
                (Value::Null, _) => ".".to_owned(),
                (_, Some(true)) => link["performance_rank"].as_i64().map_or("?".to_owned(), |rank| rank.to_string()),
                (_, Some(false)) => "-".to_owned(),
                (_, None) => "?".to_owned(),
            };
            line += &format!("{cell:>4}");
        }
        lines.push(line);
    }
    lines
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "unknown".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn bugs_are_named_with_what_is_done() {
        let bug = json!({ "library": "NCCL", "name": "a-bug", "what": "wrong data", "status": "documented", "how": "beware" });
        let lines = super::bugs(&json!({ "backend": "nvidia", "known_bugs": [bug] }), true);
        assert_eq!(lines[2..], ["  documented     NCCL a-bug: wrong data", "                 beware"]);
        assert!(super::bugs(&json!({ "known_bugs": [] }), true).is_empty());
    }

    #[test]
    fn without_verbose_only_what_is_worked_around_is_named() {
        let bug = |name: &str, status: &str| json!({ "library": "NCCL", "name": name, "what": "wrong data", "status": status, "how": "beware" });
        let of = |bugs: &[serde_json::Value]| super::bugs(&json!({ "backend": "nvidia", "known_bugs": bugs }), false);
        let says = "`gpucomm info --verbose` says what happens, and what is done about it)";
        let (around, open) = (bug("a", "worked around"), bug("b", "documented"));
        assert_eq!(
            of(&[around.clone(), open.clone()])[2..],
            ["  worked around  NCCL a".to_owned(), format!("  (1 more; {says}")]
        );
        assert_eq!(of(&[open])[2..], [format!("  (1; {says}")]);
        assert_eq!(of(&[around])[2..], ["  worked around  NCCL a".to_owned(), format!("  ({says}")]);
    }

    #[test]
    fn a_library_that_is_too_old_is_said_to_be_refused() {
        let library = |refused: Option<&str>| json!({ "running": "2.27.7", "built_for": "2.28.9", "refused": refused });
        let of = |nccl| super::lines(&json!({ "libraries": { "nccl": nccl, "cuda_runtime": library(None) } }), false);
        let lines = of(library(Some("2.28.9 is needed")));
        let line = lines.iter().position(|line| line.starts_with("NCCL")).expect("a line for NCCL");
        assert_eq!(lines[line], "NCCL           2.27.7 is running, built for 2.28.9");
        assert_eq!(lines[line + 1], "  refused      no communicator will be made: 2.28.9 is needed");
        assert!(!of(library(None)).iter().any(|line| line.contains("refused")));
        // It is not there without its feature.
        assert!(!lines.iter().any(|line| line.starts_with("NVSHMEM")));
    }
}
