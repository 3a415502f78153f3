//! The validity period of a certificate, for the metrics. Pure.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::stdx::certificate::Certificate;

/// Begin and end of the first certificate in `pem`; `None` if it holds none.
pub(super) fn validity(pem: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let leaf = CertificateDer::from_pem_slice(pem).ok()?;
    Certificate::parse(&leaf).ok()?.validity
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
