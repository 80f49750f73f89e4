//! What the dump writes, read by others: pyarrow and DuckDB see the folder of a topic as one table, with every record as it
//! was given, and come to the same digests.

mod folder;

use std::{
    env,
    fmt::Write as _,
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use kreplicator_dump::{
    clock::Clock,
    commit::{Ground, Jitter},
    encoders::Encoders,
    envelope,
    partition::{PartitionDump, Settings, Then},
    record::{Header, Record, TimestampType},
    trouble::{Trouble, Watcher},
};
use kreplicator_model::{
    dump::{ledger::Reason, manifest::Source, names::AttemptNames, roll::Limits},
    ids::{ClusterId, LinkId, Offset, OwnerEpoch, Partition, TopicName, UnixMillis, WorkerId},
};

use self::folder::Folder;

const NINE: i64 = 1_796_029_200_000;
const HOUR: i64 = 3_600_000;
/// What reads, each at one version.
const PACKAGES: [&str; 3] = ["pyarrow==26.0.1", "duckdb==2.0.1", "xxhash==4.1.0"];

#[derive(Debug)]
struct NoTrouble;

impl Watcher for NoTrouble {
    fn trouble(&self, trouble: &Trouble) {
        panic!("nothing should fail: {trouble}");
    }

    fn over(&self) {}
}

/// The Python that has what is needed, made on first use; Err: why there is none.
fn python() -> Result<PathBuf, String> {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dump-readers");
    let python = venv.join("bin/python");
    if !python.is_file() {
        let made = Command::new("python3")
            .args(["-m", "venv"])
            .arg(&venv)
            .output();
        if !made.is_ok_and(|made| made.status.success()) {
            return Err("no Python 3 with venv; install python3-venv".to_owned());
        }
    }
    let install = Command::new(&python)
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(PACKAGES)
        .output()
        .map_err(|fault| fault.to_string())?;
    if !install.status.success() {
        let text = String::from_utf8_lossy(&install.stderr);
        let line = text.lines().last().unwrap_or_default();
        return Err(format!("PyPI does not give {PACKAGES:?}: {line}"));
    }
    Ok(python)
}

/// Whether the tier has to run: as the harness in `tests`, which this crate does not stand on.
fn is_required() -> bool {
    #[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
    let variable = |name| env::var(name).unwrap_or_default();
    let required = variable("KREPLICATOR_REQUIRE");
    !variable("CI").is_empty() || required.split(',').any(|tier| tier == "component")
}

/// Values of all kinds: null, empty, text, bytes, long.
fn value(number: i64) -> Option<Vec<u8>> {
    match number % 6 {
        0 => None,
        1 => Some(Vec::new()),
        2 => Some(format!("{{\"id\": {number}}}").into_bytes()),
        3 => Some((0..=255).collect()),
        4 => Some(vec![0xff, 0xfe, 0]),
        _ => Some(b"x".repeat(usize::try_from(number % 1_000).expect("small"))),
    }
}

fn timestamp(number: i64) -> i64 {
    match number % 11 {
        0 => -1,
        1 => i64::MAX,
        2 => i64::MIN,
        3 => 1_700_000_000_000_000_000,
        4 => 0,
        _ => NINE + HOUR * (number % 3) + number,
    }
}

fn headers(number: i64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let all = [
        (b"trace".to_vec(), Some(b"1".to_vec())),
        (b"trace".to_vec(), None),
        ("größe".as_bytes().to_vec(), Some(Vec::new())),
        (b"\xffno text".to_vec(), Some(vec![0])),
        (Vec::new(), None),
    ];
    all.into_iter()
        .take(usize::try_from(number % 6).expect("small"))
        .collect()
}

fn hex(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return "null".to_owned();
    };
    let digits = bytes.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("memory");
        digits
    });
    format!("\"{digits}\"")
}

/// What was given, as a line of JSON.
fn line(partition: i32, record: &Record<'_>) -> String {
    let headers: Vec<String> = record
        .headers
        .iter()
        .map(|header| format!("[{}, {}]", hex(Some(header.key)), hex(header.value)))
        .collect();
    format!(
        "{{\"partition\": {partition}, \"offset\": {}, \"timestamp\": {}, \"type\": {}, \"key\": {}, \"value\": {}, \"headers\": [{}]}}\n",
        record.offset,
        record.timestamp.0,
        record.timestamp_type.number(),
        hex(record.key),
        hex(record.value),
        headers.join(", ")
    )
}

/// Dumps a partition in several groups; what was given, a line a record.
async fn dump(root: &Path, partition: i32, records: i64) -> String {
    let ground = Ground {
        store: Arc::new(Folder(root.to_owned())),
        clock: Clock::system(),
        jitter: Jitter::from_fn(|| 0.5),
        watcher: Arc::new(NoTrouble),
    };
    let source = Source {
        link: LinkId::new("lake").expect("legal"),
        cluster: ClusterId::new("dc1").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
        topic_id: None,
        partition: Partition(partition),
    };
    let worker = WorkerId::new("w").expect("legal");
    let names = AttemptNames::new(&worker, OwnerEpoch(1), 1);
    let encoders = Encoders::new(NonZeroUsize::MIN).expect("a thread");
    let settings = Settings {
        files: envelope::Settings {
            row_group_bytes_max: 64 << 10,
            ..envelope::Settings::default()
        },
        // So that no bucket is over before the group is closed.
        limits: Limits {
            lateness: Duration::from_hours(1_000_000),
            ..Limits::default()
        },
        ..Settings::default()
    };
    let taken =
        PartitionDump::take_over(ground, encoders, settings, source, names, None, Offset(0)).await;
    let mut dump = taken.expect("open");
    let long = b"0123456789abcdef".repeat(200_000);
    let mut lines = String::new();
    for number in 0..records {
        // Every seventh offset is a hole, and the last record is a long one.
        let offset = Offset(number + number / 7);
        let is_last = number == records - 1;
        if dump.position() < offset {
            let out = dump.left_out(dump.position(), offset, Reason::Hole).await;
            assert_eq!(out, Ok(Then::More));
        }
        let (key, value) = (value(number + 1), value(number));
        let headers = headers(number);
        let headers: Vec<Header<'_>> = headers
            .iter()
            .map(|(key, value)| Header {
                key,
                value: value.as_deref(),
            })
            .collect();
        let record = Record {
            offset,
            timestamp: UnixMillis(timestamp(number)),
            timestamp_type: TimestampType::of_number(i32::from(number % 3 == 0)).expect("known"),
            key: key.as_deref(),
            value: if is_last {
                Some(&long)
            } else {
                value.as_deref()
            },
            headers: &headers,
        };
        lines.push_str(&line(partition, &record));
        let appended = dump.append(&[record]).await.expect("taken");
        assert_eq!((appended.taken, appended.then), (1, Then::More));
        if number % 400 == 399 {
            assert!(!dump.close_and_commit().await.expect("committed").reread);
        }
    }
    dump.close_and_commit().await.expect("committed");
    lines
}

#[tokio::test]
async fn c100_others_read_a_topic_as_one_table_with_every_record_as_it_was_given() {
    let python = match python() {
        Ok(python) => python,
        Err(missing) => {
            assert!(
                !is_required(),
                "tier component is required and cannot run: {missing}"
            );
            let told = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("\nskipped: {missing}\n").as_bytes(),
            );
            told.expect("it can be told");
            return;
        }
    };
    let work = tempfile::tempdir().expect("a folder");
    let root = work.path().join("warehouse");
    fs::create_dir(&root).expect("a folder");
    let mut lines = dump(&root, 0, 1_000).await;
    lines.push_str(&dump(&root, 7, 300).await);
    let expected = work.path().join("expected.jsonl");
    fs::write(&expected, lines).expect("written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/component_dump_read/read.py");
    let read = Command::new(python)
        .arg(script)
        .args([&root.join("orders"), &expected])
        .output()
        .expect("Python runs");
    let (out, error) = (
        String::from_utf8_lossy(&read.stdout),
        String::from_utf8_lossy(&read.stderr),
    );
    assert!(read.status.success(), "{out}{error}");
    assert_eq!(out, "pyarrow 1300\nduckdb 1300\ndigests 1300\n", "{error}");
}
