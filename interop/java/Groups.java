package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Consumer groups with whatever protocol and assignor the arguments' settings name. */
final class Groups {
    private static final int LARGE_PARTITIONS = 6;
    private static final int SMALL_PARTITIONS = 3;
    private static final int RECORDS_PER_PARTITION = 5;

    private Groups() {
    }

    /** Three members share two topics, one leaves, and the other two share them: everything is read once. */
    static Object assignment(Clients clients, JsonNode arguments) throws Exception {
        String group = arguments.get("group").asText();
        List<String> topics = List.of(group + "-large", group + "-small");
        Map<String, Object> seen = new HashMap<>();
        List<Member> members = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            clients.createTopic(admin, topics.get(0), LARGE_PARTITIONS);
            clients.createTopic(admin, topics.get(1), SMALL_PARTITIONS);
            for (int i = 0; i < 3; i++) {
                members.add(subscribed(clients, arguments, Map.of(), topics));
            }
            settle(members, LARGE_PARTITIONS + SMALL_PARTITIONS);
            seen.put("joined", owned(members));
            seen.put("described", described(admin, group));
            fill(clients, topics);
            awaitRecords(members, RECORDS_PER_PARTITION);
            members.forEach(Member::takeRevoked);
            Member leaver = members.get(0);
            leaver.close();
            List<Member> remaining = members.subList(1, 3);
            settle(remaining, LARGE_PARTITIONS + SMALL_PARTITIONS);
            seen.put("remaining", owned(remaining));
            seen.put("revoked", remaining.stream().map(Member::takeRevoked).toList());
            fill(clients, topics);
            awaitRecords(members, 2 * RECORDS_PER_PARTITION);
            seen.put("received", members.stream().flatMap(each -> each.received().stream()).sorted().toList());
        } finally {
            closeAll(members);
        }
        return seen;
    }

    /** A subscription to a pattern that the client resolves takes up a topic that is made later. */
    static Object pattern(Clients clients, JsonNode arguments) throws Exception {
        Pattern pattern = Pattern.compile(Pattern.quote(arguments.get("group").asText()) + "-(one|two)");
        Map<String, Object> extra = Map.of("metadata.max.age.ms", 500);
        return takesUpTopics(clients, arguments, () -> new Member(clients.consumer(Clients.groupSettings(arguments, extra)),
            (consumer, listener) -> consumer.subscribe(pattern, listener)));
    }

    /** The same with a pattern that the broker resolves, in RE2's syntax. */
    static Object serverSidePattern(Clients clients, JsonNode arguments) throws Exception {
        SubscriptionPattern pattern = new SubscriptionPattern(arguments.get("group").asText() + "-(one|two)");
        return takesUpTopics(clients, arguments, () -> new Member(clients.consumer(Clients.groupSettings(arguments, Map.of())),
            (consumer, listener) -> consumer.subscribe(pattern, listener)));
    }

    static Object badPattern(Clients clients, JsonNode arguments) throws Exception {
        SubscriptionPattern pattern = new SubscriptionPattern("(unclosed");
        try (Member member = new Member(clients.consumer(Clients.groupSettings(arguments, Map.of())),
            (consumer, listener) -> consumer.subscribe(pattern, listener))) {
            Clients.until("the pattern is refused", () -> !member.failure().equals("none"));
            return member.failure();
        }
    }

    /** A static member that comes back finds its partitions, and the other notices nothing. */
    static Object staticMember(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("group").asText() + "-static";
        List<Member> members = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            clients.createTopic(admin, topic, SMALL_PARTITIONS + 1);
            members.add(subscribed(clients, arguments, Map.of("group.instance.id", "first"), List.of(topic)));
            members.add(subscribed(clients, arguments, Map.of("group.instance.id", "second"), List.of(topic)));
            settle(members, SMALL_PARTITIONS + 1);
            List<Set<String>> before = owned(members);
            int generation = members.get(0).generation();
            members.get(0).takeRevoked();
            members.remove(1).close();
            members.add(subscribed(clients, arguments, Map.of("group.instance.id", "second"), List.of(topic)));
            settle(members, SMALL_PARTITIONS + 1);
            return Map.of("before", before, "after", owned(members),
                "generations", List.of(generation, members.get(0).generation()),
                "revoked", members.get(0).takeRevoked());
        } finally {
            closeAll(members);
        }
    }

    /** Two processes that claim to be the same static member: which of them is refused, and how. */
    static Object duplicateInstance(Clients clients, JsonNode arguments) throws Exception {
        String topic = arguments.get("group").asText() + "-duplicate";
        Map<String, Object> instance = Map.of("group.instance.id", "same");
        List<Member> members = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            clients.createTopic(admin, topic, 2);
            members.add(subscribed(clients, arguments, instance, List.of(topic)));
            settle(members, 2);
            members.add(subscribed(clients, arguments, instance, List.of(topic)));
            Clients.until("one of them is refused",
                () -> members.stream().anyMatch(each -> !each.failure().equals("none")));
            return Map.of("older", members.get(0).failure(), "newer", members.get(1).failure());
        } finally {
            closeAll(members);
        }
    }

    private interface Joining {
        Member join();
    }

    private static Object takesUpTopics(Clients clients, JsonNode arguments, Joining joining) throws Exception {
        String group = arguments.get("group").asText();
        try (Admin admin = clients.admin()) {
            clients.createTopic(admin, group + "-one", 2);
            clients.createTopic(admin, group + "-other", 2);
            try (Member member = joining.join()) {
                Clients.until("the first topic is owned", () -> member.owned().size() == 2);
                Set<String> before = member.owned();
                clients.createTopic(admin, group + "-two", 1);
                Clients.until("the second topic is owned", () -> member.owned().size() == 3);
                return Map.of("before", before, "after", member.owned());
            }
        }
    }

    private static Member subscribed(
        Clients clients, JsonNode arguments, Map<String, Object> extra, Collection<String> topics) {
        return new Member(clients.consumer(Clients.groupSettings(arguments, extra)),
            (consumer, listener) -> consumer.subscribe(topics, listener));
    }

    /** Waits until each partition has one owner, and no member has more than one partition more than another. */
    private static void settle(List<Member> members, int partitions) throws Exception {
        Clients.until("the members share " + partitions + " partitions", () -> {
            Set<String> all = new HashSet<>();
            int smallest = partitions;
            int largest = 0;
            int sum = 0;
            for (Set<String> owned : owned(members)) {
                all.addAll(owned);
                sum += owned.size();
                smallest = Math.min(smallest, owned.size());
                largest = Math.max(largest, owned.size());
            }
            return all.size() == partitions && sum == partitions && largest - smallest <= 1;
        });
    }

    private static List<Set<String>> owned(List<Member> members) {
        return members.stream().<Set<String>>map(each -> new TreeSet<>(each.owned())).toList();
    }

    private static Map<String, Object> described(Admin admin, String group) throws Exception {
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        return Map.of("assignor", found.partitionAssignor(), "state", found.groupState().name(), "type", found.type().name(),
            "members", found.members().size());
    }

    private static void fill(Clients clients, List<String> topics) {
        try (Producer<String, String> producer = clients.producer(Map.of())) {
            for (String topic : topics) {
                for (int i = 0; i < producer.partitionsFor(topic).size() * RECORDS_PER_PARTITION; i++) {
                    producer.send(new ProducerRecord<>(topic, i / RECORDS_PER_PARTITION, null, "value-" + i));
                }
            }
        }
    }

    private static void awaitRecords(List<Member> members, int perPartition) throws Exception {
        int records = perPartition * (LARGE_PARTITIONS + SMALL_PARTITIONS);
        Clients.until(records + " records were received",
            () -> members.stream().mapToInt(each -> each.received().size()).sum() >= records);
    }

    private static void closeAll(List<Member> members) {
        members.forEach(Member::close);
    }
}
