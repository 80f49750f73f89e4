#!/usr/bin/env bash
# Makes the corpus anew: `make.sh WORK_FOLDER`. Needs a JDK (17 or newer), Maven, Python 3 with venv; five minutes.
# Brokers run on free ports of the loopback and are ended by their process ids.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mkdir -p "$1" && cd "$1" && pwd)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; wait' EXIT

jars() { # folder, group:artifact:version...
    local folder=$work/$1 dependencies='' group artifact version
    shift
    [ -d "$folder/libs" ] && return
    mkdir -p "$folder"
    for coordinate; do
        IFS=: read -r group artifact version <<<"$coordinate"
        dependencies+="<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>"
    done
    echo "<project xmlns='http://maven.apache.org/POM/4.0.0'><modelVersion>4.0.0</modelVersion><groupId>corpus</groupId>
        <artifactId>corpus</artifactId><version>1</version><dependencies>$dependencies</dependencies></project>" >"$folder/pom.xml"
    (cd "$folder" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=libs)
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

wait_for_port() {
    for _ in $(seq 120); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.5
    done
    echo "nothing listens on port $1" >&2
    exit 1
}

collect() { # data folder, topic...
    local data=$1
    shift
    for topic; do
        cat "$data/$topic-0/"*.log >"$here/$topic.batches"
    done
}

jars now org.apache.kafka:kafka_2.13:4.3.1 org.apache.kafka:kafka-tools:4.3.1 org.slf4j:slf4j-nop:1.7.36
# Zookeeper 3.4, which that Kafka came with, finds no address on Java 14 and newer (ZOOKEEPER-3779).
jars old org.apache.kafka:kafka_2.12:2.1.1 org.apache.zookeeper:zookeeper:3.5.10 org.slf4j:slf4j-nop:1.7.25
[ -d "$work/py" ] || {
    python3 -m venv "$work/py"
    "$work/py/bin/pip" install -q kafka-python==3.0.12 confluent-kafka==2.16.1 python-snappy lz4 zstandard
}
now() { nice -n 19 java -Xmx256m -cp "$work/now/libs/*" "$@"; }
old() { nice -n 19 java -Xmx256m -cp "$work/old/libs/*" "$@"; }

# Kafka 4.3.1: format 2.
rm -rf "$work/now/data" && mkdir -p "$work/now/data"
port=$(free_port) controller=$(free_port)
cat >"$work/now/server.properties" <<-END
	process.roles=broker,controller
	node.id=1
	controller.quorum.voters=1@127.0.0.1:$controller
	controller.listener.names=CONTROLLER
	listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
	listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
	log.dirs=$work/now/data
	log.message.timestamp.after.max.ms=9223372036854775807
	log.retention.ms=-1
	log.cleaner.backoff.ms=300
	offsets.topic.replication.factor=1
	offsets.topic.num.partitions=1
	transaction.state.log.replication.factor=1
	transaction.state.log.min.isr=1
	transaction.state.log.num.partitions=1
	share.coordinator.state.topic.replication.factor=1
	share.coordinator.state.topic.min.isr=1
END
now kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c "$work/now/server.properties"
nice -n 19 java -Xmx384m -cp "$work/now/libs/*" kafka.Kafka "$work/now/server.properties" >"$work/now/broker.log" 2>&1 &
pids+=($!)
wait_for_port "$port"
codecs=(none gzip snappy lz4 zstd)
java=("${codecs[@]/#/java-}") rdkafka=("${codecs[@]/#/rdkafka-}") python=("${codecs[@]/#/python-}")
special=(java-transactions java-append-time java-compacted)
all=("${java[@]}" "${rdkafka[@]}" "${python[@]}" "${special[@]}")
now "$here/Corpus.java" topics "127.0.0.1:$port" "${java[@]}" "${rdkafka[@]}" "${python[@]}" java-transactions \
    java-append-time,message.timestamp.type=LogAppendTime \
    java-compacted,cleanup.policy=compact,segment.ms=1000,min.cleanable.dirty.ratio=0.01
now "$here/Corpus.java" write "127.0.0.1:$port" "${java[@]}"
"$work/py/bin/python" "$here/corpus.py" "127.0.0.1:$port" "${rdkafka[@]}" "${python[@]}"
now "$here/Corpus.java" special "127.0.0.1:$port"
now "$here/Corpus.java" dump "127.0.0.1:$port" "$here" "${all[@]}"
collect "$work/now/data" "${all[@]}"
cat "$work/now/data/java-transactions-0/"*.txnindex >"$here/java-transactions.txnindex"
kill "${pids[0]}" && wait "${pids[0]}" || true
pids=()

# Kafka 2.1.1 told to keep to formats 0 and 1. The Java client's batches are converted by the broker; librdkafka's are
# its own.
rm -rf "$work/old/data" && mkdir -p "$work/old/data"
port=$(free_port) zookeeper=$(free_port)
printf 'dataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n' \
    "$work/old/data/zk" "$zookeeper" >"$work/old/zookeeper.properties"
cat >"$work/old/server.properties" <<-END
	broker.id=1
	listeners=PLAINTEXT://127.0.0.1:$port
	zookeeper.connect=127.0.0.1:$zookeeper
	log.dirs=$work/old/data/logs
	log.retention.ms=-1
	offsets.topic.replication.factor=1
END
nice -n 19 java -Xmx256m -cp "$work/old/libs/*" org.apache.zookeeper.server.quorum.QuorumPeerMain \
    "$work/old/zookeeper.properties" >"$work/old/zookeeper.log" 2>&1 &
pids+=($!)
wait_for_port "$zookeeper"
nice -n 19 java -Xmx384m -cp "$work/old/libs/*" kafka.Kafka "$work/old/server.properties" >"$work/old/broker.log" 2>&1 &
pids+=($!)
wait_for_port "$port"
specs=() topics=()
for codec in none gzip snappy lz4; do
    for magic in 0 1; do
        format=$([ $magic = 0 ] && echo 0.9.0 || echo 0.10.0)
        for client in old rdkafka-old; do
            [ $client = old ] && topic=old-java$magic-$codec || topic=rdkafka-old$magic-$codec
            topics+=("$topic")
            specs+=("$topic,message.format.version=$format")
        done
    done
done
topics+=(old-append1-lz4)
specs+=(old-append1-lz4,message.format.version=0.10.0,message.timestamp.type=LogAppendTime)
old "$here/Corpus.java" topics "127.0.0.1:$port" "${specs[@]}"
mapfile -t written < <(printf '%s\n' "${topics[@]}" | grep '^old')
old "$here/Corpus.java" write "127.0.0.1:$port" "${written[@]}"
mapfile -t written < <(printf '%s\n' "${topics[@]}" | grep '^rdkafka')
"$work/py/bin/python" "$here/corpus.py" "127.0.0.1:$port" "${written[@]}"
old "$here/Corpus.java" dump "127.0.0.1:$port" "$here" "${topics[@]}"
collect "$work/old/data/logs" "${topics[@]}"
