//! Resources that the server stores without a behaviour of their own: the built-in ones are rows of
//! a table here, custom ones come from their definitions.

use std::hash::{Hash, Hasher};

use serde_json::Value;

use crate::columns::plain::{Cell, Column};
use crate::objects::plain;
use crate::resource::{Facts, N_KNOWN};

/// A resource that the server stores.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) facts: Facts,
    /// See [`crate::resource::Resource::place`].
    pub(crate) place: usize,
    /// True for a resource that an object defines.
    pub(crate) is_custom: bool,
    /// The server counts changes of an object in `metadata.generation`.
    pub(crate) has_generation: bool,
    /// Names are path segments: they may contain colons and capital letters.
    pub(crate) has_free_names: bool,
    /// The members that objects get if they lack them, as JSON.
    pub(crate) defaults: &'static str,
    /// Completes an object after it has its defaults.
    pub(crate) complete: fn(&mut Value),
    /// The status of a new object, as JSON; empty for none. `None` keeps the request's.
    pub(crate) first_status: Option<&'static str>,
    pub(crate) template: Template,
    pub(crate) scale: ScalePaths,
    /// Why an object has no effect here, for a warning; empty without one.
    pub(crate) idle_because: &'static str,
    /// Table columns between name and age.
    pub(crate) columns: &'static [Column],
}

/// How the server treats `spec.template`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Template {
    None,
    /// A pod template gets its defaults.
    Pod,
    /// As `Pod`, and template and selector are validated as those of a ReplicaSet.
    Selected,
}

/// The fields of the subresource `scale`, as JSON pointers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: &'static str,
    pub(crate) status_replicas: &'static str,
    /// A selector in its text form. Empty for the label selector in `/spec/selector`.
    pub(crate) selector: &'static str,
}

impl ScalePaths {
    /// The fields of the built-in kinds.
    pub(crate) const USUAL: Self = Self {
        spec_replicas: "/spec/replicas",
        status_replicas: "/status/replicas",
        selector: "",
    };
}

// Two resources are equal if group, version and plural name are. The place stands for group and
// plural name.
impl PartialEq for Plain {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place && self.facts.version == other.facts.version
    }
}

impl Eq for Plain {}

impl Hash for Plain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place.hash(state);
        self.facts.version.hash(state);
    }
}

const WORKLOAD: &str = "nothing happens until a controller for them runs beside it";
const WEBHOOKS: &str = "it calls no webhooks";

/// The number of built-in rows.
const N_ROWS: usize = 36;

/// The built-in resources that are only stored.
pub(crate) static PLAIN: [Plain; N_ROWS] = placed([
    row("", "services", "Service")
        .short(&["svc"])
        .of_all()
        .with_status(r#"{"loadBalancer":{}}"#)
        .defaults(concat!(
            r#"{"spec":{"type":"ClusterIP","sessionAffinity":"None","#,
            r#""internalTrafficPolicy":"Cluster"}}"#
        ))
        .complete(plain::complete_service)
        .columns(&[
            Column("Type", Cell::Text("/spec/type")),
            Column("Cluster-IP", Cell::Text("/spec/clusterIP")),
        ]),
    row("", "configmaps", "ConfigMap")
        .short(&["cm"])
        .columns(&[Column("Data", Cell::Size("/data"))]),
    row("", "secrets", "Secret")
        .defaults(r#"{"type":"Opaque"}"#)
        .complete(plain::complete_secret)
        .columns(&[
            Column("Type", Cell::Text("/type")),
            Column("Data", Cell::Size("/data")),
        ]),
    row("", "endpoints", "Endpoints").short(&["ep"]),
    row("", "persistentvolumeclaims", "PersistentVolumeClaim")
        .short(&["pvc"])
        .with_status(r#"{"phase":"Pending"}"#)
        .columns(&[Column("Status", Cell::Text("/status/phase"))]),
    row("", "persistentvolumes", "PersistentVolume")
        .short(&["pv"])
        .cluster_scoped()
        .with_status(r#"{"phase":"Pending"}"#)
        .columns(&[Column("Status", Cell::Text("/status/phase"))]),
    row("", "limitranges", "LimitRange").short(&["limits"]),
    row("", "podtemplates", "PodTemplate"),
    row("apps", "deployments", "Deployment")
        .short(&["deploy"])
        .of_all()
        .workload(Template::Selected)
        .with_scale()
        .defaults(concat!(
            r#"{"spec":{"replicas":1,"strategy":{"type":"RollingUpdate","rollingUpdate":"#,
            r#"{"maxUnavailable":"25%","maxSurge":"25%"}},"revisionHistoryLimit":10,"#,
            r#""progressDeadlineSeconds":600}}"#
        ))
        .complete(plain::complete_strategy)
        .columns(&[
            Column(
                "Ready",
                Cell::Ratio("/status/readyReplicas", "/spec/replicas"),
            ),
            Column("Up-to-date", Cell::Count("/status/updatedReplicas")),
            Column("Available", Cell::Count("/status/availableReplicas")),
        ]),
    row("apps", "daemonsets", "DaemonSet")
        .short(&["ds"])
        .of_all()
        .workload(Template::Selected)
        .defaults(concat!(
            r#"{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":"#,
            r#"{"maxUnavailable":1,"maxSurge":0}},"revisionHistoryLimit":10}}"#
        ))
        .complete(plain::complete_strategy)
        .columns(&[
            Column("Desired", Cell::Count("/status/desiredNumberScheduled")),
            Column("Current", Cell::Count("/status/currentNumberScheduled")),
            Column("Ready", Cell::Count("/status/numberReady")),
        ]),
    row("apps", "statefulsets", "StatefulSet")
        .short(&["sts"])
        .of_all()
        .workload(Template::Selected)
        .with_scale()
        .defaults(concat!(
            r#"{"spec":{"replicas":1,"podManagementPolicy":"OrderedReady","updateStrategy":"#,
            r#"{"type":"RollingUpdate","rollingUpdate":{"partition":0}},"#,
            r#""revisionHistoryLimit":10,"persistentVolumeClaimRetentionPolicy":"#,
            r#"{"whenDeleted":"Retain","whenScaled":"Retain"}}}"#
        ))
        .complete(plain::complete_strategy)
        .columns(&[Column(
            "Ready",
            Cell::Ratio("/status/readyReplicas", "/spec/replicas"),
        )]),
    row("apps", "controllerrevisions", "ControllerRevision"),
    row("batch", "jobs", "Job")
        .of_all()
        .workload(Template::Pod)
        .defaults(concat!(
            r#"{"spec":{"parallelism":1,"backoffLimit":6,"completionMode":"NonIndexed","#,
            r#""suspend":false,"podReplacementPolicy":"TerminatingOrFailed"}}"#
        ))
        .columns(&[Column(
            "Completions",
            Cell::Ratio("/status/succeeded", "/spec/completions"),
        )]),
    row("batch", "cronjobs", "CronJob")
        .short(&["cj"])
        .of_all()
        .workload(Template::None)
        .defaults(concat!(
            r#"{"spec":{"concurrencyPolicy":"Allow","suspend":false,"#,
            r#""successfulJobsHistoryLimit":3,"failedJobsHistoryLimit":1}}"#
        ))
        .columns(&[Column("Schedule", Cell::Text("/spec/schedule"))]),
    row(
        "autoscaling",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
    )
    .version("v2")
    .short(&["hpa"])
    .of_all()
    .with_status("{}")
    .idle(WORKLOAD)
    .columns(&[
        Column("Minpods", Cell::Count("/spec/minReplicas")),
        Column("Maxpods", Cell::Count("/spec/maxReplicas")),
        Column("Replicas", Cell::Count("/status/currentReplicas")),
    ]),
    row("policy", "poddisruptionbudgets", "PodDisruptionBudget")
        .short(&["pdb"])
        .counted()
        .with_status("{}"),
    row("networking.k8s.io", "ingresses", "Ingress")
        .short(&["ing"])
        .counted()
        .with_status(r#"{"loadBalancer":{}}"#),
    row("networking.k8s.io", "networkpolicies", "NetworkPolicy")
        .short(&["netpol"])
        .counted(),
    row("networking.k8s.io", "ingressclasses", "IngressClass")
        .cluster_scoped()
        .counted(),
    row("discovery.k8s.io", "endpointslices", "EndpointSlice").counted(),
    row("rbac.authorization.k8s.io", "roles", "Role").free_names(),
    row("rbac.authorization.k8s.io", "rolebindings", "RoleBinding").free_names(),
    row("rbac.authorization.k8s.io", "clusterroles", "ClusterRole")
        .cluster_scoped()
        .free_names(),
    row(
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        "ClusterRoleBinding",
    )
    .cluster_scoped()
    .free_names(),
    row("scheduling.k8s.io", "priorityclasses", "PriorityClass")
        .short(&["pc"])
        .cluster_scoped(),
    row("storage.k8s.io", "storageclasses", "StorageClass")
        .short(&["sc"])
        .cluster_scoped(),
    row("storage.k8s.io", "csidrivers", "CSIDriver").cluster_scoped(),
    row("storage.k8s.io", "csinodes", "CSINode").cluster_scoped(),
    row(
        "storage.k8s.io",
        "csistoragecapacities",
        "CSIStorageCapacity",
    ),
    row("storage.k8s.io", "volumeattachments", "VolumeAttachment")
        .cluster_scoped()
        .with_status(r#"{"attached":false}"#),
    row("resource.k8s.io", "resourceclaims", "ResourceClaim").with_status("{}"),
    row("resource.k8s.io", "resourceslices", "ResourceSlice").cluster_scoped(),
    row("resource.k8s.io", "deviceclasses", "DeviceClass").cluster_scoped(),
    row("resource.k8s.io", "devicetaintrules", "DeviceTaintRule")
        .cluster_scoped()
        .with_status("{}"),
    row(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
    )
    .cluster_scoped()
    .counted()
    .idle(WEBHOOKS),
    row(
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
    )
    .cluster_scoped()
    .counted()
    .idle(WEBHOOKS),
]);

/// Sets the place of each row: they follow the resources with a behaviour.
const fn placed(mut rows: [Plain; N_ROWS]) -> [Plain; N_ROWS] {
    let mut row = 0;
    while row < N_ROWS {
        rows[row].place = N_KNOWN + row;
        row += 1;
    }
    rows
}

/// The number of built-in resources.
pub(crate) const N_BUILT_IN: usize = N_KNOWN + N_ROWS;

const fn row(group: &'static str, plural: &'static str, kind: &'static str) -> Plain {
    Plain {
        facts: Facts {
            group,
            plural,
            kind,
            ..Facts::EMPTY
        },
        place: 0,
        is_custom: false,
        has_generation: false,
        has_free_names: false,
        defaults: "{}",
        complete: plain::is_complete,
        first_status: None,
        template: Template::None,
        scale: ScalePaths::USUAL,
        idle_because: "",
        columns: &[],
    }
}

impl Plain {
    const fn version(mut self, version: &'static str) -> Self {
        self.facts.version = version;
        self
    }

    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.facts.short_names = names;
        self
    }

    const fn of_all(mut self) -> Self {
        self.facts.categories = &["all"];
        self
    }

    const fn cluster_scoped(mut self) -> Self {
        self.facts.namespaced = false;
        self
    }

    const fn free_names(mut self) -> Self {
        self.has_free_names = true;
        self
    }

    const fn counted(mut self) -> Self {
        self.has_generation = true;
        self
    }

    const fn idle(mut self, why: &'static str) -> Self {
        self.idle_because = why;
        self
    }

    const fn with_status(mut self, first: &'static str) -> Self {
        self.facts.subresources = &["status"];
        self.first_status = Some(first);
        self
    }

    /// A kind whose objects a controller turns into pods.
    const fn workload(mut self, template: Template) -> Self {
        self.template = template;
        self.counted().with_status("{}").idle(WORKLOAD)
    }

    const fn with_scale(mut self) -> Self {
        self.facts.subresources = &["status", "scale"];
        self
    }

    const fn defaults(mut self, defaults: &'static str) -> Self {
        self.defaults = defaults;
        self
    }

    const fn complete(mut self, complete: fn(&mut Value)) -> Self {
        self.complete = complete;
        self
    }

    const fn columns(mut self, columns: &'static [Column]) -> Self {
        self.columns = columns;
        self
    }
}
