//! The table, as text.

use std::fmt::Write;

use crate::differences;
use crate::interface::{Uses, declared, declared_of_nvshmem, emulated};
use crate::runs;

pub fn of_all() -> String {
    let mut text = String::from(
        "\n## Runs on GPUs\n\n| run | date | GPUs | version | commit | what ran |\n|---|---|---|---|---|---|\n",
    );
    for (at, run) in runs::ALL.iter().enumerate() {
        let (number, commit) = (at + 1, if run.commit.is_empty() { "–" } else { run.commit });
        let _ = writeln!(
            text,
            "| [{number}](measurements/{}) | {} | {} | {} | {commit} | {} |",
            run.page,
            run.date,
            run.gpus,
            run.nccl,
            run.what()
        );
    }
    let emulated = emulated();
    let mut compared = 0;
    let mut rows = String::new();
    let declared = declared();
    for function in &declared {
        let uses = Uses::of(function);
        let programs = uses.programs();
        let runs: Vec<String> = (0..runs::ALL.len())
            .filter(|&at| runs::ALL[at].has(function, &programs))
            .map(|at| (at + 1).to_string())
            .collect();
        compared += usize::from(!runs.is_empty());
        let differences: Vec<&str> = differences::ALL
            .iter()
            .filter(|(names, _)| names.contains(&function.as_str()))
            .map(|(_, text)| *text)
            .collect();
        let or_none = |text: String| if text.is_empty() { "–".to_owned() } else { text };
        let _ = writeln!(
            rows,
            "| `{function}` | {} | {} | {} | {} | {} |",
            if emulated.contains(function) { "yes" } else { "no" },
            if uses.unit { "yes" } else { "–" },
            or_none(programs.join(", ")),
            or_none(runs.join(", ")),
            differences.join("; "),
        );
    }
    let _ = write!(
        text,
        "\n## Functions of CUDA and NCCL\n\n{} functions, {compared} of them compared.\n\n\
         | function | emulated | unit tests of the emulator | test programs | compared in run | what differs |\n\
         |---|---|---|---|---|---|\n{rows}",
        declared.len()
    );
    let of_nvshmem = declared_of_nvshmem();
    let has = of_nvshmem.iter().filter(|name| emulated.contains(name)).count();
    let _ = write!(
        text,
        "\n## Functions of NVSHMEM\n\n{has} of the {} that are declared. Which, and how others are reached: [nvshmem](nvshmem.md).\n",
        of_nvshmem.len()
    );
    text
}
