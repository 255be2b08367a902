//! Under the launcher of these tests, which tells who has ended.

use std::net::TcpListener;
use std::process::Command;
use std::time::Instant;

use crate::launchers::{rank, run, serve};
use crate::ranks::PATIENCE;
use crate::slower::slower;

#[test]
fn ranks_meet_and_sum_up() {
    let finished = serve("meet", 60.0);
    finished.assert_success();
    for rank in 0..4 {
        assert!(finished.text.contains(&format!("rank {rank} of 4 has the sum")), "{}", finished.text);
    }
}

/// That all but rank `dead` say at once that it has ended.
#[track_caller]
fn named(role: &str, dead: usize) {
    let begin = Instant::now();
    let finished = serve(role, PATIENCE / 2.0);
    assert!(begin.elapsed() < slower(PATIENCE / 2.0));
    assert_eq!(finished.status.code(), Some(1), "only one ends badly: {}", finished.text);
    for rank in (0..4).filter(|rank| *rank != dead) {
        let line = finished.text.lines().find(|line| line.contains(&format!("rank {rank} says: ")));
        let line = line.unwrap_or_else(|| panic!("rank {rank} says nothing: {}", finished.text));
        assert!(line.contains(&format!(": rank {dead} has ended before all have met")), "{line}");
        assert!(line.contains("PROC") && line.contains("[Departed]"), "{line}");
    }
}

#[test]
fn who_dies_before_it_has_met_is_named() {
    named("dies before it has met", 2);
}

#[test]
fn rank_0_that_dies_before_it_has_met_is_named() {
    named("rank 0 dies before it has met", 0);
}

#[test]
fn rank_0_that_never_comes_is_named() {
    named("rank 0 never comes", 0);
}

const GONE: &str = "\"PMIx\": the server of PMIx is gone: ";

#[test]
fn a_server_that_dies_is_noticed() {
    let finished = serve("the server dies", PATIENCE / 2.0);
    assert_eq!(finished.status.code(), Some(99), "{}", finished.text);
    for rank in [0, 1, 3] {
        let said = finished.text.lines().find(|line| line.contains(&format!("rank {rank} says: ")));
        let said = said.unwrap_or_else(|| panic!("rank {rank} says nothing: {}", finished.text));
        // Who hears of it first leaves as well.
        let of_rank_0 = rank != 0 && said.contains("rank 0 has ended");
        assert!(said.contains(GONE) || said.contains("\"PMIx\": PMIx_") || of_rank_0, "{said}");
    }
    assert!(finished.text.contains(GONE), "{}", finished.text);
}

#[test]
fn who_dies_later_leaves_the_others_alive() {
    let finished = serve("dies after all have met", 60.0);
    assert_eq!(finished.status.code(), Some(1), "only one ends badly: {}", finished.text);
    for rank in [0, 2, 3] {
        assert!(finished.text.contains(&format!("rank {rank} goes on")), "{}", finished.text);
    }
    assert!(finished.text.contains(": rank 1 has died"), "{}", finished.text);
}

/// A rank without a launcher, with these variables, and what it says.
fn alone(set: &[(&str, &str)]) -> String {
    let all = rank();
    let mut command = Command::new(&all[0]);
    command.args(&all[1..]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PMIX_") {
            command.env_remove(name);
        }
    }
    command.envs(set.iter().copied());
    let finished = run(command, "waits a second", PATIENCE / 2.0);
    finished.assert_success();
    let said = finished.text.split_once("says: ").expect("it says something").1;
    said.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn without_a_launcher_it_says_what_is_missing() {
    let said = alone(&[]);
    assert!(said.starts_with("PmixPlace::new_timeout: \"PMIx\": expected PMIX_NAMESPACE and PMIX_RANK, as "), "{said}");
    assert!(said.ends_with("got PMIX_NAMESPACE unset, PMIX_RANK unset"), "{said}");
    let said = alone(&[("PMIX_RANK", "3"), ("PMIX_NAMESPACE", "")]);
    assert!(said.ends_with("got PMIX_NAMESPACE unset, PMIX_RANK=3"), "{said}");
    // There is no server.
    let said = alone(&[("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "nobody")]);
    assert!(said.starts_with("PmixPlace::new_timeout: \"PMIx\": PMIx_Init says "), "{said}");
}

#[test]
fn a_server_that_says_nothing_has_a_deadline() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("mute.0;tcp4://{}", server.local_addr().expect("an address"));
    let mut set = vec![("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "mute"), ("PMIX_SECURITY_MODE", "native")];
    let servers =
        ["PMIX_SERVER_URI5", "PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21"];
    set.extend(servers.map(|name| (name, address.as_str())));
    let said = alone(&set);
    assert_eq!(said, "PmixPlace::new_timeout: not done within 1s: the server of PMIx does not answer");
}
