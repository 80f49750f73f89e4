"""Writes topics with librdkafka and with kafka-python: `corpus.py BROKER TOPIC...`.

The first word of a topic's name is the client, the last the codec. `old0` and `old1` in the middle make librdkafka
write message format 0 and 1 itself.
"""

import sys

T0 = 1_700_000_000_000


def records(topic):
    """Batches of (time, key, value, headers); the same as Corpus.java writes, with a non-UTF-8 value or two."""
    codec = topic.rsplit("-", 1)[1]
    yield [(T0 + 7 * i, b"key-%d" % i, b'{"id":%d,"city":"Berlin"}' % i, []) for i in range(20)]
    headers = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    odd = [("null", None), ("empty", b""), ("binary", b"\x00\xff\xc3\x28"), ("gr\u00fc\u00dfe", b"\xc3\xb6")]
    if "-old" in topic:
        headers, odd = [], []
    if topic.startswith("python"):
        odd = odd[1:]  # kafka-python refuses null header values
    yield [
        (T0 - 5000, None, b"null key, an earlier time", []),
        (T0 + 86_400_000 * 365, b"", b"empty key, a year later", []),
        (T0, b"null value", None, []),
        (T0, b"empty value", b"", []),
        (T0, b"C013", b"repeated header keys", headers),
        (T0, b"C011", b"odd headers \xff", odd),
    ]
    yield [(T0 + 1, b"long", b"0123456789abcdef" * (50 if codec == "none" else 5000), [])]


def librdkafka(broker, topic):
    from confluent_kafka import Producer

    config = {
        "bootstrap.servers": broker,
        "compression.codec": topic.rsplit("-", 1)[1],
        "linger.ms": 2000,
        "message.max.bytes": 1000000,
    }
    if "-old" in topic:
        fallback = "0.9.0" if "-old0-" in topic else "0.10.0"
        config |= {"api.version.request": False, "broker.version.fallback": fallback}
    producer = Producer(config)
    for batch in records(topic):
        for time, key, value, headers in batch:
            old0 = {} if "-old0-" in topic else {"timestamp": time}
            producer.produce(topic, partition=0, key=key, value=value, headers=headers or None, **old0)
        assert producer.flush(30) == 0, topic


def kafka_python(broker, topic):
    from kafka import KafkaProducer

    codec = topic.rsplit("-", 1)[1]
    producer = KafkaProducer(
        bootstrap_servers=broker,
        compression_type=None if codec == "none" else codec,
        linger_ms=2000,
        batch_size=1000000,
    )
    for batch in records(topic):
        sent = [
            producer.send(topic, value, key, partition=0, timestamp_ms=time, headers=headers)
            for time, key, value, headers in batch
        ]
        producer.flush(30)
        for future in sent:
            future.get(30)
    producer.close()


for topic in sys.argv[2:]:
    {"rdkafka": librdkafka, "python": kafka_python}[topic.split("-")[0]](sys.argv[1], topic)
