package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Topics as the admin client makes, sees, changes and deletes them. */
final class Topics {
    private Topics() {
    }

    static Object lifeOfATopic(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        Map<String, Object> seen = new HashMap<>();
        try (Admin admin = clients.admin()) {
            NewTopic created = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "86400000"));
            admin.createTopics(List.of(created)).all().get();
            seen.put("created_again", Clients.refusal(() -> admin.createTopics(List.of(created)).all().get()));
            TopicDescription described = describe(admin, topic);
            seen.put("listed", admin.listTopics().names().get().contains(topic));
            seen.put("partitions", described.partitions().size());
            seen.put("has_id", admin.listTopics().namesToListings().get().get(topic).topicId().equals(described.topicId()));
            seen.put("leader_is_replica", described.partitions().get(0).replicas().contains(described.partitions().get(0).leader()));
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            Clients.until("there is a third partition", () -> describe(admin, topic).partitions().size() == 3);
            fill(clients, topic, 10);
            seen.put("end_offset", offset(admin, topic, OffsetSpec.latest()));
            seen.put("start_offset", offset(admin, topic, OffsetSpec.earliest()));
            admin.deleteTopics(List.of(topic)).all().get();
            Clients.until("the topic is gone", () -> !admin.listTopics().names().get().contains(topic));
            seen.put("described_when_gone",
                Clients.refusal(() -> admin.describeTopics(List.of(topic)).allTopicNames().get()));
        }
        return seen;
    }

    static Object configs(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, Object> seen = new HashMap<>();
        try (Admin admin = clients.admin()) {
            clients.createTopic(admin, topic, 1);
            seen.put("before", entry(config(admin, resource), "retention.ms"));
            alter(admin, resource, "retention.ms", "3600000", AlterConfigOp.OpType.SET);
            alter(admin, resource, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
            Clients.until("the change is seen", () -> config(admin, resource).get("cleanup.policy").value().contains("compact"));
            seen.put("set", entry(config(admin, resource), "retention.ms"));
            seen.put("appended", entry(config(admin, resource), "cleanup.policy"));
            alter(admin, resource, "retention.ms", "", AlterConfigOp.OpType.DELETE);
            Clients.until("the default is back", () -> config(admin, resource).get("retention.ms").isDefault());
            seen.put("deleted", entry(config(admin, resource), "retention.ms"));
            seen.put("refused", Clients.refusal(() -> {
                alter(admin, resource, "retention.ms", "soon", AlterConfigOp.OpType.SET);
                return null;
            }));
            String broker = Integer.toString(admin.describeCluster().nodes().get().iterator().next().id());
            Config settings = config(admin, new ConfigResource(ConfigResource.Type.BROKER, broker));
            seen.put("broker_id", settings.get("node.id").value().equals(broker));
        }
        return seen;
    }

    private static TopicDescription describe(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private static void fill(Clients clients, String topic, int records) {
        try (Producer<String, String> producer = clients.producer(Map.of())) {
            for (int i = 0; i < records; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "value"));
            }
        }
    }

    private static long offset(Admin admin, String topic, OffsetSpec spec) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(first, spec)).partitionResult(first).get().offset();
    }

    private static Config config(Admin admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }

    private static List<String> entry(Config config, String name) {
        ConfigEntry entry = config.get(name);
        return List.of(entry.value(), entry.source().name());
    }

    private static void alter(Admin admin, ConfigResource resource, String name, String value, AlterConfigOp.OpType how)
        throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), how);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }
}
