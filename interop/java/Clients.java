package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Clients of one cluster with the settings that every scenario shares, and waiting for what comes about in time. */
record Clients(String bootstrap) {
    static final Duration DEADLINE = Duration.ofSeconds(60);
    static final Duration POLL = Duration.ofMillis(50);

    Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    Producer<String, String> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    Producer<String, String> transactionalProducer(String transactionalId) {
        return producer(Map.of("transactional.id", transactionalId));
    }

    Consumer<String, String> consumer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>();
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", false);
        all.putAll(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /** The settings that a scenario's arguments give to the members of its group, and some more. */
    static Map<String, Object> groupSettings(JsonNode arguments, Map<String, Object> extra) {
        Map<String, Object> settings = new HashMap<>(extra);
        settings.put("group.id", arguments.get("group").asText());
        arguments.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    /** Creates a topic with the replication factor that the brokers have for it, and waits until they tell of it. */
    void createTopic(Admin admin, String topic, int partitions) throws Exception {
        NewTopic created = new NewTopic(topic, Optional.of(partitions), Optional.empty());
        admin.createTopics(List.of(created)).all().get();
        until("topic " + topic + " is there", () -> isThere(admin, List.of(topic)));
    }

    private static boolean isThere(Admin admin, Collection<String> topics) throws Exception {
        try {
            admin.describeTopics(topics).allTopicNames().get();
            return true;
        } catch (ExecutionException failure) {
            if (failure.getCause() instanceof UnknownTopicOrPartitionException) {
                return false;
            }
            throw failure;
        }
    }

    /** Returns when the condition holds, and fails with what was waited for when the deadline passes first. */
    static void until(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("in " + DEADLINE.toSeconds() + " s it did not come about that " + what);
            }
            Thread.sleep(20);
        }
    }

    /** The name of the exception that an action ends with, or "none". */
    static String refusal(Callable<?> action) throws Exception {
        try {
            action.call();
            return "none";
        } catch (ExecutionException failure) {
            return failure.getCause().getClass().getSimpleName();
        } catch (RuntimeException failure) {
            return failure.getClass().getSimpleName();
        }
    }
}
