//! The exchange with a credential plugin: `ExecCredential` of `client.authentication.k8s.io`, as
//! its input and as its output. Pure; no error contains a secret.

use std::ops::Not;
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::temporal::Pieces;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Issued;
use crate::client::credentials::bearer;
use crate::client::lenient::{documents, or_default};
use crate::stdx::tls::Certificate;

/// The supported versions (client-go `plugin/pkg/client/auth/exec/exec.go:apiVersions`).
pub(in crate::client) const VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::client) struct ClusterInfo {
    pub(in crate::client) server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::client) tls_server_name: Option<String>,
    #[serde(rename = "insecure-skip-tls-verify", skip_serializing_if = "Not::not")]
    pub(in crate::client) insecure: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::client) certificate_authority_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::client) proxy_url: Option<String>,
    #[serde(skip_serializing_if = "Not::not")]
    pub(in crate::client) disable_compression: bool,
    /// The cluster's extension `client.authentication.k8s.io/exec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::client) config: Option<Value>,
}

/// Returns the value of `KUBERNETES_EXEC_INFO` (client-go
/// `pkg/apis/clientauthentication/v1/types.go:ExecCredential`).
pub(super) fn exec_info(version: &str, interactive: bool, cluster: Option<&ClusterInfo>) -> String {
    let mut spec = json!({"interactive": interactive});
    if let Some(cluster) = cluster {
        spec["cluster"] = json!(cluster);
    }
    json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec}).to_string()
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Output {
    #[serde(deserialize_with = "or_default")]
    api_version: String,
    #[serde(deserialize_with = "or_default")]
    kind: String,
    status: Option<OutputStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OutputStatus {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Parses the output of a plugin of `version`.
///
/// # Errors
/// What is wrong with the output (client-go
/// `plugin/pkg/client/auth/exec/exec.go:refreshCredsLocked`). The text never quotes it.
pub(super) fn parse(output: &[u8], version: &str) -> Result<Issued, String> {
    let parsed = documents::<Output>(output).map_err(|problem| {
        format!("its output is not an ExecCredential in JSON or YAML: {problem}")
    })?;
    let parsed = parsed.into_iter().next().ok_or("its output is empty")?;
    // Upstream's decoder knows the expected kind.
    if !["", "ExecCredential"].contains(&parsed.kind.as_str()) {
        return Err("its output is not of the kind ExecCredential".to_owned());
    }
    if parsed.api_version != version {
        let known = VERSIONS.contains(&parsed.api_version.as_str());
        let version_in_output = if known {
            &parsed.api_version
        } else {
            "another"
        };
        return Err(format!(
            "it is configured for apiVersion {version}, but its output has {version_in_output}"
        ));
    }
    let status = parsed.status.ok_or("its output has no status")?;
    let expires = status.expiration_timestamp.as_deref();
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let token = non_empty(status.token);
    let certificate = non_empty(status.client_certificate_data);
    let key = non_empty(status.client_key_data);
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.into_bytes(), key.into_bytes())),
        (None, None) => None,
        _ => {
            return Err(
                "its output has only one of clientCertificateData and clientKeyData".to_owned(),
            );
        }
    };
    if token.is_none() && identity.is_none() {
        return Err("its output has neither a token nor a certificate with its key".to_owned());
    }
    Ok(Issued {
        token: token.as_deref().map(bearer).transpose()?,
        identity,
        expires: expires.map(end).transpose()?.flatten(),
        number: 0,
    })
}

/// Parses the time at which a credential expires. `None` is never: the last hours of the year 9999,
/// which say so, are beyond what [`Timestamp`] can hold.
fn end(text: &str) -> Result<Option<Timestamp>, String> {
    if let Ok(end) = text.parse() {
        return Ok(Some(end));
    }
    match Pieces::parse(text) {
        Ok(pieces) if pieces.date().year() == 9999 && pieces.offset().is_some() => Ok(None),
        _ => Err("its output has an invalid expirationTimestamp (expected RFC 3339)".to_owned()),
    }
}

/// [`parse`] for a fuzzer.
#[cfg(any(test, feature = "simulation"))]
pub fn read_credential(output: &[u8]) -> Result<(), String> {
    parse(output, VERSIONS[0]).map(drop)
}

/// Begin and end of the first certificate in `pem`; `None` if it holds none.
pub(super) fn validity(pem: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let leaf = CertificateDer::from_pem_slice(pem).ok()?;
    Certificate::parse(&leaf).ok()?.validity
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::{ClusterInfo, VERSIONS, end, exec_info, parse, validity};
    use crate::client::tests::Authority;

    #[test]
    fn exec_info_has_the_cluster_only_if_configured() {
        let info = exec_info(VERSIONS[0], false, None);
        let expected = json!({
            "kind": "ExecCredential",
            "apiVersion": "client.authentication.k8s.io/v1",
            "spec": {"interactive": false},
        });
        assert_eq!(info.parse::<Value>().expect("it is JSON"), expected);
        let cluster = ClusterInfo {
            server: "https://it.example".to_owned(),
            certificate_authority_data: Some("UEVN".to_owned()),
            insecure: true,
            config: Some(json!({"audience": "x"})),
            ..ClusterInfo::default()
        };
        let info = exec_info(VERSIONS[1], true, Some(&cluster));
        let info: Value = info.parse().expect("it is JSON");
        let expected = json!({
            "cluster": {
                "server": "https://it.example",
                "insecure-skip-tls-verify": true,
                "certificate-authority-data": "UEVN",
                "config": {"audience": "x"},
            },
            "interactive": true,
        });
        assert_eq!(info["spec"], expected);
    }

    #[test]
    fn a_token_or_a_certificate_or_both_are_parsed() {
        for (status, token, identity, expires) in [
            (json!({"token": "t"}), true, false, false),
            (
                json!({"clientCertificateData": "c", "clientKeyData": "k"}),
                false,
                true,
                false,
            ),
            (
                json!({"token": "t", "clientCertificateData": "c", "clientKeyData": "k",
                       "expirationTimestamp": "2026-01-01T00:00:00Z"}),
                true,
                true,
                true,
            ),
        ] {
            for version in VERSIONS {
                let reply =
                    json!({"kind": "ExecCredential", "apiVersion": version, "status": status});
                let given = parse(reply.to_string().as_bytes(), version);
                let given = given.unwrap_or_else(|problem| panic!("{problem}"));
                assert_eq!(given.token.is_some(), token);
                assert_eq!(given.identity.is_some(), identity);
                assert_eq!(given.expires.is_some(), expires);
            }
        }
    }

    #[test]
    fn output_is_read_as_kubectl_reads_it() {
        let v1 = VERSIONS[0];
        let json = json!({"apiVersion": v1, "kind": "ExecCredential", "status": {"token": "t"}});
        for output in [
            format!("---\napiVersion: {v1}\nkind: ExecCredential\nstatus:\n  token: t\n"),
            format!("apiVersion: {v1}\nstatus: {{token: t, expirationTimestamp: null}}\n"),
            format!("apiVersion: {v1}\nkind: null\nspec: 1\nstatus: {{token: a, token: t}}\n"),
            format!("\u{feff}{json}"),
            format!("\r\n\t{json}\r\n"),
        ] {
            let read = parse(output.as_bytes(), v1);
            let read = read.unwrap_or_else(|problem| panic!("{output}: {problem}"));
            assert_eq!(read.token.expect("a token"), "Bearer t");
        }
    }

    #[track_caller]
    fn check_end(text: &str, expected: Option<&str>) {
        let read = end(text).expect("it is a time");
        assert_eq!(read.map(|end| end.to_string()).as_deref(), expected);
    }

    #[test]
    fn the_last_hours_of_the_calendar_are_never() {
        check_end("2026-11-24T10:00:00Z", Some("2026-11-24T10:00:00Z"));
        check_end(
            "2026-11-24T10:00:00.5+02:00",
            Some("2026-11-24T08:00:00.5Z"),
        );
        check_end("9999-12-31T23:59:59Z", None);
        check_end("9999-12-31T00:00:00-08:00", None);
        for text in [
            "",
            "soon",
            "9999-12-31",
            "9999-12-31T25:00:00Z",
            "2026-11-24",
        ] {
            end(text).expect_err("it is not a time");
        }
    }

    #[test]
    fn parse_errors_contain_no_secret() {
        let v1 = VERSIONS[0];
        let reply = |version: &str, status: Value| {
            json!({"kind": "ExecCredential", "apiVersion": version, "status": status}).to_string()
        };
        for (output, part) in [
            (String::new(), "its output is empty"),
            (
                "hunter2".to_owned(),
                "not an ExecCredential in JSON or YAML",
            ),
            (
                r#"{"status": "hunter2"}"#.to_owned(),
                "YAML: line 1 column 12: this must be a map",
            ),
            (r#"{"kind": "hunter2"}"#.to_owned(), "not of the kind"),
            (
                reply("hunter2", json!({"token": "t"})),
                "its output has another",
            ),
            (reply(VERSIONS[1], json!({"token": "t"})), "v1beta1"),
            (reply(v1, Value::Null), "no status"),
            (reply(v1, json!({})), "neither"),
            (reply(v1, json!({"token": ""})), "neither"),
            (reply(v1, json!({"clientKeyData": "hunter2"})), "only one"),
            (
                reply(v1, json!({"token": "t", "expirationTimestamp": "hunter2"})),
                "expirationTimestamp",
            ),
        ] {
            let problem = parse(output.as_bytes(), v1).err();
            let problem = problem.unwrap_or_else(|| panic!("{output} is accepted"));
            assert!(problem.contains(part), "{problem}");
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn validity_is_read_from_the_certificate() {
        let (certificate, key) = Authority::new().issue(&["me"]);
        let (begin, end) = validity(certificate.as_bytes()).expect("it is a certificate");
        assert!(begin < SystemTime::now() && SystemTime::now() < end);
        assert_eq!(validity(key.as_bytes()), None);
    }
}
