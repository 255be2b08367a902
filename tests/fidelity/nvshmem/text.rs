//! The tables of `docs/nvshmem.md`.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::families::{ALL, ATOMICS, NOT_COMPARED, OTHERWISE};
use super::family::{Compared, Family, Reach, Row, Seen};
use super::moves::TYPES;
use super::symbols::{is_called, methods, of_3_4, of_3_8};
use crate::interface::emulated;

/// What no run could show, behind the tables.
const UNSEEN: &str = "
## What no run has shown

NVSHMEM 3.4.5 ran, with NVLS off: all on one GPU, with up to three PEs that share it, and nearly all, collectives and teams too, on two with a PE each, some on four. What that leaves out is from NVSHMEM's source and headers alone:

| what | why it was not seen |
|---|---|
| counted signals (`nvshmemx_signal_counted_reset`) | of 3.8 |
| regions that batch puts and gets (`nvshmemx_region_start`) | of 3.8 |
| `nvshmemx_collective_launch_attr` | of 3.8 |
| queue pairs (`nvshmemx_qp_create`) | not in 3.4.5, and of remote transports |
| remote transports: PEs of several hosts | one host: each PE gets at the memory of all others directly |
| pointers by which a switch writes to all PEs (`nvshmemx_mc_ptr`) | NVLS was off: it has said only that there are none |
| the team of PEs that share a switch (`NVSHMEM_TEAM_MC_SHARED`) | the same |

## Host atomics

The library exports functions named `nvshmem_TYPE_atomic_OP` for the host, 150 of them in 3.8.0 and 144 in 3.4.5. Each says on stderr that it
is not implemented, and does nothing: what fetches gives 0, and `compare_swap` gives the new value. So this crate has none of them.
Atomics are for kernels; from the host, `nvshmemx_signal_op_on_stream` adds to a signal.
";

/// How many functions are reached in which way, of the library of one version.
#[derive(Default)]
struct Count {
    directly: usize,
    otherwise: usize,
    not: usize,
    stubs: usize,
}

impl Count {
    fn of(exported: &BTreeSet<&str>) -> Self {
        let mut count = Self::default();
        for family in ALL {
            for row in family.rows {
                let there = row.functions().iter().filter(|(name, _)| exported.contains(name.as_str())).count();
                *match row.reach {
                    _ if family.title == ATOMICS => &mut count.stubs,
                    Reach::Directly(_) if is_there(row) => &mut count.directly,
                    Reach::As(..) | Reach::Otherwise(..) => &mut count.otherwise,
                    Reach::Directly(_) | Reach::Not(_) => &mut count.not,
                } += there;
            }
        }
        count
    }
}

/// Whether the methods of a row are there, and call its functions where they say so.
pub fn is_there(row: &Row) -> bool {
    let called = !matches!(row.reach, Reach::Directly(_)) || row.functions().iter().all(|(name, _)| is_called(name));
    called && row.methods().iter().all(|method| methods().contains(*method))
}

pub fn of_all() -> String {
    let mut text = String::from(
        "\n## How many\n\n| NVSHMEM | functions that it exports | that do something | reached directly | by an equivalent | not reached |\n\
         |---|---|---|---|---|---|\n",
    );
    for (version, exported) in [("3.8.0", of_3_8()), ("3.4.5", of_3_4())] {
        let count = Count::of(&exported);
        let _ = writeln!(
            text,
            "| {version} | {} | {} | {} | {} | {} |",
            exported.len(),
            exported.len() - count.stubs,
            count.directly,
            count.otherwise,
            count.not,
        );
    }
    let _ = writeln!(text, "\n`TYPE` without a list of types stands for all of them:\n{}.", TYPES.join(", "));
    for family in ALL {
        table(&mut text, family);
    }
    text + UNSEEN
}

fn table(text: &mut String, family: &Family) {
    let functions: usize = family.rows.iter().map(|row| row.functions().len()).sum();
    let _ = write!(
        text,
        "\n## {}\n\n{functions} functions.\n\n\
         | function | of types | how it is reached | emulated | compared with its equivalent | seen on GPUs |\n|---|---|---|---|---|---|\n",
        family.title
    );
    let (emulated, older) = (emulated(), of_3_4());
    for row in family.rows {
        let functions = row.functions();
        let of_it = functions.iter().filter(|(name, _)| emulated.contains(name)).count();
        let newer = functions.iter().all(|(name, _)| !older.contains(name.as_str()));
        let since = if newer { ", after 3.4.5" } else { "" };
        let calls = matches!(row.reach, Reach::Directly(_)) && is_there(row);
        let _ = writeln!(
            text,
            "| {}{since} | {} | {} | {} | {} | {} |",
            names(row),
            types(row),
            reach(row),
            some(of_it, functions.len()),
            compared(family, row).map_or("", Compared::name),
            if calls { seen(family, newer).name() } else { "" },
        );
    }
}

/// Whether a test compares what stands for it; `None` where nothing does.
fn compared(family: &Family, row: &Row) -> Option<Compared> {
    match row.reach {
        Reach::As(..) if NOT_COMPARED.contains(&row.pattern) => Some(Compared::No),
        Reach::As(..) => Some(family.compared),
        Reach::Otherwise(..) if OTHERWISE.contains(&row.pattern) => Some(Compared::Emulator),
        Reach::Otherwise(..) => Some(Compared::No),
        Reach::Directly(_) | Reach::Not(_) => None,
    }
}

/// Runs had 3.4.5: nothing newer was seen.
fn seen(family: &Family, newer: bool) -> Seen {
    if newer { Seen::No } else { family.seen }
}

fn names(row: &Row) -> String {
    match (row.ops, row.types) {
        ([], []) => format!("`{}`", row.pattern),
        ([], _) => format!("`{}`", row.pattern),
        (ops, _) => format!("`{}`, `OP` of {}", row.pattern, ops.join(", ")),
    }
}

fn types(row: &Row) -> String {
    if row.types == TYPES { "all".to_owned() } else { row.types.join(", ") }
}

fn reach(row: &Row) -> String {
    let methods = || row.methods().iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match row.reach {
        Reach::Directly(_) if !is_there(row) => "not yet".to_owned(),
        Reach::Directly(_) => methods(),
        Reach::As(other, how) => format!("as `{other}`, {how}"),
        Reach::Otherwise(_, how) => format!("{}: {how}", methods()),
        Reach::Not(why) => format!("not: {why}"),
    }
}

fn some(some: usize, all: usize) -> String {
    match some {
        0 => "no".to_owned(),
        _ if some == all => "yes".to_owned(),
        _ => format!("{some} of {all}"),
    }
}
