//! Findings as text, and as JSON.

use serde_json::{Value, json};

use super::finding::{Finding, Verdict};
use super::reach::ranks;

/// The lines for people.
pub fn lines(findings: &[Finding], table: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    for finding in findings {
        let of = if finding.ranks.is_empty() { String::new() } else { format!("{}: ", ranks(&finding.ranks)) };
        lines.push(format!("{:<8} {:<16} {of}{}", finding.verdict.name(), finding.check, one_line(&finding.found)));
        lines.extend(finding.advice.as_ref().map(|advice| format!("{:<25} {}", "", one_line(advice))));
    }
    if !table.is_empty() {
        lines.push(String::new());
        lines.extend(table.iter().map(|line| one_line(line)));
    }
    lines.push(String::new());
    lines.push(summary(findings));
    lines
}

fn summary(findings: &[Finding]) -> String {
    let count = |verdict, one: &str| {
        let number = findings.iter().filter(|finding| finding.verdict == verdict).count();
        format!("{number} {one}{}", if number == 1 { "" } else { "s" })
    };
    format!(
        "{}, {}, {}",
        count(Verdict::Problem, "problem"),
        count(Verdict::Warning, "warning"),
        count(Verdict::Note, "note")
    )
}

/// What variables and files hold goes to a terminal.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// All of it for programs: see the help of the command.
pub fn json(backend: &str, findings: &[Finding], reach: &Value) -> Value {
    let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok);
    json!({
        "program": concat!("gpucomm ", env!("CARGO_PKG_VERSION")),
        "backend": backend,
        "verdict": worst.name(),
        "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
        "reach": reach,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_say_the_same() {
        let mut all =
            vec![Finding::ok("driver", "fine"), Finding::warning("network", "eth0 is\u{1b}[2J down", "bring it up")];
        all[1].ranks = vec![1, 2];
        let lines = lines(&all, &["Who".to_owned()]);
        assert_eq!(lines[0], "ok       driver           fine");
        assert_eq!(lines[1], "warning  network          ranks 1 and 2: eth0 is\\u{1b}[2J down");
        assert_eq!(lines[2], "                          bring it up");
        assert_eq!(lines[3..], ["", "Who", "", "0 problems, 1 warning, 0 notes"]);
        let json = json("emulator", &all, &Value::Null);
        assert_eq!((&json["verdict"], &json["findings"][1]["ranks"]), (&"warning".into(), &vec![1, 2].into()));
    }
}
