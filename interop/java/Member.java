package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.function.BiConsumer;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/** A consumer that polls in a thread of its own, commits what it got, and tells what it owns. */
final class Member implements ConsumerRebalanceListener, AutoCloseable {
    private final Consumer<String, String> consumer;
    private final Thread thread;
    private final List<String> received = Collections.synchronizedList(new ArrayList<>());
    private final List<String> revoked = Collections.synchronizedList(new ArrayList<>());
    private volatile SortedSet<String> owned = new TreeSet<>();
    private volatile int generation = -1;
    private volatile RuntimeException failure;
    private volatile boolean leaves;

    /** Joins with a subscription, which is given the consumer and the listener that it must name. */
    Member(Consumer<String, String> consumer, BiConsumer<Consumer<String, String>, ConsumerRebalanceListener> subscribe) {
        this.consumer = consumer;
        subscribe.accept(consumer, this);
        thread = new Thread(this::pollUntilLeaving, "member");
        thread.setDaemon(true);
        thread.start();
    }

    SortedSet<String> owned() {
        return owned;
    }

    int generation() {
        return generation;
    }

    List<String> received() {
        return List.copyOf(received);
    }

    /** What it had to give up since the last call, by being asked or by losing it. */
    List<String> takeRevoked() {
        List<String> taken = List.copyOf(revoked);
        revoked.removeAll(taken);
        return taken;
    }

    /** The name of the exception that ended it, or "none". */
    String failure() {
        return failure == null ? "none" : failure.getClass().getSimpleName();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tellOwned();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (!leaves) {
            partitions.forEach(each -> revoked.add(each.toString()));
        }
    }

    @Override
    public void close() {
        leaves = true;
        consumer.wakeup();
        try {
            thread.join();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void pollUntilLeaving() {
        try (consumer) {
            while (!leaves) {
                takeRecords();
                tellOwned();
            }
        } catch (WakeupException left) {
            owned = new TreeSet<>();
        } catch (RuntimeException error) {
            failure = error;
        }
    }

    private void takeRecords() {
        ConsumerRecords<String, String> records = consumer.poll(Clients.POLL);
        for (ConsumerRecord<String, String> each : records) {
            received.add(each.topic() + "-" + each.partition() + "@" + each.offset());
        }
        if (!records.isEmpty()) {
            consumer.commitSync();
        }
    }

    private void tellOwned() {
        SortedSet<String> names = new TreeSet<>();
        consumer.assignment().forEach(each -> names.add(each.toString()));
        generation = consumer.groupMetadata().generationId();
        owned = names;
    }
}
