//! examples/train.rs: alone, by several ranks, with one that dies.

use crate::support::{Ended, free_port, new_path, said, slower, spawn};

#[path = "../../examples/train.rs"]
#[allow(dead_code)]
mod example;

/// The arguments of the example, in a child.
const ARGS: &str = "GPUCOMM_TEST_TRAIN";

/// Of loss: sums of several ranks, half of them in `bf16`, are rounded otherwise than those of one.
const TOLERANCE: f32 = 0.02;

/// One rank of the example.
pub fn rank() {
    let args = std::env::var(ARGS).unwrap();
    example::train(args.split(',').filter(|arg| !arg.is_empty()).map(str::to_owned)).unwrap();
}

/// All ranks of a run, with these arguments.
fn train(size: usize, args: &[&str], timeout: f64) -> Vec<Ended> {
    let (store, args) = (free_port(), args.join(","));
    let timeout = slower(timeout).as_millis();
    let set = |rank| {
        format!(
            "GPUCOMM_RANK={rank} GPUCOMM_SIZE={size} GPUCOMM_STORE=tcp://127.0.0.1:{store} GPUCOMM_TIMEOUT={timeout}ms {ARGS}={args}"
        )
    };
    (0..size).map(|rank| spawn("train", &set(rank))).collect()
}

fn loss(text: &str) -> f32 {
    said(text, "loss ").trim().parse().unwrap()
}

fn near(one: f32, other: f32) -> bool {
    (one - other).abs() <= TOLERANCE * one.abs()
}

#[test]
fn the_loss_is_that_of_one_rank() {
    let alone = loss(&train(1, &[], 60.0).remove(0).succeeds());
    for size in [2, 3, 4] {
        let texts: Vec<_> = train(size, &[], 60.0).into_iter().map(Ended::succeeds).collect();
        assert!(near(alone, loss(&texts[0])), "{alone} by one, {} by {size}", loss(&texts[0]));
        assert!(texts[1..].iter().all(|text| !text.contains("loss")));
    }
}

#[test]
fn the_others_go_on_where_one_dies() {
    let alone = loss(&train(1, &[], 60.0).remove(0).succeeds());
    let mut ranks = train(4, &["--die", "2:25"], 6.0);
    let dead = ranks.remove(2).output();
    assert!(!dead.status.success());
    let texts: Vec<_> = ranks.into_iter().map(Ended::succeeds).collect();
    assert!(texts.iter().all(|text| text.contains("3 ranks go on from step 25")), "{texts:?}");
    assert!(near(alone, loss(&texts[0])), "{alone} by one, {texts:?}");
}

#[test]
fn all_start_again_where_one_dies() {
    let alone = loss(&train(1, &[], 60.0).remove(0).succeeds());
    let path = new_path();
    let args = ["--checkpoint", path.to_str().unwrap(), "--die", "1:25"];
    // What a launcher does: it ends the others.
    let mut ranks = train(3, &args, 60.0);
    assert!(!ranks.remove(1).output().status.success());
    drop(ranks);
    let texts: Vec<_> = train(3, &args, 60.0).into_iter().map(Ended::succeeds).collect();
    assert!(texts[0].contains("from step 20 to 40"), "{texts:?}");
    assert!(near(alone, loss(&texts[0])), "{alone} by one, {texts:?}");
    std::fs::remove_file(path).unwrap();
}
