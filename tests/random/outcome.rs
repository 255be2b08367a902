//! How each rank of a clique ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use gpucomm::{Clique, Communicator, Error, Result};

use crate::program::Program;
use crate::record::kind_of;
use crate::shrink::CLASS;
use crate::watch::{self, say};

#[derive(Debug, Clone)]
pub enum Outcome {
    Right,
    Error {
        step: usize,
        error: Error,
    },
    /// An answer was wrong, or something panicked.
    Wrong {
        step: usize,
        text: String,
    },
}

impl Outcome {
    /// How it failed, without what differs from program to program.
    fn class(&self) -> String {
        match self {
            Self::Right => "right".to_owned(),
            Self::Error { error, .. } => kind_of(error),
            Self::Wrong { text, .. } => text.split(':').next().unwrap_or_default().to_owned(),
        }
    }
}

/// The outcome of each rank.
#[derive(Debug)]
pub struct Outcomes {
    pub ranks: Vec<Outcome>,
    /// The rank that failed first.
    pub first: Option<usize>,
}

impl Outcomes {
    pub fn all_right(&self) -> bool {
        self.first.is_none()
    }

    /// Says what each rank that failed was doing.
    pub fn tell(&self, program: &Program) {
        for (rank, outcome) in self.ranks.iter().enumerate() {
            let (step, what) = match outcome {
                Outcome::Right => continue,
                Outcome::Error { step, error } => (*step, error.to_string()),
                Outcome::Wrong { step, text } => (*step, text.clone()),
            };
            let first = if self.first == Some(rank) { ", the first" } else { "" };
            if self.first == Some(rank) {
                say(&format!("{CLASS}{}", outcome.class()));
            }
            say(&format!(
                "seed {}, rank {rank}{first}, step {step}: {what}\n  in {}",
                program.seed,
                program.doing(step)
            ));
        }
    }
}

/// Runs a body as every rank. One that fails brings the others' end, and each answers for itself.
pub fn of_ranks(clique: &Clique, body: impl Fn(&Communicator) -> Result<()> + Sync) -> Outcomes {
    let outcomes = Mutex::new(Outcomes { ranks: vec![Outcome::Right; clique.size()], first: None });
    let set = |rank: usize, outcome| {
        let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.ranks[rank] = outcome;
        outcomes.first.get_or_insert(rank);
    };
    // What the clique makes of it is the same again.
    let _ = clique.spmd(|comm| {
        let rank = comm.rank();
        let ended = catch_unwind(AssertUnwindSafe(|| body(comm)));
        let step = watch::step_of(rank);
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                set(rank, Outcome::Error { step, error: error.clone() });
                Err(error)
            }
            Err(payload) => {
                let text = payload.downcast_ref::<String>().cloned();
                let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                let text = text.unwrap_or_default();
                set(rank, Outcome::Wrong { step, text: text.clone() });
                Err(Error::InvalidUsage { operation: "random", reason: text })
            }
        }
    });
    outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
}
