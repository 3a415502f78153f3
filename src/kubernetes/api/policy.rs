//! What a ReplicaSet opts in to beyond upstream's behaviour: values of annotations and of flags.
//!
//! An annotation overrides the flag of the same name, and its value `off` switches the behaviour
//! off. Without annotation and flag, the controller behaves as upstream.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::compact_timestamp::parse_duration;
use super::json::collect_map;

/// Quoted values are cut to this many characters.
const QUOTED_MAX: usize = 60;

/// The behaviour of one ReplicaSet, or the default of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `failed-pod-backoff`: how long replacements of Failed pods wait.
    pub failed_pod_backoff: Option<FailedPodBackoff>,
    /// `failed-pods-kept`: number of Failed pods that stay; `None` for all.
    pub failed_pods_kept: Option<u32>,
    /// `failed-pods-min-age`: no Failed pod is deleted before it has been Failed for this time.
    pub failed_pods_min_age: Duration,
    /// `scale-down-order`: preferences among pods whose state upstream's order considers equal.
    pub scale_down_order: ScaleDownOrder,
    /// `scale-down-protection`: whether scale-downs respect the annotation [`SCALE_DOWN`] of pods.
    pub scale_down_protection: bool,
    /// `protected-timeout`: how long protected pods can block a scale-down; `None` is unlimited.
    pub protected_timeout: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            failed_pod_backoff: None,
            failed_pods_kept: None,
            failed_pods_min_age: Duration::from_mins(5),
            scale_down_order: ScaleDownOrder::default(),
            scale_down_protection: false,
            protected_timeout: None,
        }
    }
}

impl Policy {
    /// The policy of an object with these annotations: each one that can be understood overrides
    /// the default.
    pub fn of(opt_ins: &OptIns, default: &Self) -> Self {
        let mut policy = *default;
        for (name, value) in opt_ins.iter() {
            // The sync reports mistakes apart, once.
            drop(policy.set(name, value));
        }
        policy
    }

    /// Why annotations among `opt_ins` have no effect, in a bounded number of sentences.
    pub fn mistakes(opt_ins: &OptIns) -> Vec<String> {
        let mut policy = Self::default();
        let mistake = |(name, value): (&str, &str)| {
            let expected = policy.set(name, value).err()?;
            let [short_name, short_value] = [name, value].map(|text| {
                let end = text.char_indices().nth(QUOTED_MAX).map(|(at, _)| at);
                &text[..end.unwrap_or(text.len())]
            });
            let more = if short_value == value { "" } else { "…" };
            Some(format!(
                "ignoring the annotation {PREFIX}{short_name}={short_value:?}{more}: {expected}"
            ))
        };
        let mut mistakes: Vec<String> = opt_ins.iter().filter_map(mistake).collect();
        if opt_ins.n_more_unknown() > 0 {
            let n = opt_ins.n_more_unknown();
            mistakes.push(format!("{n} more annotations {PREFIX}* have no effect"));
        }
        mistakes
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "failed-pod-backoff" => self.failed_pod_backoff = or_off(value)?,
            "failed-pods-kept" => self.failed_pods_kept = parse_kept(value)?,
            "failed-pods-min-age" => self.failed_pods_min_age = parse_min_age(value)?,
            "scale-down-order" => self.scale_down_order = value.parse()?,
            "scale-down-protection" => self.scale_down_protection = parse_on_off(value)?,
            "protected-timeout" => self.protected_timeout = parse_timeout(value)?,
            _ if SCALE_DOWN.strip_prefix(PREFIX) == Some(name) => {
                return Err("it belongs on a pod".to_owned());
            }
            _ => return Err(format!("expected one of {}", NAMES.join(", "))),
        }
        Ok(())
    }
}

/// The names of the annotations of a ReplicaSet, after the prefix, and of the flags.
pub const NAMES: [&str; 6] = [
    "failed-pod-backoff",
    "failed-pods-kept",
    "failed-pods-min-age",
    "scale-down-order",
    "scale-down-protection",
    "protected-timeout",
];

/// How long replacements of Failed pods wait: at first, and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedPodBackoff {
    /// The first wait. At least a second, since the API's timestamps have no fractions.
    pub first: Duration,
    /// The longest wait, an hour at most.
    pub longest: Duration,
}

impl FailedPodBackoff {
    /// How long a failure counts: twice the time that it takes, at the longest wait, to collect the
    /// failures which make the wait the longest one. So steady probing keeps it there. At least ten
    /// minutes.
    pub fn window(self) -> Duration {
        let doublings = (self.longest.as_secs_f64() / self.first.as_secs_f64()).log2();
        let window = self.longest.mul_f64(2.0 * (doublings + 1.0));
        window.max(Duration::from_mins(10))
    }
}

impl FromStr for FailedPodBackoff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected off, or FIRST..LONGEST from 1s to 1h, such as 10s..5m";
        let (first, longest) = text.split_once("..").ok_or(expected)?;
        let (first, longest) = (parse_duration(first).ok(), parse_duration(longest).ok());
        match (first, longest) {
            (Some(first), Some(longest))
                if first >= Duration::from_secs(1)
                    && first <= longest
                    && longest <= Duration::from_hours(1) =>
            {
                Ok(Self { first, longest })
            }
            _ => Err(expected.to_owned()),
        }
    }
}

impl fmt::Display for FailedPodBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.first, self.longest)
    }
}

/// A preference among pods whose state upstream's order considers equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    /// `spread`: from the topology domain with most pods of the ReplicaSet.
    Spread,
    /// `consolidate`: from nodes that the scale-down can empty.
    Consolidate,
}

/// Preferences in the order of precedence; empty for upstream's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScaleDownOrder([Option<Preference>; 2]);

impl Preference {
    pub fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Consolidate => "consolidate",
        }
    }
}

impl ScaleDownOrder {
    pub fn preferences(self) -> impl Iterator<Item = Preference> {
        self.0.into_iter().flatten()
    }

    pub fn includes(self, preference: Preference) -> bool {
        self.preferences().any(|it| it == preference)
    }

    pub fn is_upstreams(self) -> bool {
        self == Self::default()
    }
}

impl FromStr for ScaleDownOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected off, spread, consolidate, or both with a comma between them";
        let preference = |item: &str| match item.trim() {
            "spread" => Ok(Some(Preference::Spread)),
            "consolidate" => Ok(Some(Preference::Consolidate)),
            _ => Err(expected.to_owned()),
        };
        if text == "off" {
            return Ok(Self::default());
        }
        let order = match text.split_once(',') {
            Some((first, second)) => [preference(first)?, preference(second)?],
            None => [preference(text)?, None],
        };
        let [first, second] = order;
        if first == second {
            return Err(expected.to_owned());
        }
        Ok(Self(order))
    }
}

/// Parses `off`, or a value.
pub fn or_off<T: FromStr<Err = String>>(text: &str) -> Result<Option<T>, String> {
    if text == "off" {
        Ok(None)
    } else {
        text.parse().map(Some)
    }
}

/// Parses `off`, or a value that `parse` understands; `expected` says which.
fn off_or<T, E>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
    expected: &str,
) -> Result<Option<T>, String> {
    match parse(text) {
        Ok(value) => Ok(Some(value)),
        Err(_) if text == "off" => Ok(None),
        Err(_) => Err(format!("expected off, or {expected}")),
    }
}

/// Parses the value of `failed-pods-kept`.
pub fn parse_kept(text: &str) -> Result<Option<u32>, String> {
    off_or(text, str::parse, "a number of pods")
}

/// Parses the value of `scale-down-protection`.
pub fn parse_on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".to_owned()),
    }
}

/// Parses the value of `failed-pods-min-age`; `off`: no minimum age.
pub fn parse_min_age(text: &str) -> Result<Duration, String> {
    off_or(text, parse_duration, "a duration such as 5m").map(Option::unwrap_or_default)
}

/// Parses the value of `protected-timeout`.
pub fn parse_timeout(text: &str) -> Result<Option<Duration>, String> {
    off_or(text, parse_duration, "a duration such as 30m")
}

// Annotations with which a user opts in to behaviour beyond upstream's.
//
// On a ReplicaSet they select behaviour for it. A Deployment copies its own annotations to its
// current ReplicaSet, without a rollout.

pub const PREFIX: &str = "replicaset-controller/";

/// How many annotations of other names than [`NAMES`] are kept to be reported.
const UNKNOWN_MAX: usize = 10;

/// The opt-in annotations of one object, without the prefix, sorted by name: those with known
/// names, and the first of the others. Takes no memory of its own if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OptIns {
    kept: Box<[(Box<str>, Box<str>)]>,
    n_more_unknown: usize,
}

impl OptIns {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(key, _)| *key == name).map(|it| it.1)
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kept.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Number of further annotations with unknown names.
    pub fn n_more_unknown(&self) -> usize {
        self.n_more_unknown
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for OptIns {
    /// Keeps the opt-in annotations among these; of equal names the last one.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(annotations: T) -> Self {
        let mut kept: Vec<(Box<str>, Box<str>)> = Vec::new();
        let mut n_unknown = 0;
        for (name, value) in annotations {
            let Some(name) = name.as_ref().strip_prefix(PREFIX) else {
                continue;
            };
            if let Some((_, known)) = kept.iter_mut().find(|(known, _)| **known == *name) {
                *known = value.as_ref().into();
                continue;
            }
            n_unknown += usize::from(!NAMES.contains(&name));
            if n_unknown <= UNKNOWN_MAX || NAMES.contains(&name) {
                kept.push((name.into(), value.as_ref().into()));
            }
        }
        kept.sort();
        Self {
            kept: kept.into(),
            n_more_unknown: n_unknown.saturating_sub(UNKNOWN_MAX),
        }
    }
}

impl<'de> Deserialize<'de> for OptIns {
    /// Reads a map of annotations.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        collect_map(deserializer)
    }
}

/// The annotation [`SCALE_DOWN`] of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaleDownMark {
    #[default]
    None,
    /// `never`: no scale-down chooses this pod.
    Never,
    /// `first`: a scale-down chooses this pod before all unmarked ones.
    First,
    /// Any other value. It counts as absent.
    Unreadable,
}

pub const SCALE_DOWN: &str = "replicaset-controller/scale-down";

impl ScaleDownMark {
    pub fn from_text(text: &str) -> Self {
        match text {
            "never" => Self::Never,
            "first" => Self::First,
            _ => Self::Unreadable,
        }
    }
}

/// The delay of creates after the API server has rejected one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryBackoff {
    /// Depends on the reason of the rejection, and ends early when the cause may be gone.
    #[default]
    ByReason,
    /// As kube-controller-manager: from 5 ms, doubled with each failure up to 1,000 s.
    Kcm,
}

impl fmt::Display for RetryBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByReason => "by-reason",
            Self::Kcm => "kcm",
        })
    }
}

impl FromStr for RetryBackoff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::ByReason, Self::Kcm];
        let found = all.into_iter().find(|it| it.to_string() == text);
        found.ok_or_else(|| "expected by-reason or kcm".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FailedPodBackoff, NAMES, PREFIX, Policy, Preference};
    use crate::api::OptIns;

    fn annotations(pairs: &[(&str, &str)]) -> OptIns {
        let prefixed = pairs
            .iter()
            .map(|(name, value)| (format!("replicaset-controller/{name}"), *value));
        prefixed.collect()
    }

    #[test]
    fn annotations_override_the_default_and_off_is_a_value() {
        let default = Policy {
            failed_pods_kept: Some(7),
            scale_down_protection: true,
            ..Policy::default()
        };
        assert_eq!(Policy::of(&OptIns::default(), &default), default);
        let policy = Policy::of(
            &annotations(&[
                ("failed-pod-backoff", "10s..5m"),
                ("failed-pods-kept", "off"),
                ("failed-pods-min-age", "off"),
                ("scale-down-order", "spread, consolidate"),
                ("scale-down-protection", "off"),
                ("protected-timeout", "30m"),
            ]),
            &default,
        );
        assert_eq!(
            policy.failed_pod_backoff,
            Some(FailedPodBackoff {
                first: Duration::from_secs(10),
                longest: Duration::from_mins(5)
            })
        );
        assert_eq!(policy.failed_pods_kept, None);
        assert_eq!(policy.failed_pods_min_age, Duration::ZERO);
        assert!(!policy.scale_down_protection);
        assert_eq!(policy.protected_timeout, Some(Duration::from_mins(30)));
        let order: Vec<_> = policy.scale_down_order.preferences().collect();
        assert_eq!(order, [Preference::Spread, Preference::Consolidate]);
    }

    #[test]
    fn a_value_that_cannot_be_understood_counts_as_absent() {
        let wrong = [
            ("failed-pod-backoff", "10s"),
            ("failed-pod-backoff", "5m..10s"),
            ("failed-pod-backoff", "0s..10s"),
            ("failed-pod-backoff", "10s..61m"),
            ("failed-pods-kept", "-1"),
            ("failed-pods-kept", "many"),
            ("failed-pods-min-age", "soon"),
            ("scale-down-order", ""),
            ("scale-down-order", "spread,spread"),
            ("scale-down-order", "zone"),
            ("scale-down-protection", "true"),
            ("protected-timeout", "-1m"),
            ("scale-down", "never"),
            ("failed-pod-back-off", "10s..5m"),
        ];
        for (name, value) in wrong {
            let opt_ins = annotations(&[(name, value)]);
            assert_eq!(Policy::of(&opt_ins, &Policy::default()), Policy::default());
            let mistakes = Policy::mistakes(&opt_ins);
            assert_eq!(mistakes.len(), 1, "{name}: {value}");
        }
        let opt_ins = annotations(&[("failed-pods-kept", &"9".repeat(70))]);
        let mistakes = Policy::mistakes(&opt_ins);
        let expected = format!(
            "ignoring the annotation replicaset-controller/failed-pods-kept=\"{}\"…: expected \
             off, or a number of pods",
            "9".repeat(60)
        );
        assert_eq!(mistakes[0], expected);
    }

    #[test]
    fn every_name_is_an_annotation() {
        for name in NAMES {
            let mistakes = Policy::mistakes(&annotations(&[(name, "?")]));
            assert!(!mistakes[0].contains("one of"), "{name}");
        }
    }

    #[test]
    fn only_opt_in_annotations_are_kept() {
        let json = r#"{"b": "x", "replicaset-controller/z": "1",
            "deployment.kubernetes.io/revision": "3",
            "replicaset-controller/a": null, "replicaset-controller/z": "2"}"#;
        let read: OptIns = serde_json::from_str(json).expect("annotations");
        assert_eq!(read.iter().collect::<Vec<_>>(), [("a", ""), ("z", "2")]);
        assert_eq!(read.get("z"), Some("2"));
        assert_eq!(read.get("b"), None);
        let none: OptIns = serde_json::from_str(r#"{"b": "x"}"#).expect("annotations");
        assert!(none.is_empty());
    }

    #[test]
    fn known_names_are_kept_after_any_number_of_others() {
        let unknown = (0..1_000).map(|i| format!("{PREFIX}a{i}"));
        let known = NAMES.map(|name| format!("{PREFIX}{name}"));
        let read: OptIns = unknown.chain(known).map(|name| (name, "")).collect();
        assert!(NAMES.iter().all(|name| read.get(name).is_some()));
        assert_eq!((read.iter().count(), read.n_more_unknown()), (16, 990));
    }
}
