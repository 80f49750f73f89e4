//! SCRAM (RFC 5802, RFC 7677) as Kafka uses it: no channel binding, and user and password as the bytes
//! they are, without SASLprep (`ScramFormatter.normalize` of Kafka).

use std::num::NonZeroU32;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ring::{digest, hmac, pbkdf2};

/// Fewer iterations make guessing cheap for whoever listens; Kafka allows none below.
const ITERATIONS_MIN: u32 = 4_096;
/// More would let a hostile broker keep our processor busy.
const ITERATIONS_MAX: u32 = 1_000_000;
/// Message header: no channel binding, no other identity.
const GS2: &str = "n,,";

/// The hash in a mechanism's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }
}

/// A number that is used once.
pub(super) fn nonce() -> String {
    BASE64.encode(rand::random::<[u8; 24]>())
}

/// One exchange.
#[derive(Debug)]
pub(super) struct Scram {
    hash: Hash,
    nonce: String,
    first_bare: String,
}

impl Scram {
    pub(super) fn new(hash: Hash, username: &str, nonce: &str) -> Self {
        let username = username.replace('=', "=3D").replace(',', "=2C");
        Self {
            hash,
            nonce: nonce.to_owned(),
            first_bare: format!("n={username},r={nonce}"),
        }
    }

    /// Our first message.
    pub(super) fn first(&self) -> Vec<u8> {
        format!("{GS2}{}", self.first_bare).into_bytes()
    }

    /// Our answer to the broker's first message, and what its second one has to prove.
    pub(super) fn answer(
        &self,
        challenge: &[u8],
        password: &str,
    ) -> Result<(Vec<u8>, Proof), String> {
        let text = std::str::from_utf8(challenge).map_err(|_| "its challenge is no text")?;
        let mut attributes = text.split(',');
        let mut next = |name: &str| {
            let attribute = attributes.next().and_then(|text| text.strip_prefix(name));
            attribute.ok_or_else(|| format!("its challenge lacks {name}"))
        };
        let nonce = next("r=")?;
        let salt = next("s=")?;
        let iterations = next("i=")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("its challenge is not for us".to_owned());
        }
        let salt = BASE64
            .decode(salt)
            .map_err(|_| "its challenge has a salt that is no base64")?;
        let iterations = iterations
            .parse()
            .ok()
            .filter(|count| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(count))
            .and_then(NonZeroU32::new)
            .ok_or_else(|| {
                format!("{iterations} iterations are not from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
            })?;
        let mut salted = vec![0; self.hash.digest().output_len()];
        pbkdf2::derive(
            self.hash.pbkdf2(),
            iterations,
            &salt,
            password.as_bytes(),
            &mut salted,
        );
        let salted = hmac::Key::new(self.hash.hmac(), &salted);
        let without_proof = format!("c={},r={nonce}", BASE64.encode(GS2));
        let signed = format!("{},{text},{without_proof}", self.first_bare);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), client_key.as_ref());
        let stored_key = hmac::Key::new(self.hash.hmac(), stored_key.as_ref());
        let signature = hmac::sign(&stored_key, signed.as_bytes());
        let bytes = client_key.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = bytes.map(|(key, signature)| key ^ signature).collect();
        let message = format!("{without_proof},p={}", BASE64.encode(proof));
        let server_key = hmac::sign(&salted, b"Server Key");
        Ok((
            message.into_bytes(),
            Proof {
                key: hmac::Key::new(self.hash.hmac(), server_key.as_ref()),
                signed: signed.into_bytes(),
            },
        ))
    }
}

/// What a broker that knows our password can say.
#[derive(Debug)]
pub(super) struct Proof {
    key: hmac::Key,
    signed: Vec<u8>,
}

impl Proof {
    /// Checks the broker's last message.
    pub(super) fn check(&self, last: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(last).map_err(|_| "its last message is no text")?;
        if let Some(error) = text.strip_prefix("e=") {
            return Err(format!("it says {error}"));
        }
        let signature = text
            .strip_prefix("v=")
            .and_then(|text| text.split(',').next());
        let signature = signature.and_then(|text| BASE64.decode(text).ok());
        let proven = signature
            .is_some_and(|signature| hmac::verify(&self.key, &self.signed, &signature).is_ok());
        if proven {
            Ok(())
        } else {
            Err("the broker cannot prove that it knows the password; it may be an impostor".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const CHALLENGE: &[u8] =
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn user() -> Scram {
        Scram::new(Hash::Sha256, "user", NONCE)
    }

    #[test]
    fn the_example_of_rfc_7677_comes_out() {
        assert_eq!(user().first(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (message, proof) = user().answer(CHALLENGE, "pencil").expect("an answer");
        assert_eq!(
            String::from_utf8(message).expect("text"),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        let last = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(proof.check(last), Ok(()));
    }

    #[test]
    fn a_broker_that_does_not_know_the_password_is_found_out() {
        let (_, proof) = user().answer(CHALLENGE, "pencil").expect("an answer");
        let (_, other) = user().answer(CHALLENGE, "other").expect("an answer");
        let forged = BASE64.encode(hmac::sign(&other.key, &other.signed));
        let fault = proof.check(format!("v={forged}").as_bytes());
        assert!(fault.expect_err("forged").contains("impostor"));
        assert!(proof.check(b"").is_err());
        assert!(proof.check(b"v=").is_err());
        let fault = proof.check(b"e=invalid-proof").expect_err("an error");
        assert!(fault.contains("invalid-proof"));
    }

    #[test]
    fn hostile_challenges_are_refused() {
        let challenges: [&[u8]; 8] = [
            b"",
            b"\xFF",
            b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=!,i=4096",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4294967295",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==",
        ];
        for challenge in challenges {
            assert!(user().answer(challenge, "pencil").is_err());
        }
    }

    #[test]
    fn commas_and_equal_signs_in_a_name_are_escaped() {
        let scram = Scram::new(Hash::Sha512, "a=b,c", "x");
        assert_eq!(scram.first(), b"n,,n=a=3Db=2Cc,r=x");
    }
}
