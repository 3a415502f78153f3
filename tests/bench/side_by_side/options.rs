//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Compares this daemon with kube-controller-manager on one API server.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Total number of pods.
    #[arg(long, default_value_t = 2000)]
    pub(crate) pods: usize,

    /// Number of ReplicaSets for these pods, in scenarios with many.
    #[arg(long, default_value_t = 20)]
    pub(crate) replicasets: usize,

    /// Number of rounds. In each round both controllers run all scenarios.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,

    /// Scenarios to run; by default all but `soak`, `small`, `quota`, `failing` and `large-sets`.
    #[arg(long, value_delimiter = ',')]
    pub(crate) scenarios: Vec<Scenario>,

    /// Duration of the scenario `soak`, in minutes.
    #[arg(long, default_value_t = 60)]
    pub(crate) soak_minutes: u64,

    /// Numbers of ReplicaSets with 2,000 pods in the scenario `large-sets`, one run each.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 50, 500])]
    pub(crate) large_sets: Vec<usize>,

    /// Number of ReplicaSets with one pod in the scenario `small`, each beside nine old revisions.
    #[arg(long, default_value_t = 2000)]
    pub(crate) small_replicasets: usize,

    /// Number of ReplicaSets that wait in the scenario `quota`.
    #[arg(long, default_value_t = 2000)]
    pub(crate) quota_replicasets: usize,

    /// Give this daemon the rights that its command `rbac` grants, instead of all. It may then not
    /// watch quotas.
    #[arg(long)]
    pub(crate) stock_rights: bool,

    /// How long the node rejects pods in the scenario `failing`, in minutes.
    #[arg(long, default_value_t = 1)]
    pub(crate) failing_minutes: u64,

    /// How long to measure idle CPU, in seconds.
    #[arg(long, default_value_t = 30)]
    pub(crate) idle_seconds: u64,

    /// The file for all single figures, in JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,

    /// `cargo bench` passes it.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Memory with no pods.
    Empty,
    /// Scale-up of many ReplicaSets from 0 to all pods.
    ScaleUp,
    /// All pods become Ready.
    Ready,
    /// Memory and CPU with all pods and no changes.
    Idle,
    /// Start with all pods present.
    Restart,
    /// The benchmark deletes hundreds of pods.
    Churn,
    /// Scale-down from all pods to 0.
    ScaleDown,
    /// Scale-up of one ReplicaSet from 0 to all pods.
    ScaleUpOne,
    /// Time from a new ReplicaSet to its pod, on an idle controller.
    Latency,
    /// The same while another ReplicaSet scales by thousands.
    LatencyBusy,
    /// Time from a lost pod to the status that shows the loss, in roll-outs of a Deployment.
    Loss,
    /// Memory during an hour of churn.
    Soak,
    /// Thousands of ReplicaSets with one pod, each beside nine old revisions at zero.
    Small,
    /// Thousands of ReplicaSets in front of one quota.
    Quota,
    /// Pods created for a node that rejects them all, and the time until all run afterwards.
    Failing,
    /// Time from a new ReplicaSet to its pod beside many large ones, with and without a rate limit.
    LargeSets,
}

impl Options {
    pub(crate) fn includes(&self, scenario: Scenario) -> bool {
        let is_apart = matches!(
            scenario,
            Scenario::Soak
                | Scenario::Small
                | Scenario::Quota
                | Scenario::Failing
                | Scenario::LargeSets
        );
        (self.scenarios.is_empty() && !is_apart) || self.scenarios.contains(&scenario)
    }

    /// The names of the scenarios to run, as on the command line.
    pub(crate) fn scenario_names(&self) -> Vec<String> {
        let all = Scenario::value_variants().iter();
        let included = all.filter(|scenario| self.includes(**scenario));
        let values = included.filter_map(Scenario::to_possible_value);
        values.map(|value| value.get_name().to_owned()).collect()
    }

    /// Pods of each ReplicaSet in scenarios with many.
    pub(crate) fn pods_of_each(&self) -> usize {
        self.pods / self.replicasets.max(1)
    }

    /// Pods of all ReplicaSets in scenarios with many. It may be less than `pods`, as each
    /// ReplicaSet has the same number.
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
