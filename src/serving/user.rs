//! The user that a request authenticates as, in the API server's terms. Pure.

use std::collections::BTreeMap;

use crate::stdx::certificate::Certificate;

/// The group of all authenticated users (apiserver
/// `pkg/authentication/user/user.go:AllAuthenticated`).
const AUTHENTICATED: &str = "system:authenticated";

/// The attributes of a certificate's subject that hold name and groups (X.520).
const COMMON_NAME_OID: &[u8] = &[0x55, 4, 3];
const ORGANIZATION_OID: &[u8] = &[0x55, 4, 10];

/// The attribute of a certificate's subject that holds a UID, 1.3.6.1.4.1.57683.2
/// (apiserver `pkg/authentication/request/x509:uidOID`, feature AllowParsingUserUIDFromCertAuth).
const UID_OID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

/// A user with its groups, as RBAC knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without certificate and token.
    pub(super) fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// The user that a certificate names: the common name, with the organizations as groups.
    /// `Ok(None)` if the certificate has no common name.
    ///
    /// DIFFERS: the certificate's digest is not passed on as a credential ID.
    pub(super) fn of_certificate(certificate: &Certificate) -> Result<Option<Self>, String> {
        let name = certificate.values(COMMON_NAME_OID).last();
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let uids: Vec<&str> = certificate.values(UID_OID).collect();
        if uids.len() > 1 || uids.contains(&"") {
            return Err("the certificate's subject has no single, plain UID".to_owned());
        }
        let groups = certificate.values(ORGANIZATION_OID);
        let user = Self {
            name: name.to_owned(),
            uid: uids.concat(),
            groups: groups.map(str::to_owned).collect(),
            extra: BTreeMap::new(),
        };
        Ok(Some(user.authenticated()))
    }

    /// The same user in the group of all authenticated users (apiserver
    /// `pkg/authentication/group/authenticated_group_adder.go`).
    pub(super) fn authenticated(mut self) -> Self {
        let is_authentication =
            |group: &String| group == AUTHENTICATED || group == "system:unauthenticated";
        if !self.groups.iter().any(is_authentication) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::{Certificate, User};

    fn certificate(parts: &[(DnType, &str)]) -> Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (part, value) in parts {
            params.distinguished_name.push(part.clone(), *value);
        }
        let key = KeyPair::generate().expect("there is enough entropy");
        let certificate = params.self_signed(&key).expect("the parameters are good");
        Certificate::parse(certificate.der()).expect("it is a certificate")
    }

    #[test]
    fn a_certificate_names_a_user_and_groups() {
        let alice = certificate(&[
            (DnType::CommonName, "alice"),
            (DnType::OrganizationName, "system:monitoring"),
        ]);
        let user = User::of_certificate(&alice)
            .expect("no UID")
            .expect("a name");
        assert_eq!(user.name, "alice");
        assert_eq!(user.groups, ["system:monitoring", "system:authenticated"]);
        let nobody = certificate(&[(DnType::OrganizationName, "system:masters")]);
        assert_eq!(User::of_certificate(&nobody), Ok(None));
    }
}
