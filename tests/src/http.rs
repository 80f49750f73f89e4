//! Asks the HTTP endpoints of our services: readiness and metrics.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const DEADLINE: Duration = Duration::from_secs(5);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body as text.
    pub body: String,
}

/// `GET path` of a service on the loopback.
///
/// # Errors
/// When there is no answer within 5 s.
pub async fn get(port: u16, path: &str) -> Result<Answer> {
    let asked = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request =
            format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        parse(&String::from_utf8_lossy(&bytes))
    };
    timeout(DEADLINE, asked)
        .await
        .with_context(|| format!("no answer of port {port} to {path} within {DEADLINE:?}"))?
}

fn parse(text: &str) -> Result<Answer> {
    let (head, body) = text
        .split_once("\r\n\r\n")
        .with_context(|| format!("no HTTP: {text:?}"))?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("no status in {head:?}"))?;
    Ok(Answer {
        status,
        body: body.to_owned(),
    })
}

/// Series of `/metrics`: name with labels as printed, and value.
///
/// # Errors
/// When the service does not answer with metrics.
pub async fn metrics(port: u16) -> Result<BTreeMap<String, f64>> {
    let answer = get(port, "/metrics").await?;
    ensure!(answer.status == 200, "/metrics gives {}", answer.status);
    let series = answer.body.lines().filter(|line| !line.starts_with('#'));
    Ok(series
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect())
}

/// Sum of the series of one name, whatever their labels; None: there is none.
#[must_use]
pub fn sum(metrics: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    metrics
        .iter()
        .filter(|(series, _)| series.split('{').next() == Some(name))
        .map(|(_, value)| *value)
        .reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let answer =
            parse("HTTP/1.0 503 Service Unavailable\r\na: b\r\n\r\nnot yet").expect("HTTP");
        assert_eq!((answer.status, answer.body.as_str()), (503, "not yet"));
        assert!(parse("hello").is_err());
    }

    #[test]
    fn series_of_one_name_are_summed() {
        let metrics = [
            ("lag{link=\"a\"}", 1.0),
            ("lag{link=\"b\"}", 2.0),
            ("lag_max", 9.0),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        assert_eq!(sum(&metrics, "lag"), Some(3.0));
        assert_eq!(sum(&metrics, "nothing"), None);
    }
}
