//! What ranks find in their environment: torchrun's variables, and none of another launcher.

use std::ffi::OsStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use crate::failure::{Failure, Result};
use crate::options::{Place, RunOptions};

/// What all ranks of a start have in common.
#[derive(Debug)]
pub struct World {
    pub size: usize,
    /// Ranks on each node.
    pub local: usize,
    node: usize,
    nodes: usize,
    master: Place,
    id: String,
    pub restarts: usize,
    max_restarts: usize,
}

impl World {
    pub fn new(size: usize, options: &RunOptions) -> Self {
        let random = || RandomState::new().build_hasher().finish();
        // Where each node has a launcher of its own, nothing random is the same for all: torchrun says `none` there, too.
        let id = if options.nodes == 1 { format!("{:016x}{:016x}", random(), random()) } else { "none".to_owned() };
        Self {
            size,
            local: size / options.nodes,
            node: options.node_rank,
            nodes: options.nodes,
            master: Place { host: Ipv4Addr::LOCALHOST.to_string(), port: 0 },
            id,
            restarts: 0,
            max_restarts: options.max_restarts,
        }
    }

    /// Chooses where rank 0 serves: a port that is free now, and not the last one, where late ranks of the last start may still ask.
    pub fn renew(&mut self, options: &RunOptions) -> Result<()> {
        if let Some(master) = &options.master {
            self.master = master.clone();
            return Ok(());
        }
        let mut held = Vec::new();
        // A port that is held is not given again.
        for _ in 0..2 {
            let cannot = |error| Failure::run(format!("no free port on 127.0.0.1 for rank 0: {error}"));
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot)?;
            let port = listener.local_addr().map_err(cannot)?.port();
            held.push(listener);
            if port != self.master.port {
                self.master.port = port;
                break;
            }
        }
        Ok(())
    }

    /// The rank that is the local one `local`.
    pub fn rank(&self, local: usize) -> usize {
        self.node * self.local + local
    }

    /// Gives `command` the environment of the local rank `local`, with the variables of the store, which are given and removed,
    /// and the user's own.
    pub fn give(
        &self,
        command: &mut Command,
        local: usize,
        options: &RunOptions,
        (given, removed): (&[(&'static str, String)], &[&'static str]),
    ) {
        for name in std::env::vars_os().map(|(name, _)| name).filter(|name| of_a_launcher(name)) {
            command.env_remove(name);
        }
        command.envs(self.of(local));
        removed.iter().for_each(|name| _ = command.env_remove(name));
        command.envs(given.iter().map(|(name, value)| (name, value)));
        command.envs(options.env.iter().map(|(name, value)| (name, value)));
    }

    pub fn of(&self, local: usize) -> [(&'static str, String); 17] {
        let rank = self.rank(local).to_string();
        let size = self.size.to_string();
        [
            // By which `Launch` tells this launcher from torchrun.
            ("GPUCOMM_RUN", format!("{rank}/{size}")),
            ("RANK", rank.clone()),
            ("WORLD_SIZE", size.clone()),
            ("LOCAL_RANK", local.to_string()),
            ("LOCAL_WORLD_SIZE", self.local.to_string()),
            ("GROUP_RANK", self.node.to_string()),
            ("GROUP_WORLD_SIZE", self.nodes.to_string()),
            ("NODE_RANK", self.node.to_string()),
            ("ROLE_NAME", "default".to_owned()),
            ("ROLE_RANK", rank),
            ("ROLE_WORLD_SIZE", size),
            ("MASTER_ADDR", self.master.host.clone()),
            ("MASTER_PORT", self.master.port.to_string()),
            ("TORCHELASTIC_RUN_ID", self.id.clone()),
            ("TORCHELASTIC_RESTART_COUNT", self.restarts.to_string()),
            ("TORCHELASTIC_MAX_RESTARTS", self.max_restarts.to_string()),
            // Nobody serves at the master's address but rank 0.
            ("TORCHELASTIC_USE_AGENT_STORE", "False".to_owned()),
        ]
    }
}

/// Whether a launcher has set `name` for one of its processes: this one, which no rank is. With them, all ranks would be the same one to whoever
/// asks MPI, PMI or Slurm. What belongs to a job of Slurm as a whole stays.
pub fn of_a_launcher(name: &OsStr) -> bool {
    const BEGIN: [&str; 14] = [
        "OMPI_COMM_WORLD_",
        "OMPI_UNIVERSE_",
        "PMIX_",
        "PMI_",
        "PALS_",
        "MV2_COMM_WORLD_",
        "MVP_COMM_WORLD_",
        "JSM_NAMESPACE_",
        "PET_",
        "MPI_LOCAL",
        "FLUX_TASK_",
        "SLURM_STEP_",
        "SLURM_SRUN_",
        "TORCHELASTIC_",
    ];
    const ARE: [&str; 24] = [
        // What a user has said of one process, which all ranks would be then.
        "GPUCOMM_LAUNCHER",
        "GPUCOMM_RUN",
        "GPUCOMM_RANK",
        "GPUCOMM_SIZE",
        "GPUCOMM_LOCAL_RANK",
        "GPUCOMM_LOCAL_SIZE",
        "GPUCOMM_DEVICE",
        "SM_HOSTS",
        "SM_CURRENT_HOST",
        "PMI_ID",
        "ALPS_APP_PE",
        "MPIRUN_RANK",
        "HOROVOD_RANK",
        "FLUX_JOB_SIZE",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_GTIDS",
        "SLURM_TASK_PID",
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_STEPID",
        "SLURM_PMIX_MAPPING_SERV",
        "SLURM_LAUNCH_NODE_IPADDR",
    ];
    let Some(name) = name.to_str() else { return false };
    ARE.contains(&name) || BEGIN.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::of_a_launcher;

    #[test]
    fn what_belongs_to_another_launcher() {
        for name in [
            "OMPI_COMM_WORLD_RANK",
            "PMI_RANK",
            "PMIX_RANK",
            "SLURM_PROCID",
            "SLURM_STEP_NUM_TASKS",
            "TORCHELASTIC_ERROR_FILE",
        ] {
            assert!(of_a_launcher(name.as_ref()), "{name}");
        }
        for name in
            ["PATH", "SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "OMPI_MCA_btl", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES"]
        {
            assert!(!of_a_launcher(name.as_ref()), "{name}");
        }
    }
}
