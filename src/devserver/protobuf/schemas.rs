//! The fields of the messages that the server decodes, with the numbers of `generated.proto` beside
//! each API's `types.go`.

use super::Field::{self, Many, Map as MapOf, One};
use super::Kind::{
    Boolean, Bytes, Count, Flag, Integer, IntegerOrText, Message, MicroTime, Quantity, Skipped,
    Text, Time, Unset,
};

/// The fields of a kind.
pub(super) fn of(kind: &str) -> Option<&'static [Field]> {
    Some(match kind {
        "Binding" => BINDING,
        "ClusterRole" => CLUSTER_ROLE,
        "ClusterRoleBinding" | "RoleBinding" => ROLE_BINDING,
        "ConfigMap" => CONFIG_MAP,
        "CronJob" => CRON_JOB,
        "DeleteOptions" => DELETE_OPTIONS,
        "Deployment" => DEPLOYMENT,
        "Event" => EVENT,
        "Job" => JOB,
        "Lease" => LEASE,
        "LocalSubjectAccessReview" | "SubjectAccessReview" => ACCESS_REVIEW,
        "Namespace" => NAMESPACE,
        "PodDisruptionBudget" => DISRUPTION_BUDGET,
        "PriorityClass" => PRIORITY_CLASS,
        "ResourceQuota" => RESOURCE_QUOTA,
        "Role" => ROLE,
        "Scale" => SCALE,
        "Secret" => SECRET,
        "SelfSubjectAccessReview" => SELF_ACCESS_REVIEW,
        "SelfSubjectReview" => SELF_REVIEW,
        "SelfSubjectRulesReview" => RULES_REVIEW,
        "Service" => SERVICE,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "TokenReview" => TOKEN_REVIEW,
        _ => return None,
    })
}

const OWNER_REFERENCE: &[Field] = &[
    One(1, "kind", Text),
    One(3, "name", Text),
    One(4, "uid", Text),
    One(5, "apiVersion", Text),
    One(6, "controller", Boolean),
    One(7, "blockOwnerDeletion", Boolean),
];

const OBJECT_META: &[Field] = &[
    One(1, "name", Text),
    One(2, "generateName", Text),
    One(3, "namespace", Text),
    One(5, "uid", Text),
    One(6, "resourceVersion", Text),
    One(7, "generation", Skipped),
    One(8, "creationTimestamp", Time),
    One(9, "deletionTimestamp", Skipped),
    One(10, "deletionGracePeriodSeconds", Skipped),
    MapOf(11, "labels", Text),
    MapOf(12, "annotations", Text),
    Many(13, "ownerReferences", Message(OWNER_REFERENCE)),
    Many(14, "finalizers", Text),
    One(17, "managedFields", Skipped),
];

const OBJECT_REFERENCE: &[Field] = &[
    One(1, "kind", Text),
    One(2, "namespace", Text),
    One(3, "name", Text),
    One(4, "uid", Text),
    One(5, "apiVersion", Text),
    One(6, "resourceVersion", Text),
    One(7, "fieldPath", Text),
];

const NAMESPACE: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "spec", Message(&[Many(1, "finalizers", Text)])),
    One(
        3,
        "status",
        Message(&[One(1, "phase", Text), One(2, "conditions", Skipped)]),
    ),
];

const SERVICE_ACCOUNT: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    Many(2, "secrets", Message(OBJECT_REFERENCE)),
    Many(3, "imagePullSecrets", Message(&[One(1, "name", Text)])),
    One(4, "automountServiceAccountToken", Boolean),
];

const SCOPE_SELECTOR: &[Field] = &[Many(
    1,
    "matchExpressions",
    Message(&[
        One(1, "scopeName", Text),
        One(2, "operator", Text),
        Many(3, "values", Text),
    ]),
)];

const RESOURCE_QUOTA: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[
            MapOf(1, "hard", Quantity),
            Many(2, "scopes", Text),
            One(3, "scopeSelector", Message(SCOPE_SELECTOR)),
        ]),
    ),
    One(
        3,
        "status",
        Message(&[MapOf(1, "hard", Quantity), MapOf(2, "used", Quantity)]),
    ),
];

const LEASE: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[
            One(1, "holderIdentity", Text),
            One(2, "leaseDurationSeconds", Integer),
            One(3, "acquireTime", MicroTime),
            One(4, "renewTime", MicroTime),
            One(5, "leaseTransitions", Integer),
            One(6, "strategy", Text),
            One(7, "preferredHolder", Text),
        ]),
    ),
];

const EVENT: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "involvedObject", Message(OBJECT_REFERENCE)),
    One(3, "reason", Text),
    One(4, "message", Text),
    One(
        5,
        "source",
        Message(&[One(1, "component", Text), One(2, "host", Text)]),
    ),
    One(6, "firstTimestamp", Time),
    One(7, "lastTimestamp", Time),
    One(8, "count", Integer),
    One(9, "type", Text),
    One(10, "eventTime", MicroTime),
    One(
        11,
        "series",
        Message(&[
            One(1, "count", Integer),
            One(2, "lastObservedTime", MicroTime),
        ]),
    ),
    One(12, "action", Text),
    One(13, "related", Message(OBJECT_REFERENCE)),
    One(14, "reportingComponent", Text),
    One(15, "reportingInstance", Text),
];

const SCALE: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "spec", Message(&[One(1, "replicas", Integer)])),
    One(3, "status", Skipped),
];

const BINDING: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "target", Message(OBJECT_REFERENCE)),
];

const DELETE_OPTIONS: &[Field] = &[
    One(1, "gracePeriodSeconds", Integer),
    One(
        2,
        "preconditions",
        Message(&[One(1, "uid", Text), One(2, "resourceVersion", Text)]),
    ),
    One(3, "orphanDependents", Boolean),
    One(4, "propagationPolicy", Text),
    Many(5, "dryRun", Text),
];

const LABEL_SELECTOR: &[Field] = &[
    MapOf(1, "matchLabels", Text),
    Many(
        2,
        "matchExpressions",
        Message(&[
            One(1, "key", Text),
            One(2, "operator", Text),
            Many(3, "values", Text),
        ]),
    ),
];

const CONTAINER: &[Field] = &[
    One(1, "name", Text),
    One(2, "image", Text),
    Many(3, "command", Text),
    Many(4, "args", Text),
    One(5, "workingDir", Text),
    Many(
        6,
        "ports",
        Message(&[
            One(1, "name", Text),
            One(2, "hostPort", Count),
            One(3, "containerPort", Integer),
            One(4, "protocol", Text),
            One(5, "hostIP", Text),
        ]),
    ),
    Many(
        7,
        "env",
        Message(&[One(1, "name", Text), One(2, "value", Text)]),
    ),
    One(
        8,
        "resources",
        Message(&[MapOf(1, "limits", Quantity), MapOf(2, "requests", Quantity)]),
    ),
    One(13, "terminationMessagePath", Text),
    One(14, "imagePullPolicy", Text),
    One(20, "terminationMessagePolicy", Text),
];

const POD_SPEC: &[Field] = &[
    Many(2, "containers", Message(CONTAINER)),
    One(3, "restartPolicy", Text),
    One(4, "terminationGracePeriodSeconds", Integer),
    One(5, "activeDeadlineSeconds", Integer),
    One(6, "dnsPolicy", Text),
    MapOf(7, "nodeSelector", Text),
    One(8, "serviceAccountName", Text),
    One(9, "serviceAccount", Text),
    One(10, "nodeName", Text),
    One(14, "securityContext", Message(&[])),
    One(19, "schedulerName", Text),
    Many(20, "initContainers", Message(CONTAINER)),
];

const POD_TEMPLATE: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "spec", Message(POD_SPEC)),
];

const DEPLOYMENT: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[
            One(1, "replicas", Integer),
            One(2, "selector", Message(LABEL_SELECTOR)),
            One(3, "template", Message(POD_TEMPLATE)),
            One(4, "strategy", Message(&[One(1, "type", Text)])),
            One(5, "minReadySeconds", Count),
            One(6, "revisionHistoryLimit", Integer),
            One(7, "paused", Flag),
            One(9, "progressDeadlineSeconds", Integer),
        ]),
    ),
    One(3, "status", Unset),
];

const JOB_SPEC: &[Field] = &[
    One(1, "parallelism", Integer),
    One(2, "completions", Integer),
    One(3, "activeDeadlineSeconds", Integer),
    One(6, "template", Message(POD_TEMPLATE)),
    One(7, "backoffLimit", Integer),
    One(8, "ttlSecondsAfterFinished", Integer),
    One(10, "suspend", Boolean),
];

const JOB: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "spec", Message(JOB_SPEC)),
    One(3, "status", Unset),
];

const CRON_JOB: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[
            One(1, "schedule", Text),
            One(2, "startingDeadlineSeconds", Integer),
            One(3, "concurrencyPolicy", Text),
            One(4, "suspend", Boolean),
            One(
                5,
                "jobTemplate",
                Message(&[
                    One(1, "metadata", Message(OBJECT_META)),
                    One(2, "spec", Message(JOB_SPEC)),
                ]),
            ),
            One(6, "successfulJobsHistoryLimit", Integer),
            One(7, "failedJobsHistoryLimit", Integer),
            One(8, "timeZone", Text),
        ]),
    ),
    One(3, "status", Unset),
];

const CONFIG_MAP: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    MapOf(2, "data", Text),
    MapOf(3, "binaryData", Bytes),
    One(4, "immutable", Boolean),
];

const SECRET: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    MapOf(2, "data", Bytes),
    One(3, "type", Text),
    MapOf(4, "stringData", Text),
    One(5, "immutable", Boolean),
];

const SERVICE: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[
            Many(
                1,
                "ports",
                Message(&[
                    One(1, "name", Text),
                    One(2, "protocol", Text),
                    One(3, "port", Integer),
                    One(4, "targetPort", IntegerOrText),
                    One(5, "nodePort", Count),
                    One(6, "appProtocol", Text),
                ]),
            ),
            MapOf(2, "selector", Text),
            One(3, "clusterIP", Text),
            One(4, "type", Text),
            Many(5, "externalIPs", Text),
            One(7, "sessionAffinity", Text),
            One(10, "externalName", Text),
            Many(18, "clusterIPs", Text),
            Many(19, "ipFamilies", Text),
            One(17, "ipFamilyPolicy", Text),
        ]),
    ),
    One(3, "status", Unset),
];

const DISRUPTION_BUDGET: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[
            One(1, "minAvailable", IntegerOrText),
            One(2, "selector", Message(LABEL_SELECTOR)),
            One(3, "maxUnavailable", IntegerOrText),
            One(4, "unhealthyPodEvictionPolicy", Text),
        ]),
    ),
    One(3, "status", Unset),
];

const PRIORITY_CLASS: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "value", Integer),
    One(3, "globalDefault", Flag),
    One(4, "description", Text),
    One(5, "preemptionPolicy", Text),
];

const POLICY_RULE: &[Field] = &[
    Many(1, "verbs", Text),
    Many(2, "apiGroups", Text),
    Many(3, "resources", Text),
    Many(4, "resourceNames", Text),
    Many(5, "nonResourceURLs", Text),
];

const ROLE: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    Many(2, "rules", Message(POLICY_RULE)),
];

const CLUSTER_ROLE: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    Many(2, "rules", Message(POLICY_RULE)),
    One(
        3,
        "aggregationRule",
        Message(&[Many(1, "clusterRoleSelectors", Message(LABEL_SELECTOR))]),
    ),
];

const ROLE_BINDING: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    Many(
        2,
        "subjects",
        Message(&[
            One(1, "kind", Text),
            One(2, "apiGroup", Text),
            One(3, "name", Text),
            One(4, "namespace", Text),
        ]),
    ),
    One(
        3,
        "roleRef",
        Message(&[
            One(1, "apiGroup", Text),
            One(2, "kind", Text),
            One(3, "name", Text),
        ]),
    ),
];

const RESOURCE_ATTRIBUTES: &[Field] = &[
    One(1, "namespace", Text),
    One(2, "verb", Text),
    One(3, "group", Text),
    One(4, "version", Text),
    One(5, "resource", Text),
    One(6, "subresource", Text),
    One(7, "name", Text),
    One(8, "fieldSelector", Skipped),
    One(9, "labelSelector", Skipped),
];

const NON_RESOURCE_ATTRIBUTES: &[Field] = &[One(1, "path", Text), One(2, "verb", Text)];

const SELF_ACCESS_REVIEW: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[
            One(1, "resourceAttributes", Message(RESOURCE_ATTRIBUTES)),
            One(2, "nonResourceAttributes", Message(NON_RESOURCE_ATTRIBUTES)),
        ]),
    ),
    One(3, "status", Skipped),
];

const ACCESS_REVIEW: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[
            One(1, "resourceAttributes", Message(RESOURCE_ATTRIBUTES)),
            One(2, "nonResourceAttributes", Message(NON_RESOURCE_ATTRIBUTES)),
            One(3, "user", Text),
            Many(4, "groups", Text),
            One(5, "extra", Skipped),
            One(6, "uid", Text),
        ]),
    ),
    One(3, "status", Skipped),
];

const RULES_REVIEW: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "spec", Message(&[One(1, "namespace", Text)])),
    One(3, "status", Skipped),
];

const SELF_REVIEW: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "status", Skipped),
];

const TOKEN_REVIEW: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[One(1, "token", Text), Many(2, "audiences", Text)]),
    ),
    One(3, "status", Skipped),
];
