// Answers on standard output, line by line, what Apache Kafka's own classes make of the questions on standard input.
// Questions and answers are JSON; topics are known by their ids in text form.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class GroupOracle {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    static Object answer(JsonNode question) {
        return switch (question.get("ask").asText()) {
            case "assign" -> assign(question);
            case "topic hash" -> Utils.computeTopicHash(question.get("name").asText(), new OneTopic(question));
            case "group hash" -> Utils.computeGroupHash(longs(question.get("topics")));
            case "regex" -> regex(question);
            default -> throw new IllegalArgumentException(question.toString());
        };
    }

    static Object assign(JsonNode question) {
        ConsumerGroupPartitionAssignor assignor =
            question.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new LinkedHashSet<>();
        for (JsonNode member : question.get("members")) {
            String id = member.get("id").asText();
            Set<Uuid> topics = new LinkedHashSet<>();
            member.get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> assigned = new LinkedHashMap<>();
            member.get("assigned").fields().forEachRemaining(entry -> {
                Uuid topic = Uuid.fromString(entry.getKey());
                Set<Integer> partitions = new TreeSet<>();
                entry.getValue().forEach(partition -> partitions.add(partition.asInt()));
                assigned.put(topic, partitions);
                partitions.forEach(each -> owners.computeIfAbsent(topic, __ -> new HashMap<>()).put(each, id));
            });
            Optional<String> instance = Optional.ofNullable(member.get("instance").textValue());
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(Collections.unmodifiableMap(assigned))));
        }
        var type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupAssignment target = assignor.assign(new GroupSpecImpl(members, type, owners), new Counts(question));
        Map<String, Object> answer = new TreeMap<>();
        target.members().forEach((id, member) -> {
            Map<String, Set<Integer>> partitions = new TreeMap<>();
            member.partitions().forEach((topic, each) -> partitions.put(topic.toString(), new TreeSet<>(each)));
            answer.put(id, partitions);
        });
        return answer;
    }

    static Object regex(JsonNode question) {
        try {
            Pattern pattern = Pattern.compile(question.get("regex").asText());
            List<String> matching = new ArrayList<>();
            question.get("names").forEach(name -> {
                if (pattern.matcher(name.asText()).matches()) matching.add(name.asText());
            });
            return matching;
        } catch (PatternSyntaxException mistake) {
            return mistake.getDescription();
        }
    }

    static Map<String, Long> longs(JsonNode node) {
        Map<String, Long> values = new HashMap<>();
        node.fields().forEachRemaining(entry -> values.put(entry.getKey(), entry.getValue().asLong()));
        return values;
    }

    record Counts(JsonNode question) implements SubscribedTopicDescriber {
        public int numPartitions(Uuid topic) {
            return question.get("topics").get(topic.toString()).asInt();
        }

        public Set<String> racksForPartition(Uuid topic, int partition) {
            return Set.of();
        }
    }

    record OneTopic(JsonNode question) implements CoordinatorMetadataImage, CoordinatorMetadataImage.TopicMetadata {
        public String name() {
            return question.get("name").asText();
        }

        public Uuid id() {
            return Uuid.fromString(question.get("id").asText());
        }

        public int partitionCount() {
            return question.get("racks").size();
        }

        public List<String> partitionRacks(int partition) {
            List<String> racks = new ArrayList<>();
            question.get("racks").get(partition).forEach(rack -> racks.add(rack.asText()));
            return racks;
        }

        public Optional<CoordinatorMetadataImage.TopicMetadata> topicMetadata(String name) {
            return Optional.of(this);
        }

        public Optional<CoordinatorMetadataImage.TopicMetadata> topicMetadata(Uuid id) {
            return Optional.of(this);
        }

        public Set<Uuid> topicIds() {
            return Set.of(id());
        }

        public Set<String> topicNames() {
            return Set.of(name());
        }

        public CoordinatorMetadataDelta emptyDelta() {
            throw new UnsupportedOperationException();
        }

        public long version() {
            return 0;
        }

        public boolean isEmpty() {
            return false;
        }
    }
}
