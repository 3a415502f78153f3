//! What is to be measured.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Compares this daemon with kube-controller-manager on one API server.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Pods in all.
    #[arg(long, default_value_t = 2000)]
    pub(crate) pods: usize,

    /// ReplicaSets that these pods belong to, where a scenario has many.
    #[arg(long, default_value_t = 20)]
    pub(crate) replicasets: usize,

    /// How often each contestant does everything.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,

    /// Which scenarios; all but `soak`, `small` and `giants` if absent.
    #[arg(long, value_delimiter = ',')]
    pub(crate) scenarios: Vec<Scenario>,

    /// How long the scenario `soak` lasts, in minutes.
    #[arg(long, default_value_t = 60)]
    pub(crate) soak_minutes: u64,

    /// How many ReplicaSets of 2,000 the scenario `giants` has, one number after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 50, 500])]
    pub(crate) giants: Vec<usize>,

    /// How many ReplicaSets of one pod the scenario `small` has, each beside nine old revisions.
    #[arg(long, default_value_t = 2000)]
    pub(crate) small_replicasets: usize,

    /// How long idle CPU is watched, in seconds.
    #[arg(long, default_value_t = 30)]
    pub(crate) idle_seconds: u64,

    /// Where every single figure goes.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,

    /// As cargo passes it.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Memory with no pods.
    Empty,
    /// Many ReplicaSets from 0 to all pods.
    ScaleUp,
    /// All pods turn Ready.
    Ready,
    /// Memory and CPU with all pods, nothing happening.
    Idle,
    /// Start with all pods present.
    Restart,
    /// Hundreds of pods are deleted by somebody else.
    Churn,
    /// From all pods to 0.
    ScaleDown,
    /// One ReplicaSet from 0 to all pods.
    ScaleUpOne,
    /// From a new ReplicaSet to its pod, idle.
    Latency,
    /// The same while another one scales by thousands.
    LatencyBusy,
    /// From a lost pod to the status that shows it, in roll-outs of a Deployment.
    Loss,
    /// Churn for an hour: does memory grow?
    Soak,
    /// Thousands of ReplicaSets of one pod, each beside nine old revisions at zero.
    Small,
    /// From a new ReplicaSet to its pod beside many large ones, with a rate limit and without.
    Giants,
}

impl Options {
    pub(crate) fn wants(&self, scenario: Scenario) -> bool {
        let is_long = matches!(
            scenario,
            Scenario::Soak | Scenario::Small | Scenario::Giants
        );
        (self.scenarios.is_empty() && !is_long) || self.scenarios.contains(&scenario)
    }

    /// The names of the scenarios that are wanted, as the command line has them.
    pub(crate) fn scenario_names(&self) -> Vec<String> {
        let all = Scenario::value_variants().iter();
        let wanted = all.filter(|scenario| self.wants(**scenario));
        let values = wanted.filter_map(Scenario::to_possible_value);
        values.map(|value| value.get_name().to_owned()).collect()
    }

    /// How many pods each ReplicaSet has where there are many.
    pub(crate) fn pods_of_each(&self) -> usize {
        self.pods / self.replicasets.max(1)
    }

    /// How many pods many ReplicaSets have in all, since all have the same number.
    pub(crate) fn pods_of_many(&self) -> usize {
        self.pods_of_each() * self.replicasets.max(1)
    }

    pub(crate) fn headline(&self) -> String {
        format!(
            "{} pods, {} ReplicaSets, {} rounds",
            self.pods, self.replicasets, self.rounds
        )
    }
}
