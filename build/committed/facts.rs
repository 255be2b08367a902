//! Asks the compiler for facts about the headers: it puts numbers into an object file, and this reads them.
//!
//! An assertion that fails would tell that something differs, not how. Nothing is run, so it works for other machines too.

use std::fmt::Write;
use std::process::Command;

use super::{Language, Request};
use crate::headers::unbound;

/// What stands before the numbers, and after them.
const MARKS: [u64; 2] = [0x6770_7563_6f6d_6d21, 0x9e37_79b9_7f4a_7c15];

/// The program for the compiler: `expressions` are integers that it can compute, `declarations` what they need.
fn program(language: Language, start: &str, declarations: &[String], expressions: &[String]) -> String {
    let mut text = format!("{start}\n");
    for header in ["stdalign.h", "stdbool.h", "stddef.h", "stdint.h"] {
        writeln!(text, "#include <{header}>").expect("a String takes all");
    }
    text += language.same();
    for declaration in declarations {
        writeln!(text, "{declaration};").expect("as above");
    }
    // Without `extern`, a constant of C++ is not in the object file.
    writeln!(text, "extern const uint64_t gpucomm_facts[] = {{ {:#x}u, {:#x}u,", MARKS[0], MARKS[1]).expect("as above");
    for expression in expressions {
        writeln!(text, "  (uint64_t)({expression}),").expect("as above");
    }
    writeln!(text, "  {:#x}u, {:#x}u }};", MARKS[1], MARKS[0]).expect("as above");
    text
}

/// The values of `expressions`, or what the compiler says.
pub fn values(
    request: &Request<'_>,
    start: &str,
    declarations: &[String],
    expressions: &[String],
) -> Result<Vec<u64>, String> {
    let Request { language, work, compiler, .. } = request;
    let (source, object) = (request.source("committed"), work.join("committed.o"));
    let text = program(*language, start, declarations, expressions);
    std::fs::write(&source, text).map_err(|error| format!("error: {}: {error}", source.display()))?;
    let mut command = compiler();
    // With it, an object file holds the compiler's own format.
    command.arg("-fno-lto").arg("-w").arg("-c").arg(&source).arg("-o").arg(&object);
    output(command, *language)?;
    let bytes = std::fs::read(&object).map_err(|error| format!("error: {}: {error}", object.display()))?;
    let found = find(&bytes, expressions.len());
    found.ok_or_else(|| format!("error: the compiler has put no numbers into {}", object.display()))
}

/// The numbers between the marks, as the target writes numbers.
fn find(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    [u64::from_le_bytes, u64::from_be_bytes].into_iter().find_map(|number| {
        let at = |at: usize| bytes.get(at..at + 8).map(|bytes| number(bytes.try_into().expect("8 bytes")));
        let start = (0..bytes.len()).find(|start| at(*start) == Some(MARKS[0]) && at(start + 8) == Some(MARKS[1]))?;
        let end = start + 16 + 8 * count;
        let whole = at(end) == Some(MARKS[1]) && at(end + 8) == Some(MARKS[0]);
        if whole { (0..count).map(|index| at(start + 16 + 8 * index)).collect() } else { None }
    })
}

/// What `command` writes, or its first complaint.
pub fn output(mut command: Command, language: Language) -> Result<Vec<u8>, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let run = command.env("LC_ALL", "C").output();
    let run = run.map_err(|error| language.no_compiler(&program, &error))?;
    if run.status.success() {
        return Ok(run.stdout);
    }
    let text = String::from_utf8_lossy(&run.stderr);
    let first = text.lines().find(|line| line.contains("error: ")).or(text.lines().next());
    Err(unbound(first.unwrap_or("the compiler gives no reason")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_either_kind_of_machine() {
        for bytes in [u64::to_le_bytes, u64::to_be_bytes] {
            let all = [7, MARKS[0], 1, MARKS[0], MARKS[1], 5, u64::MAX, MARKS[1], MARKS[0], 9];
            let mut file = vec![1, 2, 3];
            file.extend(all.iter().flat_map(|number| bytes(*number)));
            assert_eq!(find(&file, 2), Some(vec![5, u64::MAX]));
            assert_eq!(find(&file, 1), None);
            assert_eq!(find(&file[..file.len() - 17], 2), None);
        }
    }
}
