//! Questions about offsets, many partitions at a time. All of them block.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use kreplicator_kafka::error::explain;
use kreplicator_model::ids::{Offset, TopicName};
use rdkafka::{
    TopicPartitionList,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::RDKafkaErrorCode as Code,
};
use tokio::time::Instant;

use super::reader::{AtTimes, Ranges};
use crate::fault::{Fault, Kind};

/// "Times" that mean the ends of a log; part of the protocol (ListOffsets).
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// Least time given to the partitions of one leader when they are asked for one leader at a time.
const LEADER_TIME_MIN: Duration = Duration::from_millis(500);
/// Most time given to them: one that is there answers at once.
const LEADER_TIME_MAX: Duration = Duration::from_secs(2);
/// Brokers asked who leads in half of the time that there is.
const METADATA_TRIES: u32 = 4;

type Place = (TopicName, i32);
type Answers = HashMap<Place, Result<i64, Code>>;

/// Log starts and last stable offsets, in two requests to each leader.
///
/// # Errors
/// When nobody answered at all. Partitions that could not be measured are missing or hold their fault.
pub(super) fn ranges<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &[Place],
    deadline: Duration,
) -> Result<Ranges, Code> {
    let begun = Instant::now();
    // The end first: an end that is older than the start never looks like a log that shrank. Half of the
    // time, so that one who is silent leaves some for the starts of the others.
    let ask_ends = |end: Instant| {
        let ends = partitions.iter().map(|place| (place.clone(), LATEST));
        ask(consumer, ends, end)
    };
    // Where nobody was there somebody may still come.
    let ends = ask_ends(begun + deadline / 2).or_else(|_| ask_ends(begun + deadline))?;
    let told = partitions.iter().filter(|place| ends.contains_key(*place));
    let starts = ask(
        consumer,
        told.map(|place| (place.clone(), EARLIEST)),
        begun + deadline,
    )?;
    let mut found = HashMap::with_capacity(partitions.len());
    for place in partitions {
        let (Some(start), Some(end)) = (starts.get(place), ends.get(place)) else {
            continue;
        };
        let range = match (start, end) {
            (Ok(start), Ok(end)) => Ok((Offset(*start), Offset((*end).max(*start)))),
            (Err(code), _) | (_, Err(code)) => Err(unmeasured(place, *code)),
        };
        found.insert(place.clone(), range);
    }
    Ok(found)
}

/// Most topics whose metadata is asked for one by one; beyond, one request for all is cheaper.
const TOPICS_ASKED_SINGLY_MAX: usize = 16;

/// As [`ranges`], for partitions that may have been made a moment ago: the library goes by metadata of
/// its own, which may be a minute old, so what it does not know is looked up at a broker and asked
/// once more.
///
/// # Errors
/// As [`ranges`].
pub(super) fn fresh_ranges<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &[Place],
    deadline: Duration,
) -> Result<Ranges, Code> {
    let end = Instant::now() + deadline;
    let mut found = ranges(consumer, partitions, deadline)?;
    let unknown: Vec<Place> = partitions
        .iter()
        .filter(|place| !matches!(found.get(*place), Some(Ok(_))))
        .cloned()
        .collect();
    let left = || end.saturating_duration_since(Instant::now());
    if unknown.is_empty() || left().is_zero() {
        return Ok(found);
    }
    let topics: BTreeSet<&TopicName> = unknown.iter().map(|(topic, _)| topic).collect();
    let refreshed = if topics.len() > TOPICS_ASKED_SINGLY_MAX {
        consumer.fetch_metadata(None, left()).map(drop)
    } else {
        topics.iter().try_for_each(|topic| {
            let metadata = consumer.fetch_metadata(Some(topic.as_str()), left());
            metadata.map(drop)
        })
    };
    if refreshed.is_ok() && !left().is_zero() {
        found.extend(ranges(consumer, &unknown, left())?);
    }
    Ok(found)
}

/// First offsets at or after times; None: no such record yet.
///
/// # Errors
/// When nobody answered at all.
pub(super) fn at_times<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    times: &[(Place, i64)],
    deadline: Duration,
) -> Result<AtTimes, Code> {
    // Times before the epoch would be taken for the marks above.
    let times = times
        .iter()
        .map(|(place, time)| (place.clone(), (*time).max(0)));
    let answers = ask(consumer, times, Instant::now() + deadline)?;
    let found = answers.into_iter().map(|(place, answer)| {
        let answer = match answer {
            Ok(offset) => Ok((offset >= 0).then_some(Offset(offset))),
            Err(code) => Err(unmeasured(&place, code)),
        };
        (place, answer)
    });
    Ok(found.collect())
}

/// Asks for all at once. One leader that is silent makes the library give up the answers of all, so
/// then each leader is asked by itself.
fn ask<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    times: impl Iterator<Item = (Place, i64)>,
    end: Instant,
) -> Result<Answers, Code> {
    let times: Vec<(Place, i64)> = times.collect();
    let left = end.saturating_duration_since(Instant::now());
    // Keep half for the second way.
    match ask_once(consumer, &times, left / 2) {
        Err(Code::OperationTimedOut) => {}
        answer => return answer,
    }
    let mut by_leader: BTreeMap<i32, Vec<(Place, i64)>> = BTreeMap::new();
    let leaders = leaders(consumer, end)?;
    for (place, time) in times {
        if let Some(leader) = leaders.get(&(place.0.to_string(), place.1)) {
            by_leader.entry(*leader).or_default().push((place, time));
        }
    }
    if by_leader.len() < 2 {
        return Err(Code::OperationTimedOut);
    }
    let mut answers = HashMap::new();
    let mut groups_left = u32::try_from(by_leader.len()).unwrap_or(u32::MAX);
    for group in by_leader.into_values() {
        let left = end.saturating_duration_since(Instant::now());
        let part = leader_time(left, groups_left);
        groups_left -= 1;
        // Who does not answer has no answer.
        if let Ok(found) = ask_once(consumer, &group, part) {
            answers.extend(found);
        }
    }
    if answers.is_empty() {
        return Err(Code::OperationTimedOut);
    }
    Ok(answers)
}

/// The time of one of so many leaders, of what is left for all: its part. No more than one needs that is there,
/// or one who is silent uses up what else is to be asked in the same time.
fn leader_time(left: Duration, leaders_left: u32) -> Duration {
    (left / leaders_left.max(1)).clamp(LEADER_TIME_MIN, LEADER_TIME_MAX)
}

fn ask_once<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    times: &[(Place, i64)],
    deadline: Duration,
) -> Result<Answers, Code> {
    let mut list = TopicPartitionList::with_capacity(times.len());
    for ((topic, partition), time) in times {
        list.add_partition_offset(topic.as_str(), *partition, raw_time(*time))
            .map_err(|fault| fault.rdkafka_error_code().unwrap_or(Code::InvalidArgument))?;
    }
    match consumer.offsets_for_times(list, deadline) {
        Ok(list) => Ok(answers(&list)),
        // No partition has a leader that is known: an answer of its own for each.
        Err(fault) => match fault.rdkafka_error_code().unwrap_or(Code::Fail) {
            code @ (Code::UnknownPartition | Code::UnknownTopicOrPartition) => Ok(times
                .iter()
                .map(|(place, _)| (place.clone(), Err(code)))
                .collect()),
            code => Err(code),
        },
    }
}

/// The library takes times in the field for offsets.
fn raw_time(time: i64) -> rdkafka::Offset {
    match time {
        LATEST => rdkafka::Offset::End,
        EARLIEST => rdkafka::Offset::Beginning,
        time => rdkafka::Offset::Offset(time),
    }
}

fn answers(list: &TopicPartitionList) -> Answers {
    let mut found = HashMap::with_capacity(list.count());
    for element in list.elements() {
        let Ok(topic) = TopicName::new(element.topic()) else {
            continue;
        };
        let answer = match element.error() {
            Ok(()) => Ok(element.offset().to_raw().unwrap_or(LATEST)),
            Err(fault) => Err(fault.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        found.insert((topic, element.partition()), answer);
    }
    found
}

/// The library asks any broker, perhaps a silent one, and another when it is asked again.
fn leaders<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    end: Instant,
) -> Result<HashMap<(String, i32), i32>, Code> {
    let metadata = loop {
        let left = end.saturating_duration_since(Instant::now());
        let part = leader_time(left / 2, METADATA_TRIES).min(left);
        let fault = match consumer.fetch_metadata(None, part) {
            Ok(metadata) => break metadata,
            Err(fault) => fault.rdkafka_error_code().unwrap_or(Code::Fail),
        };
        let is_silence = matches!(fault, Code::OperationTimedOut | Code::TimedOutQueue);
        if part >= left || !is_silence {
            return Err(fault);
        }
    };
    let mut found = HashMap::new();
    for topic in metadata.topics() {
        for partition in topic.partitions() {
            found.insert(
                (topic.name().to_owned(), partition.id()),
                partition.leader(),
            );
        }
    }
    Ok(found)
}

fn unmeasured((topic, partition): &Place, code: Code) -> Fault {
    let cause = match code {
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => format!(
            "source topic {topic} has no partition {partition}: it was deleted or never made; \
             unsubscribe it, or create it"
        ),
        Code::TopicAuthorizationFailed => format!(
            "source topic {topic}: the user lacks the permissions READ and DESCRIBE; grant them"
        ),
        other => format!(
            "offsets of source topic {topic} partition {partition} cannot be told: {}",
            explain(other)
        ),
    };
    Fault::new(Kind::Source, cause)
}

#[cfg(test)]
mod tests {
    use rdkafka::{ClientConfig, mocking::MockCluster};

    use super::*;

    #[test]
    fn one_leader_never_has_the_time_of_all() {
        let seconds = Duration::from_secs;
        assert_eq!(
            leader_time(seconds(60), 2),
            seconds(2),
            "though nobody hurries"
        );
        assert_eq!(leader_time(seconds(60), 1), seconds(2));
        assert_eq!(leader_time(seconds(4), 4), seconds(1));
        assert_eq!(leader_time(seconds(1), 100), Duration::from_millis(500));
    }

    #[test]
    fn leaders_that_are_silent_leave_time_for_the_others() {
        let cluster = MockCluster::new(4).expect("a mock cluster");
        cluster.create_topic("orders", 4, 1).expect("made");
        for (partition, leader) in (0..4).zip(1..) {
            let placed = cluster.partition_leader("orders", partition, Some(leader));
            placed.expect("a leader");
        }
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .set("group.id", "asks")
            .create()
            .expect("a consumer");
        let topic = TopicName::new("orders").expect("legal");
        let places: Vec<Place> = (0..4).map(|partition| (topic.clone(), partition)).collect();
        let plenty = Duration::from_secs(30);
        let all = ranges(&consumer, &places, plenty).expect("all answer");
        assert_eq!(all.len(), 4);
        for silent in 1..4 {
            let ever = Duration::from_secs(120);
            cluster.broker_round_trip_time(silent, ever).expect("slow");
        }
        let begun = Instant::now();
        let deadline = Duration::from_secs(8);
        let found = ranges(&consumer, &places, deadline).expect("one answers");
        let took = begun.elapsed();
        assert!(matches!(found.get(&places[3]), Some(Ok(_))), "{found:?}");
        let told = found.values().filter(|range| range.is_ok());
        assert_eq!(told.count(), 1, "{found:?}");
        assert!(took < deadline, "{took:?}");
    }
}
