//! kube-controller-manager's flags that this daemon does not have, so that a command line of 1.36 can be
//! pasted with `--kcm-compat` (kubernetes `cmd/kube-controller-manager/app/options`, component-base,
//! controller-manager, cloud-provider, apiserver). The others it takes anyway.

use super::flags::GATES;
use super::sources::Argument;

/// What becomes of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It concerns other controllers.
    Ignored,
    /// It concerns this daemon too, which does otherwise: this sentence says how.
    Otherwise(&'static str),
}

/// A flag of kube-controller-manager.
#[derive(Clone, Copy)]
struct Foreign {
    name: &'static str,
    /// False if it is a bool, whose value never stands apart.
    takes_value: bool,
    fate: Fate,
}

const fn value(name: &'static str) -> Foreign {
    Foreign {
        name,
        takes_value: true,
        fate: Fate::Ignored,
    }
}

const fn switch(name: &'static str) -> Foreign {
    Foreign {
        takes_value: false,
        ..value(name)
    }
}

const fn otherwise(foreign: Foreign, how: &'static str) -> Foreign {
    Foreign {
        fate: Fate::Otherwise(how),
        ..foreign
    }
}

const FRONT_PROXY: &str = "callers through a front proxy are not believed";
const LOOKUP: &str = "callers are always looked up at the API server, never in its ConfigMap";
const CACHED: &str = "answers about callers are kept for this daemon's own times";
const HTTP2: &str = "HTTP/1.1 is served";
const BIND: &str = "ports are not shared";
const METRICS: &str = "all metrics are shown, with all labels";
const VERSION: &str = "there is one version to be compatible with, this daemon's";
const STREAM: &str = "the log is one unbuffered stream on standard error";

const FOREIGN: &[Foreign] = &[
    switch("allocate-node-cidrs"),
    otherwise(value("allow-metric-labels"), METRICS),
    otherwise(value("allow-metric-labels-manifest"), METRICS),
    switch("allow-untagged-cloud"),
    value("attach-detach-reconcile-sync-period"),
    otherwise(switch("authentication-skip-lookup"), LOOKUP),
    otherwise(value("authentication-token-webhook-cache-ttl"), CACHED),
    otherwise(switch("authentication-tolerate-lookup-failure"), LOOKUP),
    otherwise(value("authorization-webhook-cache-authorized-ttl"), CACHED),
    otherwise(
        value("authorization-webhook-cache-unauthorized-ttl"),
        CACHED,
    ),
    otherwise(
        value("cert-dir"),
        "a certificate that is made is kept in memory; name one by --tls-cert-file",
    ),
    value("cidr-allocator-type"),
    value("cloud-config"),
    value("cloud-provider"),
    value("cluster-cidr"),
    value("cluster-name"),
    value("cluster-signing-cert-file"),
    value("cluster-signing-duration"),
    value("cluster-signing-key-file"),
    value("cluster-signing-kube-apiserver-client-cert-file"),
    value("cluster-signing-kube-apiserver-client-key-file"),
    value("cluster-signing-kubelet-client-cert-file"),
    value("cluster-signing-kubelet-client-key-file"),
    value("cluster-signing-kubelet-serving-cert-file"),
    value("cluster-signing-kubelet-serving-key-file"),
    value("cluster-signing-legacy-unknown-cert-file"),
    value("cluster-signing-legacy-unknown-key-file"),
    value("concurrent-cron-job-syncs"),
    value("concurrent-daemonset-syncs"),
    value("concurrent-deployment-syncs"),
    value("concurrent-device-taint-eviction-syncs"),
    value("concurrent-endpoint-syncs"),
    value("concurrent-ephemeralvolume-syncs"),
    value("concurrent-gc-syncs"),
    value("concurrent-horizontal-pod-autoscaler-syncs"),
    value("concurrent-job-syncs"),
    value("concurrent-namespace-syncs"),
    value("concurrent-resource-quota-syncs"),
    value("concurrent-resourceclaim-syncs"),
    value("concurrent-service-endpoint-syncs"),
    value("concurrent-service-syncs"),
    value("concurrent-serviceaccount-token-syncs"),
    value("concurrent-statefulset-syncs"),
    value("concurrent-ttl-after-finished-syncs"),
    value("concurrent-validating-admission-policy-status-syncs"),
    switch("configure-cloud-routes"),
    otherwise(switch("contention-profiling"), "there is no such profile"),
    otherwise(
        value("controller-shutdown-timeout"),
        "the time to stop is 30 seconds",
    ),
    otherwise(
        value("controller-start-interval"),
        "controllers start at once",
    ),
    switch("disable-attach-detach-reconcile-sync"),
    switch("disable-force-detach-on-timeout"),
    otherwise(switch("disable-http2-serving"), HTTP2),
    otherwise(value("disabled-metrics"), METRICS),
    otherwise(value("emulated-version"), VERSION),
    switch("enable-dynamic-provisioning"),
    switch("enable-garbage-collector"),
    switch("enable-hostpath-provisioner"),
    value("endpoint-updates-batch-period"),
    value("endpointslice-updates-batch-period"),
    value("external-cloud-volume-plugin"),
    value("flex-volume-plugin-dir"),
    value("horizontal-pod-autoscaler-cpu-initialization-period"),
    value("horizontal-pod-autoscaler-downscale-stabilization"),
    value("horizontal-pod-autoscaler-initial-readiness-delay"),
    value("horizontal-pod-autoscaler-sync-period"),
    value("horizontal-pod-autoscaler-tolerance"),
    otherwise(value("http2-max-streams-per-connection"), HTTP2),
    value("large-cluster-size-threshold"),
    value("legacy-service-account-token-clean-up-period"),
    otherwise(value("log-flush-frequency"), STREAM),
    otherwise(value("log-json-info-buffer-size"), STREAM),
    otherwise(switch("log-json-split-stream"), STREAM),
    otherwise(value("log-text-info-buffer-size"), STREAM),
    otherwise(switch("log-text-split-stream"), STREAM),
    value("max-endpoints-per-slice"),
    otherwise(value("min-compatibility-version"), VERSION),
    value("mirroring-concurrent-service-endpoint-syncs"),
    value("mirroring-endpointslice-updates-batch-period"),
    value("mirroring-max-endpoints-per-subset"),
    value("namespace-sync-period"),
    value("node-cidr-mask-size"),
    value("node-cidr-mask-size-ipv4"),
    value("node-cidr-mask-size-ipv6"),
    value("node-eviction-rate"),
    value("node-monitor-grace-period"),
    value("node-monitor-period"),
    value("node-startup-grace-period"),
    value("node-sync-period"),
    otherwise(switch("permit-address-sharing"), BIND),
    otherwise(switch("permit-port-sharing"), BIND),
    value("pv-recycler-increment-timeout-nfs"),
    value("pv-recycler-minimum-timeout-hostpath"),
    value("pv-recycler-minimum-timeout-nfs"),
    value("pv-recycler-pod-template-filepath-hostpath"),
    value("pv-recycler-pod-template-filepath-nfs"),
    value("pv-recycler-timeout-increment-hostpath"),
    value("pvclaimbinder-sync-period"),
    otherwise(value("requestheader-allowed-names"), FRONT_PROXY),
    otherwise(value("requestheader-client-ca-file"), FRONT_PROXY),
    otherwise(value("requestheader-extra-headers-prefix"), FRONT_PROXY),
    otherwise(value("requestheader-group-headers"), FRONT_PROXY),
    otherwise(value("requestheader-uid-headers"), FRONT_PROXY),
    otherwise(value("requestheader-username-headers"), FRONT_PROXY),
    value("resource-quota-sync-period"),
    value("root-ca-file"),
    value("route-reconciliation-period"),
    value("secondary-node-eviction-rate"),
    value("service-account-private-key-file"),
    value("service-cluster-ip-range"),
    otherwise(value("show-hidden-metrics-for-version"), METRICS),
    value("terminated-pod-gc-threshold"),
    otherwise(
        value("tls-cipher-suites"),
        "the suites are those of the TLS library, which has no weak ones",
    ),
    otherwise(
        value("tls-curve-preferences"),
        "the curves are those of the TLS library",
    ),
    otherwise(
        value("tls-sni-cert-key"),
        "one certificate is served, --tls-cert-file",
    ),
    value("unhealthy-zone-threshold"),
    otherwise(
        switch("use-service-account-credentials"),
        "the credentials are those of the kubeconfig, for all controllers",
    ),
];

/// The other controllers of kube-controller-manager and their older names (kubernetes
/// `cmd/kube-controller-manager/names/controller_names.go`, and the aliases in `app`).
const CONTROLLERS: &[&str] = &[
    "attachdetach",
    "bootstrap-signer-controller",
    "bootstrapsigner",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "cloud-node-lifecycle",
    "cloud-node-lifecycle-controller",
    "clusterrole-aggregation",
    "clusterrole-aggregation-controller",
    "cronjob",
    "cronjob-controller",
    "csrapproving",
    "csrcleaner",
    "csrsigning",
    "daemonset",
    "daemonset-controller",
    "deployment",
    "deployment-controller",
    "device-taint-eviction-controller",
    "disruption",
    "disruption-controller",
    "endpoint",
    "endpoints-controller",
    "endpointslice",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "endpointslicemirroring",
    "ephemeral-volume",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "garbagecollector",
    "horizontal-pod-autoscaler-controller",
    "horizontalpodautoscaling",
    "job",
    "job-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "legacy-service-account-token-cleaner",
    "legacy-serviceaccount-token-cleaner-controller",
    "namespace",
    "namespace-controller",
    "node-ipam-controller",
    "node-lifecycle-controller",
    "node-route-controller",
    "nodeipam",
    "nodelifecycle",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder",
    "persistentvolume-binder-controller",
    "persistentvolume-expander",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "podcertificaterequest-cleaner-controller",
    "podgc",
    "podgroup-protection-controller",
    "pv-protection",
    "pvc-protection",
    "resource-claim-controller",
    "resourceclaim-controller",
    "resourcepoolstatusrequest-controller",
    "resourcequota",
    "resourcequota-controller",
    "root-ca-cert-publisher",
    "root-ca-certificate-publisher-controller",
    "route",
    "selinux-warning-controller",
    "service",
    "service-cidr-controller",
    "service-lb-controller",
    "serviceaccount",
    "serviceaccount-controller",
    "serviceaccount-token",
    "serviceaccount-token-controller",
    "statefulset",
    "statefulset-controller",
    "storage-version-gc",
    "storage-version-migrator-controller",
    "storageversion-garbage-collector-controller",
    "svm",
    "taint-eviction-controller",
    "token-cleaner-controller",
    "tokencleaner",
    "ttl",
    "ttl-after-finished",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

/// Whether a value follows this flag of kube-controller-manager; none if it has no such flag.
pub(super) fn takes_value(name: &str) -> Option<bool> {
    find(name).map(|foreign| foreign.takes_value)
}

fn find(name: &str) -> Option<&'static Foreign> {
    FOREIGN.iter().find(|foreign| foreign.name == name)
}

/// What was taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// What concerns other controllers.
    pub foreign: Vec<String>,
    /// What concerns this daemon, which does otherwise: the flag, and how.
    pub otherwise: Vec<String>,
}

impl Ignored {
    /// True if nothing was.
    pub fn is_empty(&self) -> bool {
        self.foreign.is_empty() && self.otherwise.is_empty()
    }

    /// Takes out everything that kube-controller-manager would understand and this daemon would not:
    /// its other flags, controllers and feature gates, and values that are empty and mean the default.
    pub(super) fn take_out(&mut self, arguments: Vec<Argument>) -> Vec<Argument> {
        let kept = arguments.into_iter().filter_map(|argument| {
            let (Some(name), value) = (argument.name(), argument.value()) else {
                return Some(argument);
            };
            if let Some(foreign) = find(&name) {
                let (told, line) = match foreign.fate {
                    Fate::Ignored => (&mut self.foreign, format!("--{name}")),
                    Fate::Otherwise(how) => (&mut self.otherwise, format!("--{name}: {how}")),
                };
                if !told.contains(&line) {
                    told.push(line);
                }
                return None;
            }
            let Some(value) = value else {
                return Some(argument);
            };
            match name.as_str() {
                _ if value.is_empty() => None,
                "controllers" => self.keep_items(argument, &name, &value, |item| !is_foreign(item)),
                "feature-gates" => self.keep_items(argument, &name, &value, is_own_gate),
                _ => Some(argument),
            }
        });
        kept.collect()
    }

    fn keep_items(
        &mut self,
        argument: Argument,
        name: &str,
        value: &str,
        is_own: fn(&str) -> bool,
    ) -> Option<Argument> {
        let (own, foreign): (Vec<&str>, Vec<&str>) =
            value.split(',').partition(|item| is_own(item));
        let foreign = foreign.iter().map(|item| format!("--{name}={item}"));
        self.foreign.extend(foreign);
        let value = own.join(",");
        (!own.is_empty()).then(|| Argument::new(name, value.as_ref(), argument.origin))
    }
}

/// True for the other controllers of kube-controller-manager; a name that nobody knows is a mistake.
fn is_foreign(item: &str) -> bool {
    let name = item.strip_prefix('-').unwrap_or(item);
    CONTROLLERS.contains(&name)
}

fn is_own_gate(item: &str) -> bool {
    let name = item.split('=').next().unwrap_or_default();
    GATES.iter().any(|gate| gate.name == name)
}

#[cfg(test)]
mod tests;
