//! `gpucomm run`: ranks on this machine, started together and ended together; or what another engine takes to start them.

mod descendants;
mod ending;
mod generation;
mod keeper;
mod lines;
mod output;
mod print;
mod rank;
mod relay;
pub mod signals;
mod sink;
pub mod store;
mod variables;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use gpucomm::Device;

use self::generation::{Crew, Outcome};
use self::keeper::Keeper;
use self::output::Output;
use self::store::Store;
use self::variables::World;
use crate::failure::{Failure, Result};
use crate::options::RunOptions;

/// How long the store stays for ranks of other nodes when one of this node has failed: they are
/// about to end, too.
const LINGER: Duration = Duration::from_secs(5);

/// Starts the ranks, and says how they have ended by the code to exit with; or prints what else starts them.
pub fn run(options: &RunOptions) -> Result<ExitCode> {
    if let Some(engine) = options.print {
        crate::output::line(print::text(engine, ranks(options)?, options)?.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    // First of all: from here on there may be other threads.
    let keeper = Keeper::start()?;
    let ranks = ranks(options)?;
    descendants::adopt()?;
    let mut spared: BTreeSet<_> = descendants::all(&BTreeSet::new()).iter().map(|process| process.pid).collect();
    spared.insert(keeper.pid);
    let mut world = World::new(ranks, options);
    let store = Store::new(&world, options)?;
    let (events, output) = (signals::listen()?, Output::new(options.prefix)?);
    let mut crew = Crew { options, keeper, spared, events, output, store };
    let code = loop {
        world.renew(options)?;
        let more = options.max_restarts - world.restarts;
        match crew.run(&world, more)? {
            Outcome::Good => break 0,
            Outcome::Failed { code, over } if over || more == 0 => break code,
            Outcome::Failed { .. } => world.restarts += 1,
        }
    };
    if options.nodes > 1 {
        // Ranks of other nodes may go on without those of this one.
        crew.stay(if code == 0 || options.keep_going { None } else { Some(LINGER) });
    }
    crew.leave();
    Ok(ExitCode::from(code))
}

fn ranks(options: &RunOptions) -> Result<usize> {
    if let Some(ranks) = options.ranks {
        return Ok(ranks);
    }
    match Device::count() {
        Ok(devices) if devices > 0 => Ok(devices * options.nodes),
        Ok(_) => Err(Failure::usage("there is no device here to count ranks by: say how many, with -n")),
        Err(error) => {
            Err(Failure::usage(format!("ranks cannot be counted by devices, so say how many, with -n: {error}")))
        }
    }
}
