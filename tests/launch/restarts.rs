//! Runs that follow each other at one store: what one has left there, the next does not read.

use std::collections::HashSet;

use gpucomm::exchange::{C10dPlace, TcpPlace};
use gpucomm::{Launch, Result, UniqueId};

use crate::support::{free_port, new_path, said, spawn};

/// One rank of a run: it learns an id, and says which. Some die before they say goodbye.
pub fn restart() -> Result<()> {
    let launch = Launch::from_env()?;
    let exchange = launch.join()?;
    let id = UniqueId::shared(&exchange)?;
    println!("id: {:?}", &id.as_bytes()[..]);
    println!("generation: {}", exchange.generation());
    // Whoever has the id may die: the others have it, too.
    exchange.barrier()?;
    if fastrand::usize(..3) == launch.rank() {
        std::process::abort();
    }
    Ok(())
}

fn run(set: &str, ids: &mut HashSet<String>) {
    let children: Vec<_> = (0..2).map(|rank| spawn("restart", &set.replace("{rank}", &rank.to_string()))).collect();
    let told: Vec<_> =
        children.into_iter().map(|child| String::from_utf8_lossy(&child.output().stdout).into_owned()).collect();
    let of = told.iter().map(|text| said(text, "id: ").to_owned()).collect::<Vec<_>>();
    assert_eq!(of[0], of[1]);
    assert!(ids.insert(of[0].clone()), "an id of an earlier run");
}

#[test]
fn no_run_reads_the_id_of_another_one() {
    // The store of an agent, which stays.
    let agent = C10dPlace::new("127.0.0.1:0").serve(1).unwrap();
    let port = agent.address().rsplit(':').next().unwrap().to_owned();
    let mut ids = HashSet::new();
    for count in 0..25 {
        // Not even the number of the restart need be right.
        run(
            &format!(
                "RANK={{rank}} WORLD_SIZE=2 LOCAL_RANK={{rank}} LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={port} \
                 TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=one TORCHELASTIC_RESTART_COUNT={}",
                count / 2
            ),
            &mut ids,
        );
    }
    let (path, port) = (new_path(), free_port());
    let server = TcpPlace::new("127.0.0.1:0").host().unwrap();
    for store in [
        format!("file://{}", path.display()),
        format!("tcp://127.0.0.1:{port}"),
        format!("c10d://127.0.0.1:{port}"),
        format!("server://{}", server.address()),
    ] {
        for _ in 0..9 {
            run(&format!("GPUCOMM_RANK={{rank}} GPUCOMM_SIZE=2 GPUCOMM_STORE={store}"), &mut ids);
        }
    }
    std::fs::remove_dir_all(path).unwrap();
    assert_eq!(ids.len(), 61);
}
