//! The first records to a partition that a broker does not have yet.

use std::time::Duration;

use kreplicator_worker::engine::State;
use rdkafka::{
    ClientConfig,
    producer::{BaseProducer, BaseRecord, Producer},
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use tokio::time::sleep;

use crate::rig::{PATIENCE, Rig, copied, read, status_where, values};

const RECORDS: i64 = 12;

/// A broker that has not heard of a new partition yet refuses the first batch and may take the second,
/// which was on its way already. The library takes the second's success for proof of the first.
#[tokio::test(flavor = "multi_thread")]
async fn c028_a_first_batch_that_was_refused_is_not_taken_for_written() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    let task = rig.start("orders", 0);
    status_where(task.as_ref(), "start", |status| {
        status.state == State::Running
    })
    .await;
    rig.target
        .broker_round_trip_time(-1, Duration::from_millis(700))
        .expect("slow");
    rig.target.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART],
    );
    // One after the other, so that each is a batch of its own and goes before the first answer.
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", rig.source.bootstrap_servers())
        .set("linger.ms", "0")
        .create()
        .expect("a producer");
    for number in 0..RECORDS {
        let value = format!("0,{number}");
        let record = BaseRecord::<str, str>::to("orders")
            .partition(0)
            .payload(&value);
        assert!(producer.send(record).is_ok());
        sleep(Duration::from_millis(50)).await;
    }
    producer.flush(PATIENCE).expect("written");
    copied(task.as_ref(), RECORDS).await;
    rig.target
        .broker_round_trip_time(-1, Duration::from_millis(1))
        .expect("quick");
    let found = read(&rig.target, "orders", 1, 1).await;
    let expected: Vec<_> = (0..RECORDS).map(|number| format!("0,{number}")).collect();
    assert_eq!(values(&found, 0), expected);
}
