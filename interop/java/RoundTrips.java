package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Records that go to a broker and come back as they were. */
final class RoundTrips {
    private static final int PARTITIONS = 3;
    private static final int RECORDS = 300;
    private static final long START_MS = System.currentTimeMillis();

    private RoundTrips() {
    }

    /** Records with keys, headers and timestamps, some without a key or a value, compressed by one codec. */
    static Object recordsOfOneCodec(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        try (Admin admin = clients.admin()) {
            clients.createTopic(admin, topic, PARTITIONS);
        }
        List<Map<String, Object>> sent = send(clients, topic, arguments.get("codec").asText());
        return Map.of("sent", sent, "received", receive(clients, topic, sent.size()));
    }

    private static List<Map<String, Object>> send(Clients clients, String topic, String codec) throws Exception {
        List<ProducerRecord<String, String>> records = new ArrayList<>();
        List<Future<RecordMetadata>> acknowledged = new ArrayList<>();
        try (Producer<String, String> producer = clients.producer(Map.of("compression.type", codec, "linger.ms", 20))) {
            for (int i = 0; i < RECORDS; i++) {
                ProducerRecord<String, String> record = record(topic, i);
                records.add(record);
                acknowledged.add(producer.send(record));
            }
            producer.flush();
        }
        List<Map<String, Object>> sent = new ArrayList<>();
        for (int i = 0; i < RECORDS; i++) {
            RecordMetadata at = acknowledged.get(i).get();
            ProducerRecord<String, String> record = records.get(i);
            sent.add(described(at.partition(), at.offset(), at.timestamp(), record.key(), record.value(),
                header(record.headers().lastHeader("n").value())));
        }
        sent.sort(BY_PLACE);
        return sent;
    }

    private static ProducerRecord<String, String> record(String topic, int i) {
        String key = i % 10 == 0 ? null : "key-" + i % 7;
        String value = i % 11 == 0 ? null : "välue-" + i + "x".repeat(i);
        var headers = List.<org.apache.kafka.common.header.Header>of(
            new RecordHeader("n", Integer.toString(i).getBytes(StandardCharsets.UTF_8)), new RecordHeader("nothing", null));
        return new ProducerRecord<>(topic, null, START_MS + i, key, value, headers);
    }

    private static List<Map<String, Object>> receive(Clients clients, String topic, int count) {
        List<Map<String, Object>> received = new ArrayList<>();
        try (Consumer<String, String> consumer = clients.consumer(Map.of())) {
            consumer.assign(partitions(topic, PARTITIONS));
            long deadline = System.nanoTime() + Clients.DEADLINE.toNanos();
            while (received.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> each : consumer.poll(Clients.POLL)) {
                    received.add(described(each.partition(), each.offset(), each.timestamp(), each.key(), each.value(),
                        header(each.headers().lastHeader("n").value())));
                }
            }
        }
        received.sort(BY_PLACE);
        return received;
    }

    static List<TopicPartition> partitions(String topic, int count) {
        TopicPartition[] partitions = new TopicPartition[count];
        Arrays.setAll(partitions, i -> new TopicPartition(topic, i));
        return List.of(partitions);
    }

    private static final Comparator<Map<String, Object>> BY_PLACE = Comparator
        .comparing((Map<String, Object> each) -> (Integer) each.get("partition"))
        .thenComparing(each -> (Long) each.get("offset"));

    private static Map<String, Object> described(
        int partition, long offset, long timestamp, String key, String value, String header) {
        Map<String, Object> described = new HashMap<>();
        described.put("partition", partition);
        described.put("offset", offset);
        described.put("timestamp", timestamp);
        described.put("key", key);
        described.put("value", value);
        described.put("header", header);
        return described;
    }

    private static String header(byte[] value) {
        return new String(value, StandardCharsets.UTF_8);
    }
}
