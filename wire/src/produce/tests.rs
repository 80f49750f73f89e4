use kafka_protocol::{
    messages::{
        ProduceRequest, ProduceResponse,
        produce_response::{
            BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
        },
    },
    protocol::{Decodable as _, StrBytes},
};

use super::*;
use crate::code::Code;

fn batch(topic: &str, id: Option<u128>, partition: i32, bytes: usize) -> Batch {
    Batch {
        topic: TopicName::new(topic).expect("legal"),
        topic_id: id.map(TopicId::from_u128),
        partition: Partition(partition),
        records: vec![Bytes::from(vec![1; 61]), Bytes::from(vec![2; bytes])],
    }
}

fn request(id: Option<u128>) -> Request {
    let mut request = Request::new(Duration::from_secs(3));
    for (topic, partition, bytes) in [("ants", 0, 5_000), ("ants", 3, 1), ("bees", 1, 100_000)] {
        let id = id.map(|id| id + u128::from(topic == "bees"));
        request
            .add(batch(topic, id, partition, bytes))
            .expect("one each");
    }
    request
}

#[test]
fn every_version_reads_as_it_was_meant() {
    for version in 3..=13 {
        let request = request(Some(40));
        let mut parts = Parts::default();
        request.write(version, &mut parts);
        let mut bytes = Bytes::from(parts.finish().concat());
        let read = ProduceRequest::decode(&mut bytes, version).expect("well formed");
        assert!(
            bytes.is_empty(),
            "version {version}: {} bytes left",
            bytes.len()
        );
        assert_eq!((read.acks, read.timeout_ms), (-1, 3_000));
        assert!(read.transactional_id.is_none());
        assert_eq!(read.topic_data.len(), 2);
        for (topic, (name, id)) in read.topic_data.iter().zip([("ants", 40), ("bees", 41)]) {
            if version >= 13 {
                assert_eq!(topic.topic_id, TopicId::from_u128(id));
            } else {
                assert_eq!(&**topic.name, name);
            }
        }
        let sizes = read
            .topic_data
            .iter()
            .flat_map(|topic| &topic.partition_data);
        let sizes = sizes.map(|data| (data.index, data.records.as_ref().map(Bytes::len)));
        let expected = [(0, Some(5_061)), (3, Some(62)), (1, Some(100_061))];
        assert_eq!(sizes.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn records_are_sent_from_where_they_lie() {
    let request = request(None);
    let records =
        request.topics[&TopicName::new("bees").expect("legal")].batches[&Partition(1)][1].as_ptr();
    let mut parts = Parts::default();
    request.write(12, &mut parts);
    assert!(parts.finish().iter().any(|part| part.as_ptr() == records));
}

#[test]
fn a_topic_without_id_goes_by_name() {
    assert_eq!(request(Some(1)).highest_version(), 13);
    let mut mixed = request(Some(1));
    mixed.add(batch("cats", None, 0, 1)).expect("one");
    assert_eq!(mixed.highest_version(), 12);
}

#[test]
fn one_batch_a_partition_and_one_id_a_topic() {
    let mut request = request(Some(1));
    let before = request.record_bytes();
    assert!(request.add(batch("ants", Some(1), 3, 1)).is_err());
    assert!(request.add(batch("ants", Some(9), 4, 1)).is_err());
    assert_eq!(request.record_bytes(), before);
    assert!(request.add(batch("ants", Some(1), 4, 1)).is_ok());
}

fn told(name: &str, index: i32) -> TopicProduceResponse {
    let name = kafka_protocol::messages::TopicName(StrBytes::from_string(name.to_owned()));
    let partition = PartitionProduceResponse::default()
        .with_index(index)
        .with_base_offset(17)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(-1);
    TopicProduceResponse::default()
        .with_name(name)
        .with_partition_responses(vec![partition])
}

#[test]
fn every_partition_is_told_of_once_or_the_answer_is_none() {
    let mut request = Request::new(Duration::ZERO);
    request.add(batch("ants", None, 0, 1)).expect("one");
    let asked = Asked::of(&request);
    let read = |topics: Vec<TopicProduceResponse>| {
        Answer::read(ProduceResponse::default().with_responses(topics), &asked)
    };
    let answer = read(vec![told("ants", 0)]).expect("complete");
    assert_eq!(
        answer.partitions[0].base_offset.map(|offset| offset.0),
        Some(17)
    );
    assert_eq!(answer.partitions[0].code, Code::NONE);
    assert_eq!(answer.partitions[0].log_append_time, None);
    for wrong in [
        vec![],
        vec![told("ants", 1)],
        vec![told("bees", 0)],
        vec![told("ants", 0), told("ants", 0)],
        vec![told("not/legal", 0)],
    ] {
        assert!(read(wrong).is_err());
    }
}

#[test]
fn a_refusal_carries_the_brokers_words() {
    let mut request = Request::new(Duration::ZERO);
    request.add(batch("ants", None, 0, 1)).expect("one");
    let mut topic = told("ants", 0);
    let partition = &mut topic.partition_responses[0];
    partition.error_code = Code::INVALID_RECORD.0;
    partition.base_offset = -1;
    partition.error_message = Some(StrBytes::from_static_str("no key"));
    partition.record_errors = vec![
        BatchIndexAndErrorMessage::default()
            .with_batch_index(4)
            .with_batch_index_error_message(Some(StrBytes::from_static_str("null key"))),
    ];
    let response = ProduceResponse::default().with_responses(vec![topic]);
    let answer = Answer::read(response, &Asked::of(&request)).expect("complete");
    let told = &answer.partitions[0];
    assert_eq!((told.code, told.base_offset), (Code::INVALID_RECORD, None));
    assert_eq!(told.message.as_deref(), Some("no key"));
    assert_eq!(told.record_errors[0].index, 4);
    assert_eq!(told.record_errors[0].message.as_deref(), Some("null key"));
}
