//! The curve P-521 for rustls, which has it neither with ring nor in pure Rust: ECDSA, and key
//! exchange. Pure, except that signatures and key exchanges take chance from the system.

use std::fmt;
use std::sync::Arc;

use p521::ecdsa::signature::Signer as _;
use p521::ecdsa::signature::hazmat::PrehashVerifier as _;
use p521::ecdsa::{Signature, SigningKey, VerifyingKey};
use p521::elliptic_curve::point::AffineCoordinates as _;
use p521::elliptic_curve::rand_core::OsRng;
use p521::elliptic_curve::sec1::ToEncodedPoint as _;
use p521::pkcs8::DecodePrivateKey as _;
use p521::{PublicKey, SecretKey};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, KeyProvider, SharedSecret, SupportedKxGroup,
    WebPkiSupportedAlgorithms,
};
use rustls::pki_types::{
    AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer, alg_id,
};
use rustls::sign::{Signer, public_key_to_spki};
use rustls::{Error, NamedGroup, PeerMisbehaved, SignatureAlgorithm, SignatureScheme};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// The signatures of a P-521 key. Certificates and handshakes of TLS 1.2 may have them with any
/// hash, handshakes of TLS 1.3 with SHA-512.
static ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 3] = [
    &Verification {
        signature: alg_id::ECDSA_SHA512,
        hash: |message| Sha512::digest(message).to_vec(),
    },
    &Verification {
        signature: alg_id::ECDSA_SHA384,
        hash: |message| Sha384::digest(message).to_vec(),
    },
    &Verification {
        signature: alg_id::ECDSA_SHA256,
        hash: |message| Sha256::digest(message).to_vec(),
    },
];

const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP521_SHA512;

/// Adds P-521 to what `provider` verifies and signs with. Leaks a few hundred bytes: call it once.
pub(super) fn added_to(provider: CryptoProvider) -> CryptoProvider {
    let known = provider.signature_verification_algorithms;
    let all: Vec<_> = known.all.iter().chain(&ALGORITHMS).copied().collect();
    let mut mapping = known.mapping.to_vec();
    for (scheme, algorithms) in &mut mapping {
        let own = match scheme {
            SignatureScheme::ECDSA_NISTP384_SHA384 => ALGORITHMS[1],
            SignatureScheme::ECDSA_NISTP256_SHA256 => ALGORITHMS[2],
            _ => continue,
        };
        // ORDER: TLS 1.3, where a scheme has one curve, takes the first.
        *algorithms = [algorithms, &[own][..]].concat().leak();
    }
    mapping.push((SCHEME, &ALGORITHMS[..1]));
    let others = Box::leak(Box::new(provider.key_provider));
    CryptoProvider {
        signature_verification_algorithms: WebPkiSupportedAlgorithms {
            all: all.leak(),
            mapping: mapping.leak(),
        },
        key_provider: Box::leak(Box::new(Keys(*others))),
        ..provider
    }
}

#[derive(Debug)]
struct Verification {
    signature: AlgorithmIdentifier,
    hash: fn(&[u8]) -> Vec<u8>,
}

impl SignatureVerificationAlgorithm for Verification {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let hash = (self.hash)(message);
        // `p521` takes no hash that is shorter than half of a coordinate, as SHA-256 is.
        let mut padded = [0; COORDINATE_BYTES];
        padded[COORDINATE_BYTES - hash.len()..].copy_from_slice(&hash);
        let verified = VerifyingKey::from_sec1_bytes(public_key).and_then(|key| {
            let signature = Signature::from_der(signature)?;
            key.verify_prehash(&padded, &signature)
        });
        verified.map_err(|_opaque| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P521
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature
    }
}

const COORDINATE_BYTES: usize = 66;

/// Loads P-521 keys, and all others as the inner provider does.
#[derive(Debug)]
struct Keys(&'static dyn KeyProvider);

impl KeyProvider for Keys {
    fn load_private_key(
        &self,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn rustls::sign::SigningKey>, Error> {
        let own = match &key {
            PrivateKeyDer::Pkcs8(der) => SecretKey::from_pkcs8_der(der.secret_pkcs8_der()).ok(),
            PrivateKeyDer::Sec1(der) => SecretKey::from_sec1_der(der.secret_sec1_der()).ok(),
            _ => None,
        };
        let Some(own) = own else {
            return self.0.load_private_key(key);
        };
        let key = SigningKey::from_bytes(&own.to_bytes());
        let key = key.map_err(|error| Error::General(error.to_string()))?;
        Ok(Arc::new(Key(key)))
    }
}

struct Key(SigningKey);

impl rustls::sign::SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered
            .contains(&SCHEME)
            .then(|| Box::new(Self(self.0.clone())) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        let point = VerifyingKey::from(&self.0).to_encoded_point(false);
        Some(public_key_to_spki(&alg_id::ECDSA_P521, point))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signature: Signature = self
            .0
            .try_sign(message)
            .map_err(|error| Error::General(error.to_string()))?;
        Ok(signature.to_der().as_bytes().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SCHEME
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("P-521 key")
    }
}

/// Key exchange with P-521.
#[derive(Debug)]
pub(super) struct Group;

impl SupportedKxGroup for Group {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(KeyExchange::new(SecretKey::random(&mut OsRng))))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}

struct KeyExchange {
    secret: SecretKey,
    public: Box<[u8]>,
}

impl KeyExchange {
    fn new(secret: SecretKey) -> Self {
        let public = secret.public_key().to_encoded_point(false);
        Self {
            public: public.as_bytes().into(),
            secret,
        }
    }
}

impl ActiveKeyExchange for KeyExchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let peer = PublicKey::from_sec1_bytes(peer);
        let peer = peer.map_err(|_opaque| PeerMisbehaved::InvalidKeyShare)?;
        let shared = peer.to_projective() * *self.secret.to_nonzero_scalar();
        Ok(SharedSecret::from(&shared.to_affine().x()[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use p521::SecretKey;
    use rustls::crypto::{ActiveKeyExchange as _, SupportedKxGroup as _};
    use rustls::{NamedGroup, SignatureScheme};

    use super::{Group, KeyExchange, SCHEME};
    use crate::stdx::tls::{certified_key, client_provider, provider};

    const P521: &[u8] = include_bytes!("../../../../tests/data/tls/p521.pem");

    /// Signatures of `message` by `openssl dgst -sha512`, `-sha384` and `-sha256`.
    const BY_OPENSSL: [&str; 3] = [
        "MIGGAkEJgB6vhVNdEEPmkH/ZykvGySXlqetBa1K7rT3V2SAlpPwoQ+4pjHUf4yxtWYPuJqo/NHJhfIcZVm1GSdKBg2\
         mttgJBD7sY4ESHIsfj+kqpwvsZkFSJ7+4JvNqJ7zOGsNel1d492rJTnXYDEyD5q0XPrMVD3Oarajw87pnoFAJ8KQ1J\
         9Ms=",
        "MIGIAkIBNwdS6cnX7rxj4hMRomDpzJ4TK7w4jvSMCdwCnI8o2r76GcIcXRpRD+x/OqMGUrGKZOyO9+j0Y44WWXxgHj\
         H8GLMCQgDSVnJk6Ei2U16T0gh7IzNaTVYy3HhZsUkluppRFBTUaDSV+nB83m3SHNl2lRjTXmlqIUugvQnnyH23sEtq\
         T5z4OA==",
        "MIGHAkFdpsCstsHLZbMduqmtxpMNkNSe5ERWQiWZw+dfwK786fY4y1fI75Y2U77J6k13pjKiPPb1L4iwwjGXG0Q4UU\
         kUxgJCATPNnc1x4T19nwVYxpuJQgDGBMrRBU3wGluOIHrNk7f8BmbgFloI5bBgqlV3mf7ZwoQmzCqcFBtQdzb5rQMT\
         2ZAw",
    ];

    #[test]
    fn signatures_are_verified_with_each_hash() {
        let key = certified_key(("C", P521), ("K", P521)).expect("they belong together");
        let public = key.key.public_key().expect("it is known");
        let point = &public[public.len() - 133..];
        let own = key.key.choose_scheme(&[SCHEME]).expect("it is the key's");
        let own = own.sign(b"message").expect("it signs");
        let schemes = [
            SCHEME,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP256_SHA256,
        ];
        let verifies = |n: usize, message: &[u8], signature: &[u8]| {
            let known = provider().signature_verification_algorithms;
            let mut mapping = known.mapping.iter();
            let of_scheme = mapping.find(|(scheme, _)| *scheme == schemes[n]);
            let last = of_scheme.and_then(|(_, algorithms)| algorithms.last());
            let verified = last.map(|it| it.verify_signature(point, message, signature));
            verified.is_some_and(|verified| verified.is_ok())
        };
        assert!(verifies(0, b"message", &own));
        for (n, signature) in BY_OPENSSL.into_iter().enumerate() {
            let mut signature = STANDARD.decode(signature).expect("it is base64");
            assert!(verifies(n, b"message", &signature), "{n}");
            assert!(!verifies(n, b"messagE", &signature), "{n}");
            *signature.last_mut().expect("it has bytes") ^= 1;
            assert!(!verifies(n, b"message", &signature), "{n}");
        }
    }

    /// With this peer's public key by `openssl pkeyutl -derive`.
    const PEER: &str = "BAE+iATgzH0a7kaoXeZ9bE7/3BqHfijgrGfU4MJI9x5+se83XJoY7lD+cELT1OKTNXgF\
                        K6J9jgZuttaHelq3n7VhNgD195aP3+a/8vT3rNqDA5cInGZq6Dz8yO45J8xOQKizjnep\
                        yTBJdcB64YA1lYjLI2Of8ou9I1qvo4IXZcdsTfzyig==";
    const SHARED: &str = "Acgq8a7NaITjA2E1AdNin74cWAXAZrHdjTuLAk31LuwC2FinNhF7VbuOONcQzHPq+qYe\
                          5wPtv7JE300lLkTkGLuc";

    #[test]
    fn keys_are_exchanged_as_by_openssl() {
        let key = include_str!("../../../../tests/data/tls/p521-sec1.key");
        let lines = key.lines().filter(|line| !line.starts_with('-'));
        let decoded = |text: &str| STANDARD.decode(text).expect("it is base64");
        let secret = SecretKey::from_sec1_der(&decoded(&lines.collect::<String>()));
        let secret = secret.expect("a key");
        let shared = Box::new(KeyExchange::new(secret)).complete(&decoded(PEER));
        assert_eq!(shared.expect("a point").secret_bytes(), decoded(SHARED));

        let [one, other] = [Group.start(), Group.start()].map(|it| it.expect("chance"));
        let (public, peer) = (one.pub_key().to_vec(), other.pub_key().to_vec());
        let shared = [one.complete(&peer), other.complete(&public)].map(|it| it.expect("a point"));
        assert_eq!(shared[0].secret_bytes(), shared[1].secret_bytes());
        let beyond = Group.start().expect("chance").complete(&[4; 133]);
        assert!(beyond.is_err(), "no point of the curve");
    }

    #[test]
    fn p521_is_offered_last() {
        let schemes = provider()
            .signature_verification_algorithms
            .supported_schemes();
        assert_eq!(schemes.last(), Some(&SCHEME));
        let groups = client_provider().kx_groups;
        let last = groups.last().map(|group| group.name());
        assert_eq!(last, Some(NamedGroup::secp521r1));
    }
}
