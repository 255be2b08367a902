//! What one check comes to.

use serde_json::{Value, json};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Ok,
    /// Worth knowing.
    Note,
    /// Works, but slowly or by luck.
    Warning,
    /// Goes wrong.
    Problem,
}

impl Verdict {
    const ALL: [Self; 4] = [Self::Ok, Self::Note, Self::Warning, Self::Problem];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One line of what was found, and where not all is well, one of what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check.
    pub check: String,
    pub verdict: Verdict,
    pub found: String,
    pub advice: Option<String>,
    /// The ranks that have found it; none where this process looks for itself alone.
    pub ranks: Vec<usize>,
}

impl Finding {
    pub fn ok(check: &str, found: impl Into<String>) -> Self {
        Self { check: check.to_owned(), verdict: Verdict::Ok, found: found.into(), advice: None, ranks: Vec::new() }
    }

    pub fn note(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Note, advice: Some(advice.into()), ..Self::ok(check, found) }
    }

    pub fn warning(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, ..Self::note(check, found, advice) }
    }

    pub fn problem(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Problem, ..Self::note(check, found, advice) }
    }

    /// As JSON, on its way to another rank and to the user.
    pub fn json(&self) -> Value {
        let mut value = json!({
            "check": self.check,
            "verdict": self.verdict.name(),
            "found": self.found,
            "advice": self.advice,
        });
        if !self.ranks.is_empty() {
            value["ranks"] = self.ranks.clone().into();
        }
        value
    }

    /// What [`json`](Self::json) has made, without the ranks.
    pub fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let name = text("verdict")?;
        Some(Self {
            check: text("check")?,
            verdict: Verdict::ALL.into_iter().find(|verdict| verdict.name() == name)?,
            found: text("found")?,
            advice: text("advice"),
            ranks: Vec::new(),
        })
    }
}

/// Whether nothing of it is a problem.
pub fn is_well(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.verdict < Verdict::Problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_survive_the_way() {
        for finding in [Finding::ok("a", "well"), Finding::problem("b", "bad\n", "do \"it\"")] {
            assert_eq!(Finding::read(&finding.json()), Some(finding));
        }
        assert_eq!(Finding::read(&json!({ "check": "a", "verdict": "fine", "found": "" })), None);
        assert!(Verdict::Problem > Verdict::Warning && Verdict::Note > Verdict::Ok);
    }
}
