package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Scenarios of the Java client. A line of JSON on standard input names one and its arguments; a line of JSON on
 * standard output tells what it found out, or why it failed. The only argument is the bootstrap address.
 */
public final class Main {
    interface Scenario {
        Object run(Clients clients, JsonNode arguments) throws Exception;
    }

    private static final Map<String, Scenario> SCENARIOS = Map.ofEntries(
        Map.entry("round-trip", RoundTrips::recordsOfOneCodec),
        Map.entry("topic", Topics::lifeOfATopic),
        Map.entry("configs", Topics::configs),
        Map.entry("controllers", Controllers::administer),
        Map.entry("assignment", Groups::assignment),
        Map.entry("pattern", Groups::pattern),
        Map.entry("server-side-pattern", Groups::serverSidePattern),
        Map.entry("bad-pattern", Groups::badPattern),
        Map.entry("static-member", Groups::staticMember),
        Map.entry("duplicate-instance", Groups::duplicateInstance),
        Map.entry("commit-and-abort", Transactions::commitAndAbort),
        Map.entry("offsets-in-transactions", Transactions::offsetsInTransactions),
        Map.entry("stale-generation", Transactions::staleGeneration),
        Map.entry("zombie", Transactions::zombie),
        Map.entry("fenced-by-admin", Transactions::fencedByAdmin),
        Map.entry("timed-out", Transactions::timedOut),
        Map.entry("described", Transactions::described)
    );

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        Clients clients = new Clients(arguments[0]);
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(json.writeValueAsString(answer(clients, json.readTree(line))));
        }
    }

    private static Map<String, Object> answer(Clients clients, JsonNode request) {
        try {
            Scenario scenario = SCENARIOS.get(request.get("scenario").asText());
            return Map.of("result", scenario.run(clients, request));
        } catch (Exception | AssertionError failure) {
            StringWriter trace = new StringWriter();
            failure.printStackTrace(new PrintWriter(trace));
            return Map.of("error", trace.toString());
        }
    }
}
