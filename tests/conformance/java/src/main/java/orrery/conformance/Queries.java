package orrery.conformance;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CompositePath;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.util.CosmosPagedIterable;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * The queries of queries.json, asked through the Java SDK over a container of several ranges. The SDK fetches a plan for
 * every query, asks every range and merges; the rows must be those that the file says, in pages of every size and
 * resumed from continuations.
 *
 * <p>What the SDK itself cannot do is refused where it says so, and left out where it gives other rows:
 * see {@link #isRefused}, {@link #isMerged} and {@link #isResumed}.
 */
final class Queries {
    private final JsonNode script;
    private CosmosContainer container;

    Queries(String path) {
        try {
            script = new ObjectMapper().readTree(Files.readString(Path.of(path)));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    Iterable<JsonNode> all() {
        return script.get("queries");
    }

    /** Makes the container and fills it. */
    void fill(CosmosDatabase database) {
        List<List<CompositePath>> indexes = new ArrayList<>();
        for (JsonNode index : script.at("/container/indexingPolicy/compositeIndexes")) {
            List<CompositePath> paths = new ArrayList<>();
            for (JsonNode each : index) {
                boolean ascending = each.get("order").asText().equals("ascending");
                paths.add(new CompositePath()
                    .setPath(each.get("path").asText())
                    .setOrder(ascending ? CompositePathSortOrder.ASCENDING : CompositePathSortOrder.DESCENDING));
            }
            indexes.add(paths);
        }
        String id = script.at("/container/id").asText();
        String keyPath = script.at("/container/partitionKey/paths/0").asText();
        CosmosContainerProperties properties = new CosmosContainerProperties(id, keyPath);
        properties.setIndexingPolicy(new IndexingPolicy().setCompositeIndexes(indexes));
        int throughput = script.get("throughput").asInt();
        database.createContainer(properties, ThroughputProperties.createManualThroughput(throughput));
        container = database.getContainer(id);
        for (JsonNode document : script.get("documents")) {
            container.createItem(document, new PartitionKey(document.get("pk").asText()), null);
        }
        int ranges = container.getFeedRanges().size();
        if (ranges < 3) {
            throw new AssertionError("only " + ranges + " ranges");
        }
    }

    /** Asks one query in all ways. */
    void ask(JsonNode query) {
        if (isRefused(query)) {
            refused(400, () -> rows(query, 4));
            return;
        }
        if (!isMerged(query)) {
            return;
        }
        check("whole", query, whole(query));
        for (int size : new int[] {1, 4}) {
            check("in pages of " + size, query, rows(query, size));
        }
        if (isResumed(query)) {
            check("resumed", query, resumed(query, 3));
        }
        Set<String> needs = needs(query);
        if (needs.contains("distinct") && !needs.contains("order")) {
            refused(400, () -> resumed(query, 1));
        }
    }

    /** Whether the server refuses the query, by itself or because the SDK could not merge it. */
    private static boolean isRefused(JsonNode query) {
        return query.has("status") || needs(query).contains("countif");
    }

    /**
     * Whether the SDK merges the query right. It answers with 0, null or an empty object where an aggregate is
     * undefined, loses a group key that is null, takes a row that is an array for its elements, and applies TOP to every
     * range before it removes duplicates.
     */
    private static boolean isMerged(JsonNode query) {
        Set<String> needs = needs(query);
        boolean isTopOfDistinct = needs.containsAll(Set.of("distinct", "top"));
        return !isTopOfDistinct && !needs.removeAll(Set.of("undefined", "nulls", "arrays"));
    }

    /**
     * Whether the SDK can go on from a continuation. It has none for groups; with duplicates removed, and among the
     * joined rows of a document, it forgets where it was; it writes arrays and objects into conditions, which cannot
     * compare them; and when all rows were read before LIMIT is reached it starts over.
     */
    private static boolean isResumed(JsonNode query) {
        return !needs(query).removeAll(Set.of("group", "distinct", "joined", "structured", "short"));
    }

    private static Set<String> needs(JsonNode query) {
        Set<String> needs = new TreeSet<>();
        query.path("needs").forEach(each -> needs.add(each.asText()));
        return needs;
    }

    private CosmosPagedIterable<JsonNode> asked(JsonNode query) {
        List<SqlParameter> parameters = new ArrayList<>();
        for (JsonNode each : query.path("parameters")) {
            parameters.add(new SqlParameter(each.get("name").asText(), each.get("value")));
        }
        SqlQuerySpec text = new SqlQuerySpec(query.get("query").asText(), parameters);
        return container.queryItems(text, new CosmosQueryRequestOptions(), JsonNode.class);
    }

    private List<JsonNode> whole(JsonNode query) {
        List<JsonNode> rows = new ArrayList<>();
        asked(query).forEach(rows::add);
        return rows;
    }

    private List<JsonNode> rows(JsonNode query, int size) {
        List<JsonNode> rows = new ArrayList<>();
        for (FeedResponse<JsonNode> page : asked(query).iterableByPage(size)) {
            if (page.getResults().size() > size) {
                throw new AssertionError("the page has " + page.getResults().size() + " rows");
            }
            rows.addAll(page.getResults());
        }
        return rows;
    }

    /** All rows, with a new request after every page. */
    private List<JsonNode> resumed(JsonNode query, int size) {
        List<JsonNode> rows = new ArrayList<>();
        String continuation = null;
        do {
            Iterator<FeedResponse<JsonNode>> pages = asked(query).iterableByPage(continuation, size).iterator();
            if (!pages.hasNext()) {
                break;
            }
            FeedResponse<JsonNode> page = pages.next();
            rows.addAll(page.getResults());
            continuation = page.getContinuationToken();
        } while (continuation != null && rows.size() < 1000);
        return rows;
    }

    private static void check(String way, JsonNode query, List<JsonNode> rows) {
        if (!query.has("rows")) {
            Scenario.same(way + ": rows", rows.size(), query.get("count").asInt());
            return;
        }
        List<String> actual = new ArrayList<>();
        rows.forEach(row -> actual.add(canonical(row)));
        List<String> expected = new ArrayList<>();
        query.get("rows").forEach(row -> expected.add(canonical(row)));
        if (!query.path("ordered").asBoolean()) {
            actual.sort(null);
            expected.sort(null);
        }
        Scenario.same(way, actual, expected);
    }

    /** A text that is the same for equal values: members in one order, numbers in one form. */
    private static String canonical(JsonNode value) {
        if (value.isNumber()) {
            return Double.toString(value.doubleValue());
        }
        if (value.isObject()) {
            TreeMap<String, String> members = new TreeMap<>();
            value.fields().forEachRemaining(member -> members.put(member.getKey(), canonical(member.getValue())));
            return members.toString();
        }
        if (value.isArray()) {
            List<String> elements = new ArrayList<>();
            value.forEach(element -> elements.add(canonical(element)));
            return elements.toString();
        }
        return value.toString();
    }

    private static void refused(int status, Runnable call) {
        try {
            call.run();
        } catch (CosmosException error) {
            Scenario.same("status", error.getStatusCode(), status);
            return;
        }
        throw new AssertionError("expected status " + status + ", but the call succeeded");
    }
}
