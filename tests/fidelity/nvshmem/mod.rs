//! `docs/nvshmem.md`: for each host function that NVSHMEM exports, how a program of this crate reaches it, whether the emulator has it, and whether it
//! was seen on GPUs. `GPUCOMM_WRITE_DOCS=1 cargo test --features emulator --test fidelity nvshmem` writes it anew.

mod families;
mod family;
mod moves;
mod symbols;
mod text;
mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::interface;
use families::{ALL, ATOMICS, NOT_COMPARED, OTHERWISE};
use family::Reach;
use symbols::{bound, is_called, methods, of_3_4, of_3_8};

#[test]
fn the_documentation_has_the_same_table() {
    crate::compare("docs/nvshmem.md", "nvshmem", &text::of_all());
}

#[test]
fn each_exported_function_stands_in_one_row() {
    let mut rows = BTreeMap::new();
    for family in ALL {
        for row in family.rows {
            for (name, _) in row.functions() {
                let twice = rows.insert(name.clone(), row.pattern);
                assert!(twice.is_none(), "{name} is in {} and in {}", row.pattern, twice.unwrap_or_default());
            }
        }
    }
    let exported = of_3_8();
    let missing: Vec<_> = exported.iter().filter(|name| !rows.contains_key(**name)).collect();
    let besides: Vec<_> = rows.keys().filter(|name| !exported.contains(name.as_str())).collect();
    assert!(missing.is_empty() && besides.is_empty(), "missing: {missing:?}; not exported: {besides:?}");
    assert_eq!((exported.len(), of_3_4().len()), (1496, 1479));
    let stubs = ALL.iter().filter(|family| family.title == ATOMICS).flat_map(|family| family.rows);
    assert_eq!(exported.len() - stubs.map(|row| row.functions().len()).sum::<usize>(), 1346);
}

/// A function is not said to be the same as one that is not reached itself.
#[test]
fn equivalents_are_reached_directly() {
    let rows = || ALL.iter().flat_map(|family| family.rows);
    let directly: BTreeSet<String> = rows()
        .filter(|row| matches!(row.reach, Reach::Directly(_)))
        .flat_map(|row| row.functions().into_iter().map(|(name, _)| name))
        .collect();
    for (name, other) in rows().flat_map(|row| row.functions()) {
        assert!(other.iter().all(|other| directly.contains(other)), "{name} is said to be the same as {other:?}");
    }
}

/// What is bound is there to be called, and what is called is said to be.
#[test]
fn no_function_of_the_bindings_is_missing() {
    let exported = of_3_8();
    for row in ALL.iter().flat_map(|family| family.rows) {
        for (name, other) in row.functions() {
            if let Reach::Directly(_) = row.reach {
                assert!(bound().contains(&name), "{name} is not bound");
            } else {
                // What is otherwise reached may be called for something else.
                let may = matches!(row.reach, Reach::Otherwise(..));
                assert!(may || !is_called(&name), "{name} is called by the safe layer, and its row says otherwise");
                if let Some(other) = other {
                    assert!(bound().contains(&other), "{name} is said to be the same as {other}, which is not bound");
                }
            }
        }
    }
    for name in bound() {
        assert!(exported.contains(name.as_str()), "{name} is bound, and no library exports it");
    }
}

#[test]
fn methods_that_stand_for_others_are_there() {
    for row in ALL.iter().flat_map(|family| family.rows) {
        if let Reach::Otherwise(names, _) = row.reach {
            names.iter().for_each(|name| assert!(methods().contains(*name), "{name}, of {}", row.pattern));
        }
    }
    assert!(methods().contains("Context::alloc") && is_called("nvshmem_malloc") && !is_called("nvshmem_realloc"));
}

#[test]
fn what_is_said_of_some_is_of_those_that_are_there() {
    let patterns: BTreeSet<&str> = ALL.iter().flat_map(|family| family.rows).map(|row| row.pattern).collect();
    NOT_COMPARED.iter().chain(OTHERWISE).for_each(|pattern| assert!(patterns.contains(pattern), "{pattern}"));
    let text = text::of_all();
    let row = |name: &str| text.lines().find(|line| line.starts_with(&format!("| `{name}`"))).expect("a row");
    assert!(row("nvshmemx_flush").ends_with("| no |") && row("nvshmemx_flush").contains("after 3.4.5"));
    assert!(row("nvshmem_barrier").ends_with("| yes |") && row("nvshmem_barrier_all").ends_with("| yes |"));
}

/// The library of the installation that `NVSHMEM_HOME` names, where it is one of the two.
#[test]
fn an_installed_library_exports_the_same() {
    let Some(home) = std::env::var_os("NVSHMEM_HOME") else { return };
    let library = std::path::Path::new(&home).join("lib/libnvshmem_host.so.3");
    let Ok(nm) = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output() else { return };
    let nm = String::from_utf8(nm.stdout).expect("names of C");
    let functions: BTreeSet<&str> = nm
        .lines()
        .filter_map(|line| line.split_once(" T "))
        .map(|(_, name)| name.split('@').next().unwrap_or(name))
        .filter(|name| name.starts_with("nvshmem"))
        .collect();
    if functions.contains("nvshmemx_signal_counted_reset") {
        assert!(of_3_8().is_subset(&functions));
    } else if functions.len() == 1479 {
        assert_eq!(functions, of_3_4());
    } else {
        println!("{} is of another version: {} functions", library.display(), functions.len());
    }
    assert!(interface::root().exists());
}
