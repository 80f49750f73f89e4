import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/**
 * Writes topics with the Java client, and says what a consumer reads from a topic.
 *
 *   topics  BROKER NAME[,key=value]...   makes topics of one partition
 *   write   BROKER TOPIC...              a topic's codec is the last word of its name
 *   special BROKER                       transactions, append time, compaction
 *   dump    BROKER FOLDER TOPIC...       TOPIC.json: the records as the consumer gives them
 */
public class Corpus {
    static final long T0 = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        List<String> rest = Arrays.asList(args).subList(2, args.length);
        switch (args[0]) {
            case "topics" -> topics(args[1], rest);
            case "write" -> { for (String topic : rest) write(args[1], topic); }
            case "special" -> special(args[1]);
            case "dump" -> {
                for (String topic : rest.subList(1, rest.size())) dump(args[1], Path.of(rest.get(0)), topic);
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void topics(String broker, List<String> specs) throws Exception {
        try (AdminClient admin = AdminClient.create(Map.of("bootstrap.servers", broker))) {
            List<NewTopic> topics = new ArrayList<>();
            for (String spec : specs) {
                String[] words = spec.split(",");
                Map<String, String> config = new HashMap<>();
                for (int i = 1; i < words.length; i++) config.put(words[i].split("=")[0], words[i].split("=")[1]);
                topics.add(new NewTopic(words[0], 1, (short) 1).configs(config));
            }
            admin.createTopics(topics).all().get();
        }
    }

    static Producer<byte[], byte[]> producer(String broker, String codec, String... more) {
        Properties p = new Properties();
        p.put("bootstrap.servers", broker);
        p.put("compression.type", codec);
        p.put("linger.ms", "2000");
        p.put("batch.size", "1000000");
        for (int i = 0; i < more.length; i += 2) p.put(more[i], more[i + 1]);
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static ProducerRecord<byte[], byte[]> record(String topic, long time, String key, String value) {
        return new ProducerRecord<>(topic, 0, time, utf8(key), utf8(value));
    }

    /** Three batches: many alike, every kind of null and empty, one long value. */
    static void write(String broker, String topic) {
        String codec = topic.substring(topic.lastIndexOf('-') + 1);
        boolean headers = !topic.startsWith("old-");
        // An old broker would write idempotent batches to an old format no more than it would headers.
        try (Producer<byte[], byte[]> p = producer(broker, codec, "enable.idempotence", String.valueOf(headers))) {
            for (int i = 0; i < 20; i++) {
                p.send(record(topic, T0 + 7L * i, "key-" + i, "{\"id\":" + i + ",\"city\":\"Berlin\"}"));
            }
            p.flush();
            p.send(record(topic, T0 - 5000, null, "null key, an earlier time"));
            p.send(record(topic, T0 + 86_400_000L * 365, "", "empty key, a year later"));
            p.send(record(topic, 0, "null value, time 0", null));
            p.send(record(topic, T0, "empty value", ""));
            p.send(record(topic, T0, null, null));
            if (headers) {
                ProducerRecord<byte[], byte[]> r = record(topic, T0, "C013", "repeated header keys");
                r.headers().add("a", utf8("1")).add("b", utf8("2")).add("a", utf8("3"));
                p.send(r);
                r = record(topic, T0, "C011", "odd headers");
                r.headers().add("", utf8("empty name")).add("null", null).add("empty", new byte[0])
                    .add("binary", new byte[] {0, (byte) 0xff, (byte) 0xc3, 0x28}).add("grüße", utf8("ö"));
                p.send(r);
            }
            p.flush();
            // Longer than one block of snappy (32 KiB) and lz4 (64 KiB).
            int repeats = codec.equals("none") ? 50 : 5000;
            p.send(record(topic, T0 + 1, "long", "0123456789abcdef".repeat(repeats)));
            p.flush();
        }
    }

    static void special(String broker) throws Exception {
        String topic = "java-transactions";
        try (Producer<byte[], byte[]> p = producer(broker, "lz4", "transactional.id", "corpus");
             Producer<byte[], byte[]> plain = producer(broker, "none")) {
            p.initTransactions();
            for (int round = 0; round < 4; round++) {
                boolean commit = round % 2 == 0;
                p.beginTransaction();
                for (int i = 0; i < 10; i++) {
                    p.send(record(topic, T0 + i, "" + i, (commit ? "commit " : "abort ") + round));
                    if (i == 4) {
                        p.flush();
                        plain.send(record(topic, T0, "plain", "inside round " + round));
                        plain.flush();
                    }
                }
                if (commit) p.commitTransaction(); else p.abortTransaction();
            }
        }
        for (String codec : List.of("none", "lz4")) {
            try (Producer<byte[], byte[]> p = producer(broker, codec)) {
                for (int i = 0; i < 5; i++) p.send(record("java-append-time", T0 + i, "" + i, codec));
            }
        }
        topic = "java-compacted";
        // A producer that ends here leaves an empty batch behind once all its records are replaced.
        try (Producer<byte[], byte[]> p = producer(broker, "none")) {
            for (int i = 0; i < 5; i++) p.send(record(topic, T0 + i, "key-" + i, "first"));
        }
        try (Producer<byte[], byte[]> p = producer(broker, "zstd")) {
            for (int i = 0; i < 10; i++) p.send(record(topic, T0 + 10 + i, "key-" + i, "second"));
            p.flush();
            for (int i = 0; i < 10; i += 3) {
                p.send(record(topic, T0 + 20 + i, "key-" + i, i == 3 ? null : "third"));
            }
            p.flush();
            // A segment that is written to is not cleaned: two later records roll it (by their own times).
            for (int i = 1; i <= 2; i++) {
                p.send(record(topic, T0 + 10_000 * i, "last", "" + i));
                p.flush();
            }
        }
        long deadline = System.nanoTime() + 40_000_000_000L;
        while (read(broker, topic, "read_uncommitted").size() > 12) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("not compacted");
            Thread.sleep(500);
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> read(String broker, String topic, String isolation) {
        Properties p = new Properties();
        p.put("bootstrap.servers", broker);
        p.put("isolation.level", isolation);
        TopicPartition partition = new TopicPartition(topic, 0);
        List<ConsumerRecord<byte[], byte[]>> all = new ArrayList<>();
        try (Consumer<byte[], byte[]> c = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            c.assign(List.of(partition));
            c.seekToBeginning(List.of(partition));
            long end = c.endOffsets(List.of(partition)).get(partition);
            while (c.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) all.add(r);
            }
        }
        return all;
    }

    static void dump(String broker, Path folder, String topic) throws Exception {
        List<String> lines = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> r : read(broker, topic, "read_uncommitted")) {
            List<String> headers = new ArrayList<>();
            for (Header h : r.headers()) headers.add("[" + json(utf8(h.key())) + "," + json(h.value()) + "]");
            lines.add("  {\"offset\":" + r.offset() + ",\"timestamp\":" + r.timestamp()
                + ",\"timestamp_type\":\"" + r.timestampType() + "\",\"key\":" + json(r.key())
                + ",\"value\":" + json(r.value()) + ",\"headers\":[" + String.join(",", headers) + "]}");
        }
        List<String> committed = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> r : read(broker, topic, "read_committed")) committed.add("" + r.offset());
        String text = "{\"records\":[\n" + String.join(",\n", lines) + "\n],\n\"committed_offsets\":["
            + String.join(",", committed) + "]}\n";
        Files.writeString(folder.resolve(topic + ".json"), text);
    }

    /** Bytes as hexadecimal text; long ones as length and CRC32C. */
    static String json(byte[] bytes) {
        if (bytes == null) return "null";
        if (bytes.length > 256) {
            CRC32C crc = new CRC32C();
            crc.update(bytes);
            return "{\"length\":" + bytes.length + ",\"crc32c\":" + crc.getValue() + "}";
        }
        return "\"" + HexFormat.of().formatHex(bytes) + "\"";
    }
}
