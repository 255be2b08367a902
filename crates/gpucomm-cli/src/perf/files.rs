//! The files that a run leaves, besides what it prints.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use serde_json::Value;

use super::plot;
use crate::failure::{Failure, Result};
use crate::options::PerfOptions;

/// Those that are asked for.
#[derive(Debug)]
pub struct Files {
    json: Option<Output>,
    plot: Option<Output>,
    /// How many tables there will be.
    tables: usize,
}

impl Files {
    /// Before the run, so that a wrong path costs no time.
    pub fn create(options: &PerfOptions) -> Result<Self> {
        let create = |path: &Option<PathBuf>| path.as_ref().map(Output::create).transpose();
        Ok(Self { json: create(&options.json)?, plot: create(&options.plot)?, tables: options.ways().count() })
    }

    /// A single table is an object, several are an array of them.
    pub fn write(self, reports: &[Value]) -> Result<()> {
        if let Some(file) = self.json {
            file.write(&match reports {
                [report] if self.tables == 1 => format!("{report:#}\n"),
                several => format!("{:#}\n", Value::from(several)),
            })?;
        }
        match self.plot {
            Some(file) => file.write(&plot::svg(reports)?),
            None => Ok(()),
        }
    }
}

/// A file, opened before the run.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    pub fn create(path: &PathBuf) -> Result<Self> {
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.clone(), file })
    }

    pub fn write(mut self, text: &str) -> Result<()> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        written.map_err(|error| cannot_write(&self.path, &error))
    }
}

fn cannot_write(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::run(format!("cannot write {}: {error}", path.display()))
}
