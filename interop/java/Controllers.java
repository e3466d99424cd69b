package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** The admin client on the controllers' own listeners, without a broker in between (KIP-919). */
final class Controllers {
    private Controllers() {
    }

    /** What it may ask of controllers, which is the quorum, the cluster and settings, and what it refuses to ask. */
    static Object administer(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("topic").asText();
        Map<String, Object> seen = new HashMap<>();
        Map<String, Object> settings = Map.of("bootstrap.controllers", arguments.get("controllers").asText());
        try (Admin brokers = clients.admin(); Admin controllers = Admin.create(settings)) {
            clients.createTopic(brokers, topic, 1);
            QuorumInfo quorum = controllers.describeMetadataQuorum().quorumInfo().get();
            seen.put("voters", new TreeSet<>(quorum.voters().stream().map(QuorumInfo.ReplicaState::replicaId).toList()));
            seen.put("leader_is_same", quorum.leaderId() == brokers.describeMetadataQuorum().quorumInfo().get().leaderId());
            seen.put("nodes", new TreeSet<>(controllers.describeCluster().nodes().get().stream().map(Node::id).toList()));
            seen.put("cluster_is_same",
                controllers.describeCluster().clusterId().get().equals(brokers.describeCluster().clusterId().get()));
            seen.put("features", new TreeSet<>(controllers.describeFeatures().featureMetadata().get().finalizedFeatures().keySet())
                .equals(new TreeSet<>(brokers.describeFeatures().featureMetadata().get().finalizedFeatures().keySet())));
            ConfigResource ofTopic = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            alter(controllers, ofTopic, "retention.ms", "3600000");
            Clients.until("the brokers know of the change", () -> retention(brokers, ofTopic).equals("3600000"));
            Clients.until("the controllers tell of the change", () -> retention(controllers, ofTopic).equals("3600000"));
            seen.put("refused_setting", Clients.refusal(() -> {
                alter(controllers, ofTopic, "retention.ms", "soon");
                return null;
            }));
            Set<TopicPartition> partition = Set.of(new TopicPartition(topic, 0));
            seen.put("elected", Clients.refusal(() -> controllers.electLeaders(ElectionType.PREFERRED, partition).all().get()));
            NewTopic another = new NewTopic(topic + "-another", Optional.of(1), Optional.empty());
            seen.put("created", Clients.refusal(() -> controllers.createTopics(List.of(another)).all().get()));
            seen.put("described_topic", Clients.refusal(() -> controllers.describeTopics(List.of(topic)).allTopicNames().get()));
            seen.put("unregistered", Clients.refusal(() -> controllers.unregisterBroker(999).all().get()));
        }
        return seen;
    }

    private static void alter(Admin admin, ConfigResource resource, String name, String value) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    private static String retention(Admin admin, ConfigResource topic) throws Exception {
        return admin.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms").value();
    }
}
