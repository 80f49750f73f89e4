//! How servers read requests.
//!
//! gRPC's libraries answer INTERNAL to a request that cannot be decoded, as if the server were at
//! fault. Whoever sends bytes that are not UTF-8 as a name sent a wrong request: INVALID_ARGUMENT, with
//! the field. Clients keep the usual codec: an answer that cannot be decoded is the server's fault.

use std::marker::PhantomData;

use prost::{DecodeError, Message};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::ProstEncoder;

use crate::status::Refusal;

/// Protobuf messages, as servers read and write them.
#[derive(Debug, Clone)]
pub struct ServerCodec<Answer, Request>(PhantomData<(Answer, Request)>);

impl<Answer, Request> Default for ServerCodec<Answer, Request> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Answer, Request> Codec for ServerCodec<Answer, Request>
where
    Answer: Message + Send + 'static,
    Request: Message + Default + Send + 'static,
{
    type Encode = Answer;
    type Decode = Request;
    type Encoder = ProstEncoder<Answer>;
    type Decoder = RequestDecoder<Request>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        RequestDecoder(PhantomData)
    }
}

/// Reads requests.
#[derive(Debug, Clone)]
pub struct RequestDecoder<Request>(PhantomData<Request>);

impl<Request: Message + Default> Decoder for RequestDecoder<Request> {
    type Item = Request;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Request>, Status> {
        Request::decode(bytes)
            .map(Some)
            .map_err(|error| undecodable(&error))
    }
}

/// The decoder names message and field, and what is wrong with it.
fn undecodable(error: &DecodeError) -> Status {
    Refusal::field(
        "",
        format!(
            "the request cannot be read: {error}; text is UTF-8, and reflection tells the fields"
        ),
    )
    .into()
}
