//! The layout of keys, one function each. Parts that come from outside are percent-encoded, so a
//! name can never reach into another folder.

use kreplicator_model::ids::{ClusterId, LinkId, LinkTopic, TopicName, WorkerId};

/// `config/cluster/`
pub const CLUSTERS: &str = "config/cluster/";
/// `config/link/`
pub const LINKS: &str = "config/link/";
/// `config/subscription/`
pub const SUBSCRIPTIONS: &str = "config/subscription/";
/// Everything operators asked for.
pub const CONFIG: &str = "config/";
/// `desired/state`: written by every change of `config/` that came through the API, so that one
/// comparison tells whether the desired state is still the one that was checked.
pub const DESIRED_STATE: &str = "desired/state";
/// `worker/live/`, leased.
pub const WORKERS_LIVE: &str = "worker/live/";
/// `worker/drain/`
pub const WORKERS_DRAIN: &str = "worker/drain/";
/// `controller/leader`, leased.
pub const LEADER: &str = "controller/leader";
/// `plan/state`
pub const PLAN_STATE: &str = "plan/state";
/// `plan/assignment/`
pub const ASSIGNMENTS: &str = "plan/assignment/";
/// `owned/`, leased.
pub const OWNED: &str = "owned/";
/// `task/`
pub const TOPIC_RECORDS: &str = "task/";
/// `line/`, written by workers.
pub const LINES: &str = "line/";
/// `producer/`, written by workers.
pub const PRODUCERS: &str = "producer/";
/// `request/`, leased.
pub const REQUESTS: &str = "request/";

/// Chunks of one worker's assignment. Part of the stored format: never changed.
pub const ASSIGNMENT_CHUNKS: u32 = 8;

/// `config/cluster/<cluster>`
#[must_use]
pub fn cluster(id: &ClusterId) -> String {
    format!("{CLUSTERS}{id}")
}

/// `config/link/<link>`
#[must_use]
pub fn link(id: &LinkId) -> String {
    format!("{LINKS}{id}")
}

/// `config/subscription/<link>/`
#[must_use]
pub fn subscriptions_of(link: &LinkId) -> String {
    format!("{SUBSCRIPTIONS}{link}/")
}

/// `config/subscription/<link>/<encoded subscription id>`
#[must_use]
pub fn subscription(link: &LinkId, id: &str) -> String {
    format!("{SUBSCRIPTIONS}{link}/{}", encode(id))
}

/// `worker/live/<worker>`
#[must_use]
pub fn worker_live(worker: &WorkerId) -> String {
    format!("{WORKERS_LIVE}{worker}")
}

/// `worker/drain/<worker>`
#[must_use]
pub fn worker_drain(worker: &WorkerId) -> String {
    format!("{WORKERS_DRAIN}{worker}")
}

/// `plan/assignment/<worker>/`
#[must_use]
pub fn assignments_of(worker: &WorkerId) -> String {
    format!("{ASSIGNMENTS}{worker}/")
}

/// `plan/assignment/<worker>/<chunk>`
#[must_use]
pub fn assignment(worker: &WorkerId, chunk: u32) -> String {
    format!("{ASSIGNMENTS}{worker}/{chunk:04}")
}

/// `owned/<worker>/`
#[must_use]
pub fn owned_of(worker: &WorkerId) -> String {
    format!("{OWNED}{worker}/")
}

/// `owned/<worker>/<chunk>`
#[must_use]
pub fn owned(worker: &WorkerId, chunk: u32) -> String {
    format!("{OWNED}{worker}/{chunk:04}")
}

/// `task/<link>/<topic>`
#[must_use]
pub fn topic_record(link: &LinkId, topic: &TopicName) -> String {
    format!("{TOPIC_RECORDS}{link}/{topic}")
}

/// `line/<link>/<topic>`
#[must_use]
pub fn lines(topic: &LinkTopic) -> String {
    format!("{LINES}{}/{}", topic.link, topic.topic)
}

/// `line/<link>/`
#[must_use]
pub fn lines_of(link: &LinkId) -> String {
    format!("{LINES}{link}/")
}

/// `producer/<link>`
#[must_use]
pub fn producer(link: &LinkId) -> String {
    format!("{PRODUCERS}{link}")
}

/// `request/<encoded request id>`
#[must_use]
pub fn request(id: &str) -> String {
    format!("{REQUESTS}{}", encode(id))
}

/// Splits `<prefix><worker>/<chunk>`, the form of assignment and owned keys.
#[must_use]
pub fn split_chunk<'a>(key: &'a str, prefix: &str) -> Option<(&'a str, u32)> {
    let (worker, chunk) = key.strip_prefix(prefix)?.rsplit_once('/')?;
    Some((worker, chunk.parse().ok()?))
}

/// The chunk that holds a topic of a link: the upper half of FNV-1a over the link, a zero byte and the topic,
/// modulo the number of chunks. Part of
/// the stored format: never changed.
#[must_use]
pub fn chunk_of(link: &LinkId, topic: &TopicName) -> u32 {
    let bytes = link
        .as_str()
        .bytes()
        .chain([0])
        .chain(topic.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    u32::try_from((hash >> 32) % u64::from(ASSIGNMENT_CHUNKS)).expect("a remainder below a u32")
}

/// Percent-encodes everything but ASCII letters, digits, '-', '_' and '.'.
#[must_use]
pub fn encode(part: &str) -> String {
    part.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Undoes [`encode`]; None for text that it cannot have made.
#[must_use]
pub fn decode(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let text = std::str::from_utf8(&digits).ok()?;
            bytes.push(u8::from_str_radix(text, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_parts_read_back_and_hold_no_slash() {
        for part in ["orders", "/orders\\..*/", "ä/%", ""] {
            let encoded = encode(part);
            assert!(!encoded.contains('/'), "{encoded}");
            assert_eq!(decode(&encoded).as_deref(), Some(part));
        }
        assert_eq!(decode("%G0"), None);
    }

    #[test]
    fn the_chunk_of_a_topic_is_part_of_the_stored_format() {
        let link = LinkId::new("a-b").expect("legal");
        let chunk = |topic| chunk_of(&link, &TopicName::new(topic).expect("legal"));
        assert_eq!(
            [chunk("orders"), chunk("payments"), chunk("clicks")],
            [0, 0, 6]
        );
    }
}
