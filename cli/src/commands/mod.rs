//! The operator's commands: each asks a controller and prints what it answers.
//!
//! Results go to standard output, everything else to standard error.

pub(crate) mod apply;
mod delete;
mod drain;
pub(crate) mod get;
mod selection;
mod watch;

use kreplicator_proto::v1::{self, status_client::StatusClient};

pub(crate) use self::{
    apply::apply,
    delete::delete,
    drain::drain,
    get::get,
    selection::{pause, resume, subscribe, unsubscribe},
    watch::watch,
};
use crate::{
    args::{Format, Output},
    client::{ANSWER_BYTES_MAX, Client},
    exit::{Exit, Failure},
    render,
};

/// A gRPC client of a service over the channel of an attempt, with our limits.
macro_rules! grpc {
    ($client:ident, $attempt:expr) => {
        $client::new($attempt.channel.clone())
            .max_decoding_message_size($crate::client::ANSWER_BYTES_MAX)
    };
}
pub(crate) use grpc;

/// `status`
pub(crate) async fn status(client: &Client, output: Output) -> anyhow::Result<Exit> {
    let status = render::status::Status::from(get_status(client).await?);
    let text = match output.output {
        Format::Table | Format::Wide => status.text(),
        Format::Json | Format::Yaml => render::data(&status, output.output)?,
    };
    print(&text)?;
    Ok(Exit::Ok)
}

/// The state of everything.
pub(crate) async fn get_status(client: &Client) -> Result<v1::StatusResponse, Failure> {
    client
        .call(|attempt| async move {
            let request = attempt.request(v1::GetStatusRequest {});
            StatusClient::new(attempt.channel)
                .max_decoding_message_size(ANSWER_BYTES_MAX)
                .get_status(request)
                .await
        })
        .await
}

/// Prints a result. A reader that went away (`| head`) is no failure.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Tells what was accepted all the same.
fn warn(warnings: &[String]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

/// Reads every page of a list.
pub(crate) async fn pages<T, F>(mut page: F) -> Result<Vec<T>, Failure>
where
    F: AsyncFnMut(String) -> Result<(Vec<T>, String), Failure>,
{
    let mut all = Vec::new();
    let mut token = String::new();
    loop {
        let (items, next) = page(token.clone()).await?;
        all.extend(items);
        if next.is_empty() {
            return Ok(all);
        }
        if next == token {
            let message = "the controller gave the same page twice; report this".to_owned();
            let code = tonic::Code::Internal;
            return Err(Failure::Answer { code, message });
        }
        token = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn paging_goes_on_to_the_end() {
        let all = pages(async |token: String| {
            let start: usize = if token.is_empty() {
                0
            } else {
                token.parse().expect("ours")
            };
            let items: Vec<usize> = (start..start + 10).collect();
            let next = if start + 10 < 50 {
                (start + 10).to_string()
            } else {
                String::new()
            };
            Ok((items, next))
        })
        .await;
        assert_eq!(all.expect("pages"), (0..50).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_server_that_repeats_a_page_does_not_hang_us() {
        let all = pages(async |_| Ok((vec![1], "same".to_owned()))).await;
        assert!(all.is_err());
    }
}
