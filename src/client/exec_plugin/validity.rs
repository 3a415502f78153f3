//! The validity period of a certificate, for the metrics. Pure.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Begin and end of the first certificate in `pem`; `None` if it holds none.
pub(super) fn validity(pem: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let leaf = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&leaf).ok()?;
    let time = |seconds: i64| {
        let seconds = Duration::from_secs(seconds.try_into().ok()?);
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    let validity = certificate.validity();
    Some((
        time(validity.not_before.timestamp())?,
        time(validity.not_after.timestamp())?,
    ))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::validity;
    use crate::client::tests::Authority;

    #[test]
    fn validity_is_read_from_the_certificate() {
        let (certificate, key) = Authority::new().issue(&["me"]);
        let (begin, end) = validity(certificate.as_bytes()).expect("it is a certificate");
        assert!(begin < SystemTime::now() && SystemTime::now() < end);
        assert_eq!(validity(key.as_bytes()), None);
    }
}
