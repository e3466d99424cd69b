package interop;

import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words exactly once. Arguments: bootstrap address, application id, input topic, output topic, state folder.
 * Without a cache every change of a count is written, so that one that was lost or made twice is seen.
 */
public final class WordCount {
    private WordCount() {
    }

    public static void main(String[] arguments) throws InterruptedException {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[2])
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split("\\W+")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.Long()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings(arguments))) {
            CountDownLatch stopped = new CountDownLatch(1);
            streams.setStateListener((now, before) -> {
                System.out.println(now);
                if (now == KafkaStreams.State.ERROR) {
                    stopped.countDown();
                }
            });
            Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
            streams.start();
            stopped.await();
        }
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        // A member that was killed is missed soon, so that its successor need not wait for long.
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 3_000);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
        return settings;
    }
}
