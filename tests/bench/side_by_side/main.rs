//! This daemon beside kube-controller-manager, on one API server, in one run.
//!
//! Started by `make bench`, which brings the control plane. Each round lets both do the same work, one
//! after the other, the one that begins being the other one in the next round.

mod cluster;
mod contestant;
mod cpu;
mod floor;
mod load;
mod options;
mod pods;
mod probe;
mod report;
mod scenarios;
mod watch;
mod workloads;

use std::process::ExitCode;

use clap::Parser;

use cluster::Cluster;
use contestant::Contestant;
use options::Options;
use report::Report;

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            report::say(&format!("bench: {problem}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let cluster = Cluster::from_environment()?;
    let mut report = Report::default();
    report::say(&options.headline());
    floor::measure(&cluster, options, &mut report)?;
    for round in 0..options.rounds {
        let mut contestants = [Contestant::ours(&cluster), Contestant::original(&cluster)?];
        if round % 2 == 1 {
            contestants.reverse();
        }
        for contestant in &contestants {
            report::say(&format!("round {}: {}", round + 1, contestant.name));
            scenarios::run_all(&cluster, contestant, options, &mut report)?;
        }
    }
    report.print();
    match &options.json {
        Some(file) => report.write_json(file, options),
        None => Ok(()),
    }
}
