//! Flags for behaviour beyond upstream's. Each is the default of an annotation of the same name.

use std::time::Duration;

use clap::Args;

use crate::api::Policy;
use crate::api::policy::{
    FailedPodBackoff, ScaleDownOrder, or_off, parse_kept, parse_min_age, parse_on_off,
    parse_timeout,
};

/// A value that `off` switches off. An alias, so that clap does not take it for an absent value.
type OrOff<T> = std::option::Option<T>;

/// Flags for behaviour beyond upstream's.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Beyond upstream")]
pub struct OptInArgs {
    /// Replacements of Failed pods wait, at first and at most this long: off, or FIRST..LONGEST
    /// such as 10s..5m.
    #[arg(long, value_name = "WAITS", default_value = "off", hide_short_help = true,
        value_parser = or_off::<FailedPodBackoff>)]
    pub failed_pod_backoff: OrOff<FailedPodBackoff>,

    /// Number of Failed pods kept per ReplicaSet; older ones are deleted: off, or a number.
    #[arg(long, value_name = "N", default_value = "off", hide_short_help = true,
        value_parser = parse_kept)]
    pub failed_pods_kept: OrOff<u32>,

    /// No Failed pod is deleted before this time has passed.
    #[arg(long, value_name = "DURATION", default_value = "5m", hide_short_help = true,
        value_parser = parse_min_age)]
    pub failed_pods_min_age: Duration,

    /// Preferences of a scale-down among pods in equal state: off, spread, consolidate, or both.
    #[arg(
        long,
        value_name = "ORDER",
        default_value = "off",
        hide_short_help = true
    )]
    pub scale_down_order: ScaleDownOrder,

    /// Scale-downs respect the annotation replicaset-controller/scale-down of pods: on or off.
    #[arg(long, value_name = "SWITCH", default_value = "off", hide_short_help = true,
        value_parser = parse_on_off, action = clap::ArgAction::Set)]
    pub scale_down_protection: bool,

    /// Protected pods block a scale-down for at most this time: off, or a duration.
    #[arg(long, value_name = "DURATION", default_value = "off", hide_short_help = true,
        value_parser = parse_timeout)]
    pub protected_timeout: OrOff<Duration>,
}

impl OptInArgs {
    /// The default of all ReplicaSets.
    pub fn policy(&self) -> Policy {
        Policy {
            failed_pod_backoff: self.failed_pod_backoff,
            failed_pods_kept: self.failed_pods_kept,
            failed_pods_min_age: self.failed_pods_min_age,
            scale_down_order: self.scale_down_order,
            scale_down_protection: self.scale_down_protection,
            protected_timeout: self.protected_timeout,
        }
    }
}
