"""Reads a topic's folder as one table and compares it, record by record, with what was given (one JSON object a line)."""

import datetime
import json
import pathlib
import struct
import sys

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import xxhash

SEED = int.from_bytes(b"krepdump", "big")
YEAR_10000 = 253402300800000

folder, expected = sys.argv[1], sys.argv[2]
given = [json.loads(line) for line in open(expected)]
given = {(record["partition"], record["offset"]): record for record in given}


def unhex(text):
    return None if text is None else bytes.fromhex(text)


def is_time(timestamp):
    return 0 <= timestamp < YEAR_10000


def directory(timestamp):
    """Values of the columns `dt` and `hour`, as text."""
    if not is_time(timestamp):
        return None, None
    time = datetime.datetime.fromtimestamp(timestamp / 1000, datetime.timezone.utc)
    return time.strftime("%Y-%m-%d"), time.strftime("%H")


def check(row, timestamp, dt, hour):
    """`row` by column; `timestamp` in milliseconds or None."""
    record = given[row["partition"], row["offset"]]
    assert row["topic"] == "orders", row
    if is_time(record["timestamp"]):
        assert (timestamp, row["timestamp_raw"]) == (record["timestamp"], None), (row, record)
    else:
        assert (timestamp, row["timestamp_raw"]) == (None, record["timestamp"]), (row, record)
    assert row["timestamp_type"] == record["type"], (row, record)
    assert row["key"] == unhex(record["key"]), (row, record)
    assert row["value"] == unhex(record["value"]), (row, record)
    headers = []
    for header in row["headers"]:
        if header["key_bytes"] is None:
            key = header["key"].encode()
        else:
            key = header["key_bytes"]
            assert header["key"] == key.decode(errors="replace"), header
        headers.append([key, header["value"]])
    assert headers == [[unhex(key), unhex(value)] for key, value in record["headers"]], (row, record)
    assert (dt, hour) == directory(record["timestamp"]), (row, record)


def check_all(reader, rows):
    seen = set()
    for row, timestamp, dt, hour in rows:
        check(row, timestamp, dt, hour)
        key = row["partition"], row["offset"]
        assert key not in seen, f"{key} twice"
        seen.add(key)
    assert seen == set(given), f"{len(seen)} of {len(given)}"
    print(reader, len(seen))


# Both columns as text: else each reader guesses in its own way.
columns = pa.schema([("dt", pa.string()), ("hour", pa.string())])
table = ds.dataset(folder, format="parquet", partitioning=ds.partitioning(columns, flavor="hive")).to_table()
millis = table.column("timestamp").cast(pa.int64()).to_pylist()
rows = table.drop_columns(["timestamp"]).to_pylist()
check_all("pyarrow", ((row, time, row["dt"], row["hour"]) for row, time in zip(rows, millis)))

query = f"""
    SELECT * REPLACE (epoch_ms(timestamp) AS timestamp)
    FROM read_parquet('{folder}/**/*.parquet', hive_partitioning = true, hive_types = {{'dt': VARCHAR, 'hour': VARCHAR}})
"""
cursor = duckdb.sql(query)
names = cursor.columns


def duck(row):
    row = dict(zip(names, row))
    return row, row["timestamp"], row["dt"], row["hour"]


check_all("duckdb", (duck(row) for row in cursor.fetchall()))


def part(value):
    if value is None:
        return struct.pack("<Q", 2**64 - 1)
    return struct.pack("<Q", len(value)) + value


def record_hash(record):
    data = struct.pack("<qqq", record["offset"], record["timestamp"], record["type"])
    data += part(unhex(record["key"])) + part(unhex(record["value"]))
    data += struct.pack("<Q", len(record["headers"]))
    for key, value in record["headers"]:
        data += part(unhex(key)) + part(unhex(value))
    return xxhash.xxh3_128(data, seed=SEED).intdigest()


# Each file on its own: what its footer says is what its records come to.
records = 0
for path in pathlib.Path(folder).rglob("*.parquet"):
    file = pq.ParquetFile(path)
    facts = {
        name.decode().removeprefix("kreplicator."): value.decode()
        for name, value in file.metadata.metadata.items()
    }
    keys = file.read(columns=["partition", "offset"]).to_pylist()
    found = [given[key["partition"], key["offset"]] for key in keys]
    offsets = [record["offset"] for record in found]
    assert offsets == sorted(offsets), path
    digest = sum(record_hash(record) for record in found) % 2**128
    assert facts["digest"] == f"{digest:032x}", (path, facts)
    assert (int(facts["first"]), int(facts["last"]), int(facts["records"])) == (offsets[0], offsets[-1], len(offsets))
    times = [record["timestamp"] for record in found]
    assert (int(facts["timestamp_min_ms"]), int(facts["timestamp_max_ms"])) == (min(times), max(times))
    assert path.name == f"orders+{facts['partition']}+{offsets[0]:019}+{offsets[-1]:019}.parquet", path
    records += len(found)
print("digests", records)
