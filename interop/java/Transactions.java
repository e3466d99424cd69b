package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;

/** The transactional producer, and consumers that read what was committed. */
final class Transactions {
    private static final int PARTITIONS = 3;

    private Transactions() {
    }

    /** A transaction that is committed, one that is aborted, one that is open: who sees what of them. */
    static Object commitAndAbort(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        Map<String, Object> seen = new HashMap<>();
        try (Admin admin = clients.admin(); Producer<String, String> producer = clients.transactionalProducer(topic)) {
            clients.createTopic(admin, topic, PARTITIONS);
            producer.initTransactions();
            write(producer, topic, "committed");
            producer.commitTransaction();
            write(producer, topic, "aborted");
            producer.flush();
            producer.abortTransaction();
            write(producer, topic, "open");
            producer.flush();
            seen.put("last_stable_offset", endOffset(admin, topic, IsolationLevel.READ_COMMITTED));
            seen.put("end_offset", endOffset(admin, topic, IsolationLevel.READ_UNCOMMITTED));
            seen.put("committed_while_open", read(clients, topic, "read_committed"));
            seen.put("all", read(clients, topic, "read_uncommitted"));
            producer.commitTransaction();
            seen.put("committed", read(clients, topic, "read_committed"));
        }
        return seen;
    }

    /** Reads, writes and commits its place in one transaction; what is aborted half way is done again. */
    static Object offsetsInTransactions(Clients clients, JsonNode arguments) throws Exception {
        String group = arguments.get("group").asText();
        String input = group + "-input";
        String output = group + "-output";
        int records = 20;
        try (Admin admin = clients.admin();
             Consumer<String, String> consumer = clients.consumer(Clients.groupSettings(arguments, Map.of("max.poll.records", 5)));
             Producer<String, String> producer = clients.transactionalProducer(group)) {
            clients.createTopic(admin, input, 1);
            clients.createTopic(admin, output, PARTITIONS);
            fill(clients, input, records);
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            TopicPartition partition = new TopicPartition(input, 0);
            int polls = 0;
            List<Long> places = new ArrayList<>();
            while (place(admin, group, partition) < records) {
                ConsumerRecords<String, String> polled = consumer.poll(Clients.POLL);
                if (polled.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                polled.forEach(each -> producer.send(new ProducerRecord<>(output, each.key(), each.value())));
                producer.sendOffsetsToTransaction(polled.nextOffsets(), consumer.groupMetadata());
                if (polls++ % 2 == 0) {
                    producer.abortTransaction();
                    consumer.seek(partition, place(admin, group, partition));
                } else {
                    producer.commitTransaction();
                }
                places.add(place(admin, group, partition));
            }
            List<String> written = read(clients, output, "read_committed");
            return Map.of("output", written, "places", places);
        }
    }

    /** A commit of offsets in the name of a generation that is over is refused. */
    static Object staleGeneration(Clients clients, JsonNode arguments) throws Exception {
        String group = arguments.get("group").asText();
        String input = group + "-input";
        try (Admin admin = clients.admin(); Producer<String, String> producer = clients.transactionalProducer(group)) {
            clients.createTopic(admin, input, 1);
            fill(clients, input, 1);
            ConsumerGroupMetadata stale;
            try (Consumer<String, String> consumer = clients.consumer(Clients.groupSettings(arguments, Map.of()))) {
                consumer.subscribe(List.of(input));
                Clients.until("the record is there", () -> !consumer.poll(Clients.POLL).isEmpty());
                stale = consumer.groupMetadata();
            }
            producer.initTransactions();
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition(input, 0), new OffsetAndMetadata(1));
            String refusal = Clients.refusal(() -> {
                producer.sendOffsetsToTransaction(offsets, stale);
                producer.commitTransaction();
                return null;
            });
            producer.abortTransaction();
            return Map.of("refusal", refusal, "place", place(admin, group, new TopicPartition(input, 0)));
        }
    }

    /** A second producer takes over a transactional id: the first is fenced, and what it left open is aborted. */
    static Object zombie(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        try (Admin admin = clients.admin();
             Producer<String, String> zombie = clients.transactionalProducer(topic);
             Producer<String, String> successor = clients.transactionalProducer(topic)) {
            clients.createTopic(admin, topic, PARTITIONS);
            zombie.initTransactions();
            write(zombie, topic, "zombie");
            zombie.flush();
            successor.initTransactions();
            String sent = Clients.refusal(() -> zombie.send(new ProducerRecord<>(topic, 0, null, "late")).get());
            String committed = Clients.refusal(() -> {
                zombie.commitTransaction();
                return null;
            });
            write(successor, topic, "successor");
            successor.commitTransaction();
            return Map.of("sent", sent, "committed", committed, "read", read(clients, topic, "read_committed"));
        }
    }

    static Object fencedByAdmin(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        try (Admin admin = clients.admin(); Producer<String, String> producer = clients.transactionalProducer(topic)) {
            clients.createTopic(admin, topic, PARTITIONS);
            producer.initTransactions();
            write(producer, topic, "fenced");
            producer.flush();
            admin.fenceProducers(Set.of(topic)).all().get();
            String committed = Clients.refusal(() -> {
                producer.commitTransaction();
                return null;
            });
            return Map.of("committed", committed, "read", read(clients, topic, "read_committed"));
        }
    }

    /** The coordinator aborts a transaction that is open for longer than its producer said it would be. */
    static Object timedOut(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        Map<String, Object> settings = Map.of("transactional.id", topic, "transaction.timeout.ms", 1_000);
        try (Admin admin = clients.admin(); Producer<String, String> producer = clients.producer(settings)) {
            clients.createTopic(admin, topic, PARTITIONS);
            producer.initTransactions();
            write(producer, topic, "late");
            producer.flush();
            awaitState(admin, topic, "CompleteAbort");
            String committed = Clients.refusal(() -> {
                producer.commitTransaction();
                return null;
            });
            return Map.of("committed", committed, "read", read(clients, topic, "read_committed"));
        }
    }

    /** What the admin client tells of a transaction that is open, and of it when it is over. */
    static Object described(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        Map<String, Object> seen = new HashMap<>();
        try (Admin admin = clients.admin(); Producer<String, String> producer = clients.transactionalProducer(topic)) {
            clients.createTopic(admin, topic, PARTITIONS);
            producer.initTransactions();
            seen.put("state_before", describe(admin, topic).state().toString());
            write(producer, topic, "open");
            producer.flush();
            TransactionDescription open = describe(admin, topic);
            seen.put("state", open.state().toString());
            seen.put("partitions", open.topicPartitions().stream().map(TopicPartition::toString).sorted().toList());
            seen.put("timeout_ms", open.transactionTimeoutMs());
            seen.put("has_start", open.transactionStartTimeMs().isPresent());
            ListTransactionsOptions ofProducer = new ListTransactionsOptions().filterProducerIds(Set.of(open.producerId()));
            seen.put("listed", listed(admin, ofProducer));
            seen.put("listed_long_running", listed(admin, ofProducer.filterOnDuration(3_600_000)));
            TopicPartition first = new TopicPartition(topic, 0);
            ProducerState state = admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers().get(0);
            seen.put("is_same_producer", state.producerId() == open.producerId() && state.producerEpoch() == open.producerEpoch());
            seen.put("open_from", state.currentTransactionStartOffset().getAsLong());
            producer.commitTransaction();
            awaitState(admin, topic, "CompleteCommit");
        }
        return seen;
    }

    private static void write(Producer<String, String> producer, String topic, String value) {
        producer.beginTransaction();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            producer.send(new ProducerRecord<>(topic, partition, null, value));
        }
    }

    private static void fill(Clients clients, String topic, int records) {
        try (Producer<String, String> producer = clients.producer(Map.of())) {
            for (int i = 0; i < records; i++) {
                producer.send(new ProducerRecord<>(topic, "key-" + i, "value-" + i));
            }
        }
    }

    /** All values up to the end that this isolation level sees, in the order of partitions. */
    private static List<String> read(Clients clients, String topic, String isolation) throws Exception {
        List<String> values = new ArrayList<>();
        try (Consumer<String, String> consumer = clients.consumer(Map.of("isolation.level", isolation))) {
            for (TopicPartition partition : RoundTrips.partitions(topic, PARTITIONS)) {
                consumer.assign(List.of(partition));
                long end = consumer.endOffsets(List.of(partition)).get(partition);
                Clients.until("the consumer reaches " + end, () -> {
                    for (ConsumerRecord<String, String> each : consumer.poll(Clients.POLL)) {
                        values.add(each.value());
                    }
                    return consumer.position(partition) >= end;
                });
            }
        }
        return values;
    }

    private static long endOffset(Admin admin, String topic, IsolationLevel isolation) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(first, OffsetSpec.latest()), new ListOffsetsOptions(isolation))
            .partitionResult(first).get().offset();
    }

    private static long place(Admin admin, String group, TopicPartition partition) throws Exception {
        OffsetAndMetadata committed =
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition);
        return committed == null ? 0 : committed.offset();
    }

    private static TransactionDescription describe(Admin admin, String transactionalId) throws Exception {
        return admin.describeTransactions(List.of(transactionalId)).all().get().get(transactionalId);
    }

    private static void awaitState(Admin admin, String transactionalId, String state) throws Exception {
        Clients.until(transactionalId + " is in " + state,
            () -> describe(admin, transactionalId).state().toString().equals(state));
    }

    private static List<String> listed(Admin admin, ListTransactionsOptions options) throws Exception {
        return admin.listTransactions(options).all().get().stream().map(TransactionListing::transactionalId).toList();
    }
}
