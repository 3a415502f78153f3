//! Flags of kube-controller-manager 1.34 to 1.37 that this daemon does not have, for `--kcm-compat`
//! (kubernetes `cmd/kube-controller-manager/app/options`, component-base, controller-manager,
//! cloud-provider, apiserver).

use super::flags::GATES;
use super::sources::Argument;

/// The handling of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The flag configures other controllers.
    Ignored,
    /// The flag concerns this daemon, which behaves differently; the text says how.
    Otherwise(&'static str),
}

/// A flag of kube-controller-manager.
#[derive(Clone, Copy)]
struct Foreign {
    name: &'static str,
    /// False for a bool, whose value is never a separate word.
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

const FRONT_PROXY: &str = "this daemon does not authenticate callers through a front proxy";
const LOOKUP: &str = "this daemon always asks the API server and never reads its ConfigMap";
const CACHED: &str = "this daemon caches reviews for a fixed time";
const HTTP2: &str = "this daemon serves HTTP/1.1 only";
const BIND: &str = "this daemon shares no port";
const METRICS: &str = "this daemon exposes all metrics with all labels";
const VERSION: &str = "this daemon emulates no other version";
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
        "the self-signed certificate stays in memory; --tls-cert-file names another",
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
    value("concurrent-disruption-syncs"),
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
    otherwise(
        switch("contention-profiling"),
        "this daemon has no contention profile",
    ),
    otherwise(
        value("controller-shutdown-timeout"),
        "the shutdown timeout is 30 seconds",
    ),
    otherwise(
        value("controller-start-interval"),
        "all controllers start at once",
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
        "the TLS library chooses the cipher suites and has no weak ones",
    ),
    otherwise(
        value("tls-curve-preferences"),
        "the TLS library chooses the curves",
    ),
    otherwise(
        value("tls-sni-cert-key"),
        "this daemon serves one certificate, --tls-cert-file",
    ),
    value("unhealthy-zone-threshold"),
    otherwise(
        switch("use-service-account-credentials"),
        "all controllers use the credentials of the kubeconfig",
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

/// Returns whether the flag takes a value; `None` if kube-controller-manager has no such flag.
pub(super) fn takes_value(name: &str) -> Option<bool> {
    find(name).map(|foreign| foreign.takes_value)
}

/// The names of all these flags, without dashes.
pub(super) fn names<'a>() -> impl Iterator<Item = &'a str> {
    FOREIGN.iter().map(|foreign| foreign.name)
}

fn find(name: &str) -> Option<&'static Foreign> {
    FOREIGN.iter().find(|foreign| foreign.name == name)
}

/// The flags, fields and items that `--kcm-compat` ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Those of other controllers.
    pub foreign: Vec<String>,
    /// Flags that this daemon handles differently, each with the difference.
    pub otherwise: Vec<String>,
}

impl Ignored {
    /// True if nothing was ignored.
    pub fn is_empty(&self) -> bool {
        self.foreign.is_empty() && self.otherwise.is_empty()
    }

    /// Removes everything that only kube-controller-manager understands: its other flags,
    /// controllers and feature gates, and empty values, which mean the default there.
    pub(super) fn take_out(&mut self, arguments: Vec<Argument>) -> Vec<Argument> {
        let lists = arguments
            .iter()
            .filter(|it| it.name().as_deref() == Some("controllers"));
        let lists: Vec<_> = lists.filter_map(Argument::value).collect();
        let runs_none = lists
            .iter()
            .flat_map(|list| list.split(','))
            .all(is_foreign);
        let kept = arguments.into_iter().filter_map(|argument| {
            let (Some(name), value) = (argument.name(), argument.value()) else {
                return Some(argument);
            };
            if let Some(foreign) = find(&name) {
                let (lines, line) = match foreign.fate {
                    Fate::Ignored => (&mut self.foreign, format!("--{name}")),
                    Fate::Otherwise(how) => (&mut self.otherwise, format!("--{name}: {how}")),
                };
                if !lines.contains(&line) {
                    lines.push(line);
                }
                return None;
            }
            let Some(value) = value else {
                return Some(argument);
            };
            match name.as_str() {
                _ if value.is_empty() => None,
                // Others only: this program's are off, so it is a mistake.
                "controllers" if runs_none => Some(argument),
                "controllers" => self.keep_items(argument, &name, &value, |item| !is_foreign(item)),
                "feature-gates" => {
                    // Upstream names the component, which it need not.
                    let value = value.replace("kube:", "");
                    self.keep_items(argument, &name, &value, is_own_gate)
                }
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

/// True for another controller of kube-controller-manager. An unknown name is a mistake.
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
