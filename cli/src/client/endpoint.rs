//! Where controllers are.

use std::{fmt, str::FromStr, time::Duration};

use tonic::transport::{Channel, Endpoint};

/// One controller's gRPC address.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    name: String,
    endpoint: Endpoint,
}

impl Target {
    /// A channel that connects when it is first used, and again whenever it must. A call on it ends when the
    /// other side is silent for `patience`, whether it does not take the connection or does not answer the
    /// transport's pings on it.
    pub(crate) fn channel(&self, patience: Duration) -> Channel {
        let endpoint = self.endpoint.clone();
        endpoint
            .connect_timeout(patience)
            .http2_keep_alive_interval(patience / 4)
            .keep_alive_timeout(patience / 4 * 3)
            .keep_alive_while_idle(false)
            .connect_lazy()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(given: &str) -> Result<Self, String> {
        let remedy = "write host:port, for example 127.0.0.1:7070";
        let address = match given.split_once("://") {
            Some(("http", address)) => address,
            None => given,
            Some((scheme, _)) => {
                return Err(format!("scheme {scheme:?} is not supported; {remedy}"));
            }
        };
        let address = address.trim_end_matches('/');
        let port = address
            .rsplit_once(':')
            .map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            return Err(format!("{given:?} has no port; {remedy}"));
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| format!("{given:?} is no address ({error}); {remedy}"))?;
        Ok(Self {
            name: address.to_owned(),
            endpoint,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        let name = |given: &str| given.parse::<Target>().map(|target| target.to_string());
        assert_eq!(name("c-0:7070"), Ok("c-0:7070".to_owned()));
        assert_eq!(name("http://c-0:7070/"), Ok("c-0:7070".to_owned()));
        assert_eq!(name("[::1]:7070"), Ok("[::1]:7070".to_owned()));
        for bad in ["c-0", "ftp://c-0:1", "a b:1", ""] {
            let fault = name(bad).expect_err(bad);
            assert!(fault.contains("write host:port"), "{fault}");
        }
    }
}
