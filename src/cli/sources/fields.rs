//! The fields of the configuration file and their flags. Fields of upstream's
//! KubeControllerManagerConfiguration have their place there (kubernetes
//! `staging/src/k8s.io/kube-controller-manager/config/v1alpha1/types.go`); the daemon's own fields
//! stand beside them.

/// The group and version of the configuration.
pub(in crate::cli) const API_VERSION: &str = "kubecontrollermanager.config.k8s.io/v1alpha1";

/// The kind of the configuration.
pub(in crate::cli) const KIND: &str = "KubeControllerManagerConfiguration";

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Shape {
    /// Text, which may look like a number.
    Text,
    /// A number, a bool or a duration.
    Plain,
    /// A list of strings.
    List,
    /// A map from a gate to a bool.
    Gates,
    /// A list of `filePattern` and `verbosity`.
    Vmodule,
}

/// A field and its flag.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Field {
    /// The keys on the way to the field, joined by dots.
    pub(in crate::cli) path: &'static str,
    /// The flag's name without dashes.
    pub(in crate::cli) flag: &'static str,
    /// The type of the field.
    pub(in crate::cli) shape: Shape,
}

/// All fields, in the order of `config`; siblings stand together.
pub(in crate::cli) const FIELDS: &[Field] = &[
    text("generic.clientConnection.kubeconfig", "kubeconfig"),
    text("generic.clientConnection.master", "master"),
    text("generic.clientConnection.context", "context"),
    text(
        "generic.clientConnection.contentType",
        "kube-api-content-type",
    ),
    plain("generic.clientConnection.qps", "kube-api-qps"),
    plain("generic.clientConnection.burst", "kube-api-burst"),
    text("generic.namespace", "namespace"),
    list("generic.controllers", "controllers"),
    plain("generic.minResyncPeriod", "min-resync-period"),
    plain("generic.leaderElection.leaderElect", "leader-elect"),
    plain(
        "generic.leaderElection.leaseDuration",
        "leader-elect-lease-duration",
    ),
    plain(
        "generic.leaderElection.renewDeadline",
        "leader-elect-renew-deadline",
    ),
    plain(
        "generic.leaderElection.retryPeriod",
        "leader-elect-retry-period",
    ),
    text(
        "generic.leaderElection.resourceLock",
        "leader-elect-resource-lock",
    ),
    text(
        "generic.leaderElection.resourceName",
        "leader-elect-resource-name",
    ),
    text(
        "generic.leaderElection.resourceNamespace",
        "leader-elect-resource-namespace",
    ),
    plain("generic.leaderMigrationEnabled", "enable-leader-migration"),
    text("generic.leaderMigrationConfig", "leader-migration-config"),
    plain("generic.debugging.enableProfiling", "profiling"),
    plain(
        "replicaSetController.concurrentRSSyncs",
        "concurrent-replicaset-syncs",
    ),
    plain(
        "replicationController.concurrentRCSyncs",
        "concurrent-rc-syncs",
    ),
    plain("pods.burstReplicas", "burst-replicas"),
    plain("pods.batchParallelism", "batch-parallelism"),
    plain("pods.statusUpdateInterval", "status-update-interval"),
    text("pods.retryBackoff", "retry-backoff"),
    plain("pods.dryRun", "dry-run"),
    text("optIn.failedPodBackoff", "failed-pod-backoff"),
    text("optIn.failedPodsKept", "failed-pods-kept"),
    plain("optIn.failedPodsMinAge", "failed-pods-min-age"),
    text("optIn.scaleDownOrder", "scale-down-order"),
    text("optIn.scaleDownProtection", "scale-down-protection"),
    text("optIn.protectedTimeout", "protected-timeout"),
    text("serving.bindAddress", "bind-address"),
    plain("serving.securePort", "secure-port"),
    plain("serving.insecurePort", "insecure-port"),
    list("serving.acceptHosts", "accept-hosts"),
    text("serving.tlsCertFile", "tls-cert-file"),
    text("serving.tlsPrivateKeyFile", "tls-private-key-file"),
    text("serving.tlsMinVersion", "tls-min-version"),
    text("serving.clientCAFile", "client-ca-file"),
    text(
        "serving.authenticationKubeconfig",
        "authentication-kubeconfig",
    ),
    text(
        "serving.authorizationKubeconfig",
        "authorization-kubeconfig",
    ),
    list(
        "serving.authorizationAlwaysAllowPaths",
        "authorization-always-allow-paths",
    ),
    field("featureGates", "feature-gates", Shape::Gates),
    text("logging.format", "logging-format"),
    plain("logging.verbosity", "v"),
    field("logging.vmodule", "vmodule", Shape::Vmodule),
];

const fn field(path: &'static str, flag: &'static str, shape: Shape) -> Field {
    Field { path, flag, shape }
}

const fn text(path: &'static str, flag: &'static str) -> Field {
    field(path, flag, Shape::Text)
}

const fn plain(path: &'static str, flag: &'static str) -> Field {
    field(path, flag, Shape::Plain)
}

const fn list(path: &'static str, flag: &'static str) -> Field {
    field(path, flag, Shape::List)
}

/// Fields of kube-controller-manager's configuration for other controllers, or for what this
/// daemon handles differently.
pub(in crate::cli) const FOREIGN: &[&str] = &[
    "generic.port",
    "generic.address",
    "generic.controllerStartInterval",
    "generic.leaderMigration",
    "generic.clientConnection.acceptContentTypes",
    "generic.debugging.enableContentionProfiling",
    "kubeCloudShared",
    "attachDetachController",
    "csrSigningController",
    "daemonSetController",
    "deploymentController",
    "deprecatedController",
    "deviceTaintEvictionController",
    "disruptionController",
    "endpointController",
    "endpointSliceController",
    "endpointSliceMirroringController",
    "ephemeralVolumeController",
    "garbageCollectorController",
    "hpaController",
    "jobController",
    "cronJobController",
    "legacySATokenCleaner",
    "namespaceController",
    "nodeIPAMController",
    "nodeLifecycleController",
    "persistentVolumeBinderController",
    "podGCController",
    "resourceClaimController",
    "resourceQuotaController",
    "saController",
    "serviceController",
    "statefulSetController",
    "ttlAfterFinishedController",
    "validatingAdmissionPolicyStatusController",
];
