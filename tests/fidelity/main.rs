//! `docs/emulator.md`: for each C function of the interface, what the emulator has of it, what tests it, on which GPUs that was compared, and
//! what is knowingly another thing. `GPUCOMM_WRITE_DOCS=1 cargo test --features emulator --test fidelity` writes it anew.

mod differences;
mod interface;
mod nvshmem;
mod runs;
mod table;
mod variables;

const BEGIN: &str = "<!-- from tests/fidelity -->\n";

#[test]
fn the_documentation_has_the_same_table() {
    compare("docs/emulator.md", "the_documentation", &table::of_all());
}

/// Holds what is generated of a page against what it has; writes it where `GPUCOMM_WRITE_DOCS` is 1.
fn compare(page: &str, test: &str, table: &str) {
    let path = interface::root().join(page);
    let whole = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let (text, got) = whole.split_once(BEGIN).expect("a line that says where the table begins");
    if std::env::var_os("GPUCOMM_WRITE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(path, format!("{text}{BEGIN}{table}")).unwrap_or_else(|error| panic!("{page}: {error}"));
        return;
    }
    assert!(got == table, "{page}: GPUCOMM_WRITE_DOCS=1 cargo test --features emulator --test fidelity {test}");
}

#[test]
fn each_function_is_emulated_and_tested() {
    let declared = interface::declared();
    assert!(declared.len() > 80, "{declared:?}");
    for function in &declared {
        assert!(interface::emulated().contains(function), "{function} is declared, and the emulator has none");
        let uses = interface::Uses::of(function);
        assert!(uses.unit || !uses.layer.is_empty() || !uses.suites.is_empty(), "nothing tests {function}");
    }
    let of_nvshmem = interface::declared_of_nvshmem();
    for function in interface::emulated() {
        let known = declared.contains(&function) || of_nvshmem.contains(&function);
        assert!(known, "{function} is emulated, and not declared");
    }
}

#[test]
fn what_differs_is_of_functions_that_are_there() {
    let declared = interface::declared();
    for (functions, _) in differences::ALL {
        functions.iter().for_each(|name| assert!(declared.iter().any(|one| one == name), "{name}"));
    }
}

#[test]
fn runs_are_on_record() {
    let declared = interface::declared();
    for run in runs::ALL {
        let path = interface::root().join("docs/measurements").join(run.page);
        let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", run.page));
        for word in [run.date, run.nccl, run.commit] {
            assert!(page.contains(word), "{} does not hold {word:?}", run.page);
        }
        for name in run.newer.iter().chain(run.functions()) {
            assert!(declared.iter().any(|one| one == name), "{name}");
        }
    }
}
