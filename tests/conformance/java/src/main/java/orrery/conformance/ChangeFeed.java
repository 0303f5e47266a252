package orrery.conformance;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncDatabase;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;

/**
 * The change feed through the Java SDK: asked for by hand in both modes, and by change feed processors that share the
 * ranges of a container between them and take over from each other.
 */
final class ChangeFeed {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration PATIENCE = Duration.ofSeconds(90);

    private final CosmosDatabase database;
    private final CosmosAsyncDatabase asyncDatabase;
    private final CosmosContainer container;

    /** Makes a container of two ranges. */
    ChangeFeed(CosmosDatabase database, CosmosAsyncDatabase asyncDatabase) {
        this.database = database;
        this.asyncDatabase = asyncDatabase;
        CosmosContainerProperties properties = new CosmosContainerProperties("changes", "/pk");
        database.createContainer(properties, ThroughputProperties.createManualThroughput(20_000));
        container = database.getContainer("changes");
        for (int n = 0; n < 12; n++) {
            write(container, "" + n, "p" + n % 4, 0);
        }
        write(container, "0", "p0", 1);
        container.deleteItem("4", new PartitionKey("p0"), new CosmosItemRequestOptions());
    }

    /** Everything, one partition, and what comes after a continuation. */
    void isReadByHand() {
        CosmosChangeFeedRequestOptions everything =
            CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(FeedRange.forFullRange()).setMaxItemCount(3);
        Pages all = read(container, everything);
        Scenario.same("ids", new TreeSet<>(all.ids()), Set.of("0", "1", "2", "3", "5", "6", "7", "8", "9", "10", "11"));
        Scenario.same("number of ids", all.ids().size(), 11);
        FeedRange partition = FeedRange.forLogicalPartition(new PartitionKey("p0"));
        Pages one = read(container, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(partition));
        Scenario.same("ids of a partition", one.ids(), List.of("8", "0"));

        write(container, "new", "p1", 0);
        Pages rest = read(
            container, CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(all.continuation));
        Scenario.same("ids after a continuation", rest.ids(), List.of("new"));
        int inRanges = 0;
        for (FeedRange range : container.getFeedRanges()) {
            inRanges += read(container, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range)).ids().size();
        }
        Scenario.same("ids in the ranges", inRanges, 12);
    }

    void isReadFromATime() throws InterruptedException {
        Thread.sleep(1_100);
        Instant time = Instant.now();
        Thread.sleep(1_100);
        write(container, "late", "p2", 0);
        Pages late = read(
            container,
            CosmosChangeFeedRequestOptions.createForProcessingFromPointInTime(time, FeedRange.forFullRange()));
        Scenario.same("ids", late.ids(), List.of("late"));
    }

    /** All versions and deletes, by hand. */
    void hasAllVersions() {
        CosmosContainer log = log("versions");
        Pages now = read(
            log,
            CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()).allVersionsAndDeletes());
        write(log, "a", "p", 1);
        write(log, "a", "p", 2);
        log.deleteItem("a", new PartitionKey("p"), new CosmosItemRequestOptions());
        Pages told = read(
            log,
            CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(now.continuation).allVersionsAndDeletes());
        List<JsonNode> changes = told.documents;
        Scenario.same("operations", operations(changes), List.of("create", "replace", "delete"));
        Scenario.same("previous of the replace", changes.get(1).get("previous"), null);
        Scenario.same("previous of the delete", changes.get(2).get("previous"), changes.get(1).get("current"));
        Scenario.same("current of the delete", changes.get(2).get("current").size(), 0);
        Scenario.same(
            "lsn of the previous",
            changes.get(2).at("/metadata/previousImageLSN"), changes.get(1).at("/metadata/lsn"));
    }

    /** Two processors share the ranges; when one stops, the other takes over where it was. */
    void isProcessedByTwoWorkers() throws InterruptedException {
        database.createContainer(new CosmosContainerProperties("leases", "/id"));
        Set<String> first = new ConcurrentSkipListSet<>();
        Set<String> second = new ConcurrentSkipListSet<>();
        ChangeFeedProcessor one = processor("one", first);
        ChangeFeedProcessor other = processor("other", second);
        one.start().block();
        await("the first worker sees everything", () -> first.size() == 13);
        other.start().block();
        await("each worker has a range", () -> owners().equals(List.of("one", "other")));
        for (int n = 0; n < 8; n++) {
            write(container, "shared" + n, "p" + n % 4, 0);
        }
        await("both workers together see the rest", () -> count("shared", first, second) == 8);
        one.stop().block();
        await("the second worker has both ranges", () -> owners().equals(List.of("other", "other")));
        for (int n = 0; n < 8; n++) {
            write(container, "alone" + n, "p" + n % 4, 0);
        }
        await("the second worker sees all that comes", () -> count("alone", second) == 8);
        other.stop().block();
        Scenario.same("seen by the first after it stopped", count("alone", first), 0L);
    }

    /** A processor of all versions. */
    void isProcessedInAllVersions() throws InterruptedException {
        CosmosContainer log = log("processed");
        database.createContainer(new CosmosContainerProperties("leases-of-versions", "/id"));
        List<ChangeFeedProcessorItem> seen = new CopyOnWriteArrayList<>();
        ChangeFeedProcessor worker = new ChangeFeedProcessorBuilder()
            .hostName("worker")
            .feedContainer(asyncDatabase.getContainer("processed"))
            .leaseContainer(asyncDatabase.getContainer("leases-of-versions"))
            .options(quick())
            .handleAllVersionsAndDeletesChanges((List<ChangeFeedProcessorItem> changes) -> seen.addAll(changes))
            .buildChangeFeedProcessor();
        worker.start().block();
        // It starts with what comes after its first look, so there has to be something until it has looked.
        int tries = 0;
        while (seen.isEmpty()) {
            write(log, "try" + tries++, "p", 0);
            Thread.sleep(200);
        }
        write(log, "a", "p", 1);
        write(log, "a", "p", 2);
        log.deleteItem("a", new PartitionKey("p"), new CosmosItemRequestOptions());
        await("the delete is seen", () -> seen.stream().anyMatch(change -> isOperation(change, "delete")));
        worker.stop().block();
        ChangeFeedProcessorItem last = seen.get(seen.size() - 1);
        Scenario.same("deleted", last.getPrevious().get("n").asInt(), 2);
        Scenario.same("expired", last.getChangeFeedMetaData().isTimeToLiveExpired(), false);
    }

    private ChangeFeedProcessor processor(String host, Set<String> seen) {
        return new ChangeFeedProcessorBuilder()
            .hostName(host)
            .feedContainer(asyncDatabase.getContainer("changes"))
            .leaseContainer(asyncDatabase.getContainer("leases"))
            .options(quick().setStartFromBeginning(true))
            .handleChanges((List<JsonNode> changes) -> changes.forEach(change -> seen.add(change.get("id").asText())))
            .buildChangeFeedProcessor();
    }

    /** Waits as little as the processor allows. */
    private static ChangeFeedProcessorOptions quick() {
        return new ChangeFeedProcessorOptions()
            .setFeedPollDelay(Duration.ofMillis(200))
            .setLeaseAcquireInterval(Duration.ofSeconds(1))
            .setLeaseRenewInterval(Duration.ofSeconds(2))
            .setLeaseExpirationInterval(Duration.ofSeconds(6));
    }

    /** Who has the leases, in order of their names. */
    private List<String> owners() {
        return database.getContainer("leases")
            .queryItems("SELECT * FROM c WHERE IS_DEFINED(c.LeaseToken)", new CosmosQueryRequestOptions(), JsonNode.class)
            .stream()
            .map(lease -> lease.path("Owner").asText())
            .sorted()
            .collect(Collectors.toList());
    }

    private CosmosContainer log(String id) {
        CosmosContainerProperties properties = new CosmosContainerProperties(id, "/pk");
        properties.setChangeFeedPolicy(ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(5)));
        database.createContainer(properties);
        return database.getContainer(id);
    }

    private static void write(CosmosContainer container, String id, String key, int n) {
        ObjectNode document = JSON.createObjectNode().put("id", id).put("pk", key).put("n", n);
        container.upsertItem(document, new PartitionKey(key), new CosmosItemRequestOptions());
    }

    private static List<String> operations(List<JsonNode> changes) {
        return changes.stream().map(change -> change.at("/metadata/operationType").asText()).collect(Collectors.toList());
    }

    private static boolean isOperation(ChangeFeedProcessorItem change, String operation) {
        return change.getChangeFeedMetaData().getOperationType().toString().equalsIgnoreCase(operation);
    }

    @SafeVarargs
    private static long count(String prefix, Set<String>... seen) {
        Set<String> all = new TreeSet<>();
        for (Set<String> some : seen) {
            all.addAll(some);
        }
        return all.stream().filter(id -> id.startsWith(prefix)).count();
    }

    private static void await(String what, BooleanSupplier isTrue) throws InterruptedException {
        Instant end = Instant.now().plus(PATIENCE);
        while (!isTrue.getAsBoolean()) {
            if (Instant.now().isAfter(end)) {
                throw new AssertionError("in vain: " + what);
            }
            Thread.sleep(100);
        }
    }

    /** What a feed gave until there was nothing more. */
    private static final class Pages {
        final List<JsonNode> documents = new ArrayList<>();
        String continuation;

        List<String> ids() {
            return documents.stream().map(document -> document.get("id").asText()).collect(Collectors.toList());
        }
    }

    private static Pages read(CosmosContainer container, CosmosChangeFeedRequestOptions options) {
        Pages pages = new Pages();
        Iterator<FeedResponse<JsonNode>> feed =
            container.queryChangeFeed(options, JsonNode.class).iterableByPage().iterator();
        while (feed.hasNext()) {
            FeedResponse<JsonNode> page = feed.next();
            pages.documents.addAll(page.getResults());
            pages.continuation = page.getContinuationToken();
        }
        return pages;
    }
}
