package orrery.conformance;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchOperationResult;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;

/**
 * One scenario over the Java SDK in gateway mode. The connection string comes from ORRERY_CONNECTION_STRING; the last
 * line printed is {@code N passed, M failed} and the exit code is 1 if M is not 0. The steps run in order and build on
 * each other.
 *
 * <p>The server's certificate is self-signed: the caller sets the system property
 * {@code COSMOS.EMULATOR_SERVER_CERTIFICATE_VALIDATION_DISABLED}, which works for local addresses only. Documents are
 * not read as feeds here, because this SDK reads them all with a query.
 */
public final class Scenario {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final CosmosClient client;
    private final CosmosAsyncClient asyncClient;
    private final String databaseId = "conformance-" + UUID.randomUUID();
    private CosmosDatabase database;
    private CosmosContainer orders;
    private ChangeFeed changeFeed;

    private Scenario(CosmosClient client, CosmosAsyncClient asyncClient) {
        this.client = client;
        this.asyncClient = asyncClient;
    }

    /** A step of the scenario; whatever it throws is its failure. */
    interface Step {
        void run() throws Exception;
    }

    /** Plays the scenario. */
    public static void main(String[] arguments) {
        String connectionString = System.getenv("ORRERY_CONNECTION_STRING");
        int passed = 0;
        int failed = 0;
        try (CosmosClient client = builder(connectionString).buildClient();
            CosmosAsyncClient asyncClient = builder(connectionString).buildAsyncClient()) {
            for (Map.Entry<String, Step> step : new Scenario(client, asyncClient).steps().entrySet()) {
                try {
                    step.getValue().run();
                    passed++;
                } catch (Throwable cause) {
                    failed++;
                    System.err.println("FAILED " + step.getKey() + ": " + cause);
                    cause.printStackTrace();
                }
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }

    /** The SDK takes endpoint and key apart from each other, and connects directly to partitions unless told not to. */
    private static CosmosClientBuilder builder(String connectionString) {
        Map<String, String> parts = new LinkedHashMap<>();
        for (String part : connectionString.split(";")) {
            int equals = part.indexOf('=');
            if (equals > 0) {
                parts.put(part.substring(0, equals), part.substring(equals + 1));
            }
        }
        return new CosmosClientBuilder()
            .endpoint(parts.get("AccountEndpoint"))
            .key(parts.get("AccountKey"))
            .gatewayMode()
            .consistencyLevel(ConsistencyLevel.SESSION)
            .contentResponseOnWriteEnabled(true);
    }

    private Map<String, Step> steps() {
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("database is created and read", this::databaseIsCreatedAndRead);
        steps.put("container is created and read", this::containerIsCreatedAndRead);
        steps.put("document round-trips", this::documentRoundTrips);
        steps.put("document is replaced", this::documentIsReplaced);
        steps.put("document is upserted", this::documentIsUpserted);
        steps.put("document is patched", this::documentIsPatched);
        steps.put("a write without body is answered without body", this::writeWithoutBody);
        steps.put("missing document is 404", this::missingDocumentIs404);
        steps.put("taken id is 409", this::takenIdIs409);
        steps.put("stale etag is 412", this::staleEtagIs412);
        steps.put("batch is applied whole", this::batchIsAppliedWhole);
        steps.put("failed batch leaves nothing", this::failedBatchLeavesNothing);
        steps.put("bulk operations are independent", this::bulkOperationsAreIndependent);
        steps.put("hierarchical key separates documents", this::hierarchicalKeySeparatesDocuments);
        steps.put("null and absent keys differ", this::nullAndAbsentKeysDiffer);
        steps.put("throughput is read and replaced", this::throughputIsReadAndReplaced);
        steps.put("containers are read in pages", this::containersAreReadInPages);
        String connectionString = System.getenv("ORRERY_CONNECTION_STRING");
        new Resources(client, () -> builder(connectionString), () -> database).addTo(steps);
        new Scripts(() -> database).addTo(steps);
        Queries queries = new Queries(System.getenv("ORRERY_CONFORMANCE_QUERIES"));
        steps.put("container with several ranges is filled", () -> queries.fill(database));
        queries.all().forEach(query -> steps.put("query: " + query.get("name").asText(), () -> queries.ask(query)));
        steps.put("change feed: container with several ranges is filled", this::changeFeedIsFilled);
        steps.put("change feed: is read by hand", () -> changeFeed.isReadByHand());
        steps.put("change feed: is read from a time", () -> changeFeed.isReadFromATime());
        steps.put("change feed: has all versions", () -> changeFeed.hasAllVersions());
        steps.put("change feed: is processed by two workers", () -> changeFeed.isProcessedByTwoWorkers());
        steps.put("change feed: is processed in all versions", () -> changeFeed.isProcessedInAllVersions());
        steps.put("database is deleted", this::databaseIsDeleted);
        return steps;
    }

    private void changeFeedIsFilled() {
        changeFeed = new ChangeFeed(database, asyncClient.getDatabase(databaseId));
    }

    private void databaseIsCreatedAndRead() {
        same("status", client.createDatabase(databaseId).getStatusCode(), 201);
        database = client.getDatabase(databaseId);
        same("id", database.read().getProperties().getId(), databaseId);
        refused(409, () -> client.createDatabase(databaseId));
    }

    private void containerIsCreatedAndRead() {
        CosmosContainerProperties properties = new CosmosContainerProperties("orders", "/customer");
        database.createContainer(properties, ThroughputProperties.createManualThroughput(400));
        orders = database.getContainer("orders");
        PartitionKeyDefinition definition = orders.read().getProperties().getPartitionKeyDefinition();
        same("paths", definition.getPaths(), List.of("/customer"));
        same("kind", definition.getKind(), PartitionKind.HASH);
    }

    private void documentRoundTrips() throws Exception {
        ObjectNode written = document(
            "{'id':'a','customer':'x','total':1.5,'lines':[{'sku':'s'},null,true,'日本 🎉'],"
                + "'empty':{},'none':null,'negative':-7,'large':9007199254740991}");
        ObjectNode created = orders.createItem(written, key("x"), null).getItem();
        ObjectNode read = read(orders, "a", key("x"));
        same("document answered and document read", created, read);
        written.fieldNames().forEachRemaining(name -> same(name, read.get(name), written.get(name)));
    }

    private void documentIsReplaced() throws Exception {
        ObjectNode before = read(orders, "a", key("x"));
        ObjectNode body = document("{'id':'a','customer':'x','total':2}");
        ObjectNode replaced = orders.replaceItem(body, "a", key("x"), null).getItem();
        same("total", replaced.get("total").asInt(), 2);
        same("has lines", replaced.has("lines"), false);
        same("_rid", replaced.get("_rid"), before.get("_rid"));
        same("etag is kept", replaced.get("_etag").equals(before.get("_etag")), false);
    }

    private void documentIsUpserted() throws Exception {
        CosmosItemResponse<ObjectNode> created = orders.upsertItem(document("{'id':'b','customer':'x','total':1}"));
        CosmosItemResponse<ObjectNode> replaced = orders.upsertItem(document("{'id':'b','customer':'x','total':5}"));
        same("first status", created.getStatusCode(), 201);
        same("second status", replaced.getStatusCode(), 200);
        same("total", replaced.getItem().get("total").asInt(), 5);
    }

    private void documentIsPatched() {
        CosmosPatchOperations operations = CosmosPatchOperations.create()
            .add("/tags", List.of("new"))
            .set("/note", "n")
            .increment("/total", 10)
            .move("/note", "/remark");
        ObjectNode patched = orders.patchItem("b", key("x"), operations, ObjectNode.class).getItem();
        same("total", patched.get("total").asInt(), 15);
        same("remark", patched.get("remark").asText(), "n");
        same("has note", patched.has("note"), false);

        CosmosPatchOperations reset = CosmosPatchOperations.create().set("/total", 0);
        CosmosPatchItemRequestOptions unmet = new CosmosPatchItemRequestOptions();
        unmet.setFilterPredicate("from c where c.total = 16");
        refused(412, () -> orders.patchItem("b", key("x"), reset, unmet, ObjectNode.class));
        CosmosPatchItemRequestOptions met = new CosmosPatchItemRequestOptions();
        met.setFilterPredicate("from c where c.total = 15");
        same("total", orders.patchItem("b", key("x"), reset, met, ObjectNode.class).getItem().get("total").asInt(), 0);
    }

    private void writeWithoutBody() throws Exception {
        CosmosItemRequestOptions options = new CosmosItemRequestOptions().setContentResponseOnWriteEnabled(false);
        CosmosItemResponse<ObjectNode> response =
            orders.replaceItem(document("{'id':'b','customer':'x'}"), "b", key("x"), options);
        same("body", response.getItem(), null);
        same("etag", response.getETag(), read(orders, "b", key("x")).get("_etag").asText());
    }

    private void missingDocumentIs404() {
        refused(404, () -> read(orders, "missing", key("x")));
        refused(404, () -> orders.deleteItem("a", key("another key"), null));
    }

    private void takenIdIs409() {
        refused(409, () -> orders.createItem(document("{'id':'a','customer':'x'}")));
    }

    private void staleEtagIs412() throws Exception {
        String etag = read(orders, "a", key("x")).get("_etag").asText();
        CosmosItemRequestOptions stale = new CosmosItemRequestOptions().setIfMatchETag(etag);
        ObjectNode body = document("{'id':'a','customer':'x','total':3}");
        orders.replaceItem(body, "a", key("x"), stale);
        refused(412, () -> orders.replaceItem(body, "a", key("x"), stale));
        refused(412, () -> orders.deleteItem("a", key("x"), stale));
    }

    private void batchIsAppliedWhole() throws Exception {
        CosmosBatch batch = CosmosBatch.createCosmosBatch(key("x"));
        batch.createItemOperation(document("{'id':'c','customer':'x','total':1}"));
        batch.upsertItemOperation(document("{'id':'d','customer':'x','total':1}"));
        batch.patchItemOperation("c", CosmosPatchOperations.create().increment("/total", 1));
        batch.readItemOperation("c");
        batch.replaceItemOperation("d", document("{'id':'d','customer':'x','total':9}"));
        batch.deleteItemOperation("b");
        CosmosBatchResponse response = orders.executeCosmosBatch(batch);
        same("statuses", statuses(response), List.of(201, 201, 200, 200, 200, 204));
        same("success", response.isSuccessStatusCode(), true);
        same("total seen inside the batch",
            response.getResults().get(3).getItem(ObjectNode.class).get("total").asInt(), 2);
        same("total", read(orders, "d", key("x")).get("total").asInt(), 9);
    }

    private void failedBatchLeavesNothing() throws Exception {
        CosmosBatch batch = CosmosBatch.createCosmosBatch(key("x"));
        batch.createItemOperation(document("{'id':'e','customer':'x'}"));
        batch.createItemOperation(document("{'id':'a','customer':'x'}"));
        batch.deleteItemOperation("d");
        CosmosBatchResponse response = orders.executeCosmosBatch(batch);
        same("statuses", statuses(response), List.of(424, 409, 424));
        same("status", response.getStatusCode(), 409);
        refused(404, () -> read(orders, "e", key("x")));
        same("total", read(orders, "d", key("x")).get("total").asInt(), 9);
    }

    private void bulkOperationsAreIndependent() throws Exception {
        List<Integer> statuses = StreamSupport.stream(orders.executeBulkOperations(List.of(
                CosmosBulkOperations.getCreateItemOperation(document("{'id':'1','customer':'y'}"), key("y")),
                CosmosBulkOperations.getCreateItemOperation(document("{'id':'a','customer':'x'}"), key("x")),
                CosmosBulkOperations.getUpsertItemOperation(document("{'id':'1','customer':'z'}"), key("z"))
            )).spliterator(), false)
            .map(result -> result.getResponse().getStatusCode())
            .sorted()
            .collect(Collectors.toList());
        same("statuses", statuses, List.of(201, 201, 409));
    }

    private void hierarchicalKeySeparatesDocuments() throws Exception {
        PartitionKeyDefinition definition = new PartitionKeyDefinition()
            .setPaths(List.of("/tenant", "/user", "/day"))
            .setKind(PartitionKind.MULTI_HASH)
            .setVersion(PartitionKeyDefinitionVersion.V2);
        database.createContainer(new CosmosContainerProperties("events", definition));
        CosmosContainer events = database.getContainer("events");
        for (int day : new int[] {1, 2}) {
            events.createItem(document("{'id':'e','tenant':'t','user':'u','day':" + day + "}"));
        }
        same("day", read(events, "e", event(2)).get("day").asInt(), 2);
        events.deleteItem("e", event(1), null);
        refused(404, () -> read(events, "e", event(1)));
        same("day", read(events, "e", event(2)).get("day").asInt(), 2);
    }

    private static PartitionKey event(int day) {
        return new PartitionKeyBuilder().add("t").add("u").add(day).build();
    }

    private void nullAndAbsentKeysDiffer() throws Exception {
        database.createContainer(new CosmosContainerProperties("loose", "/key"));
        CosmosContainer loose = database.getContainer("loose");
        Map<String, PartitionKey> keys = new LinkedHashMap<>();
        keys.put("{'id':'k','key':null,'is':'null'}", new PartitionKeyBuilder().addNullValue().build());
        keys.put("{'id':'k','is':'absent'}", PartitionKey.NONE);
        keys.put("{'id':'k','key':'','is':'empty'}", key(""));
        keys.put("{'id':'k','key':false,'is':'false'}", new PartitionKey(false));
        keys.put("{'id':'k','key':0,'is':'zero'}", new PartitionKey(0));
        for (Map.Entry<String, PartitionKey> each : keys.entrySet()) {
            loose.createItem(document(each.getKey()), each.getValue(), null);
        }
        for (Map.Entry<String, PartitionKey> each : keys.entrySet()) {
            same("document", read(loose, "k", each.getValue()).get("is"), document(each.getKey()).get("is"));
        }
        loose.deleteItem("k", PartitionKey.NONE, null);
        refused(404, () -> read(loose, "k", PartitionKey.NONE));
    }

    private void throughputIsReadAndReplaced() {
        same("throughput", orders.readThroughput().getProperties().getManualThroughput(), 400);
        orders.replaceThroughput(ThroughputProperties.createManualThroughput(500));
        same("throughput", orders.readThroughput().getProperties().getManualThroughput(), 500);
    }

    private void containersAreReadInPages() {
        List<Integer> sizes = database.readAllContainers().streamByPage(2)
            .map(page -> page.getResults().size())
            .collect(Collectors.toList());
        same("page sizes", sizes, List.of(2, 1));
    }

    private void databaseIsDeleted() {
        same("status", database.delete().getStatusCode(), 204);
        refused(404, () -> database.read());
    }

    static PartitionKey key(String value) {
        return new PartitionKey(value);
    }

    static ObjectNode read(CosmosContainer container, String id, PartitionKey key) {
        return container.readItem(id, key, ObjectNode.class).getItem();
    }

    /** Parses a document that is written with single quotes for legibility. */
    static ObjectNode document(String text) throws Exception {
        return (ObjectNode) JSON.readTree(text.replace('\'', '"'));
    }

    private static List<Integer> statuses(CosmosBatchResponse response) {
        return response.getResults().stream()
            .map(CosmosBatchOperationResult::getStatusCode)
            .collect(Collectors.toList());
    }

    static void same(String what, Object actual, Object expected) {
        if (!Objects.equals(actual, expected)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + actual);
        }
    }

    /** Asserts that the SDK reports the call as its own error with this status. */
    static void refused(int status, Step call) {
        try {
            call.run();
        } catch (CosmosException error) {
            same("status", error.getStatusCode(), status);
            return;
        } catch (Exception error) {
            throw new AssertionError("expected a CosmosException with status " + status + ", got " + error, error);
        }
        throw new AssertionError("expected status " + status + ", but the call succeeded");
    }
}
