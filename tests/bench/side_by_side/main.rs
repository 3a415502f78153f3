//! Compares this daemon with kube-controller-manager on one API server, in one run.
//!
//! `make bench` starts the control plane and runs this. In each round both controllers do the same
//! work, one after the other. The order alternates from round to round.

mod cluster;
mod contestant;
mod cpu;
mod floor;
mod journal;
mod load;
mod machine;
mod options;
mod pods;
mod probe;
mod report;
mod rights;
mod scenarios;
mod statistics;
mod watch;
mod workloads;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};

use cluster::Cluster;
use contestant::Contestant;
use machine::Machine;
use options::Options;
use report::Report;

/// Rounds in which the API server's own figures are measured, at most. Each takes a while.
const FLOOR_ROUNDS_MAX: usize = 3;

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            report::print_line(&format!("bench: {problem}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let cluster = Cluster::from_environment()?;
    let ours = if options.stock_rights {
        Contestant::ours(&rights::stock_kubeconfig(&cluster)?)
    } else {
        Contestant::ours(&cluster.kubeconfig)
    };
    let contestants = [ours, Contestant::original(&cluster)?];
    let machine = Machine::inspect(&cluster)?;
    report::print_line(&options.headline());
    report::print_line(&machine.to_string());
    let mut report = Report::default();
    let measured = measure(&cluster, contestants, options, &mut report);
    // Prints and writes the figures so far even after a failure, as a run may take hours.
    report.print();
    let written = match &options.json {
        Some(file) => write_json(file, options, &machine, &report, measured.as_ref().err()),
        None => Ok(()),
    };
    measured.and(written)
}

fn measure(
    cluster: &Cluster,
    mut contestants: [Contestant; 2],
    options: &Options,
    report: &mut Report,
) -> Result<(), String> {
    for round in 1..=options.rounds {
        report.begin_round(contestants.iter().map(|it| it.name).collect());
        if round <= FLOOR_ROUNDS_MAX {
            report::print_line(&format!("round {round}: {}", report::FLOOR));
            floor::measure(cluster, options, report)?;
        }
        for contestant in &contestants {
            report::print_line(&format!("round {round}: {}", contestant.name));
            scenarios::run_all(cluster, contestant, options, report)?;
        }
        contestants.reverse();
    }
    Ok(())
}

/// Writes all single figures, with the options and the machine.
fn write_json(
    file: &Path,
    options: &Options,
    machine: &Machine,
    report: &Report,
    problem: Option<&String>,
) -> Result<(), String> {
    let mut all = json!({
        "pods": options.pods,
        "replicasets": options.replicasets,
        "rounds": options.rounds,
        "scenarios": options.scenario_names(),
        "idle_seconds": options.idle_seconds,
        "soak_minutes": options.soak_minutes,
        "small_replicasets": options.small_replicasets,
        "quota_replicasets": options.quota_replicasets,
        "stock_rights": options.stock_rights,
        "failing_minutes": options.failing_minutes,
        "machine": machine,
        "problem": problem,
    });
    if let (Value::Object(all), Value::Object(measured)) = (&mut all, report.to_json()) {
        all.extend(measured);
    }
    std::fs::write(file, format!("{all:#}\n"))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}
