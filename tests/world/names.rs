//! Names of worlds, and of their communicators.

use std::sync::atomic::{AtomicUsize, Ordering};

use gpucomm::nccl::InitOptions;
use gpucomm::world::{Members, World, WorldOptions, requests};
use gpucomm::{Clique, Device};

use crate::support::{turn, world};

fn named(name: &str) -> WorldOptions {
    WorldOptions::new().with_name(name).unwrap()
}

/// What the communicators of a world are called: the text of their errors and dumps.
fn communicators() -> Vec<String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Tests run at the same time.
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let directory = std::env::temp_dir().join(format!("gpucomm-world-names-{process}-{number}"));
    let files = gpucomm::nccl::dump_all(&directory).unwrap();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    let name = |text: String| text.split_once("\"name\": \"").unwrap().1.split_once('"').unwrap().0.to_owned();
    let names = texts.map(name).collect();
    std::fs::remove_dir_all(directory).unwrap();
    names
}

#[test]
fn a_world_has_a_name() {
    let plain = world(1, WorldOptions::new());
    assert_eq!(plain.name(), "world");
    drop(plain);
    for (options, name, communicator) in [
        (named("experts"), "experts", "experts"),
        (WorldOptions::new().with_init(InitOptions::new().with_name("the ranks").unwrap()), "the ranks", "the ranks"),
        (named("outside").with_init(InitOptions::new().with_name("inside").unwrap()), "outside", "inside"),
    ] {
        let world = world(2, options);
        assert_eq!(world.name(), name);
        assert!(format!("{world:?}").contains(&format!("name: {name:?}")), "{world:?}");
        world.fail("a test");
        world.rebuild(Members::Same).unwrap();
        world.barrier().wait().unwrap();
        assert_eq!(world.name(), name);
        // Those of other tests have other names.
        assert!(communicators().iter().any(|one| one == communicator), "{:?}", communicators());
    }
}

#[test]
fn a_world_of_a_clique_has_its_name() {
    turn();
    let clique = || {
        let options = InitOptions::new().with_name("a clique of names").unwrap();
        Clique::init_all_with(&Device::all().unwrap()[..1], &options).unwrap()
    };
    let plain = World::of_clique(clique(), &WorldOptions::new()).unwrap();
    assert_eq!(plain.name(), "a clique of names");
    plain.fail("a test");
    plain.rebuild(Members::Same).unwrap();
    assert_eq!(plain.name(), "a clique of names");
    assert!(communicators().iter().any(|one| one == "a clique of names"));
    assert_eq!(World::of_clique(clique(), &named("a world")).unwrap().name(), "a world");
}

#[test]
fn wrong_names_are_refused() {
    for name in ["", "\u{1b}[0m", &"x".repeat(129)] {
        let error = WorldOptions::new().with_name(name).unwrap_err();
        assert!(error.to_string().contains("WorldOptions::with_name: name"), "{error}");
    }
}

#[test]
fn errors_name_both_worlds() {
    let (one, other) = (world(1, named("one")), world(1, named("other")));
    let ranks = other.ranks();
    let failed = one.submit_through(&ranks, ranks.iter().map(|_| requests::barrier())).wait().unwrap_err();
    let error = failed.error.to_string();
    assert!(error.contains("ranks of world \"one\", which submits"), "{error}");
    assert!(error.contains("rank 0 of world \"other\" at index 0"), "{error}");
}
