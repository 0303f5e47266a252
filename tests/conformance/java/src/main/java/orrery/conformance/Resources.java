package orrery.conformance;

import static orrery.conformance.Scenario.document;
import static orrery.conformance.Scenario.key;
import static orrery.conformance.Scenario.read;
import static orrery.conformance.Scenario.refused;
import static orrery.conformance.Scenario.same;

import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncUser;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CompositePath;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.cosmos.models.ComputedProperty;
import com.azure.cosmos.models.ConflictResolutionPolicy;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosPermissionProperties;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.CosmosUserProperties;
import com.azure.cosmos.models.ExcludedPath;
import com.azure.cosmos.models.IncludedPath;
import com.azure.cosmos.models.IndexingMode;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.PermissionMode;
import com.azure.cosmos.models.SpatialSpec;
import com.azure.cosmos.models.SpatialType;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.models.UniqueKey;
import com.azure.cosmos.models.UniqueKeyPolicy;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/**
 * What surrounds documents, through the Java SDK: the policies of containers, throughput, users and permissions,
 * conflicts, time to live, unique keys, computed properties, session tokens, and reads of many documents at once.
 */
final class Resources {
    private final CosmosClient client;
    private final Supplier<CosmosClientBuilder> builder;
    private final Supplier<CosmosDatabase> database;

    Resources(CosmosClient client, Supplier<CosmosClientBuilder> builder, Supplier<CosmosDatabase> database) {
        this.client = client;
        this.builder = builder;
        this.database = database;
    }

    void addTo(Map<String, Scenario.Step> steps) {
        steps.put("databases are listed, queried and made once", this::databasesAreListed);
        steps.put("container keeps every policy", this::containerKeepsPolicies);
        steps.put("computed property is queried", this::computedPropertyIsQueried);
        steps.put("unique key is kept within a partition", this::uniqueKeyIsKept);
        steps.put("document expires", this::documentExpires);
        steps.put("throughput is autoscaled", this::throughputIsAutoscaled);
        steps.put("database shares its throughput", this::databaseSharesThroughput);
        steps.put("permission opens one container", this::permissionOpensContainer);
        steps.put("conflicts are read", this::conflictsAreRead);
        steps.put("session token goes forward with every write", this::sessionTokenGoesForward);
        steps.put("many documents are read at once", this::manyDocumentsAreRead);
        steps.put("documents of a key are deleted at once", this::documentsOfKeyAreDeleted);
        steps.put("unchanged document is 304", this::unchangedDocumentIs304);
        steps.put("container is deleted", this::containerIsDeleted);
    }

    private CosmosContainer create(CosmosContainerProperties properties) {
        database.get().createContainer(properties);
        return database.get().getContainer(properties.getId());
    }

    private void databasesAreListed() {
        String id = database.get().getId();
        same("listed", client.readAllDatabases().stream().anyMatch(each -> each.getId().equals(id)), true);
        SqlQuerySpec query = new SqlQuerySpec("SELECT * FROM d WHERE d.id = @id", new SqlParameter("@id", id));
        same("queried", client.queryDatabases(query, new CosmosQueryRequestOptions()).stream().count(), 1L);
        same("status", client.createDatabaseIfNotExists(id).getStatusCode(), 200);
        same("status", database.get().createContainerIfNotExists("once", "/pk").getStatusCode(), 201);
        same("status", database.get().createContainerIfNotExists("once", "/pk").getStatusCode(), 200);
        database.get().getContainer("once").delete();
    }

    private void containerKeepsPolicies() {
        List<CompositePath> composite = List.of(
            new CompositePath().setPath("/a").setOrder(CompositePathSortOrder.ASCENDING),
            new CompositePath().setPath("/b").setOrder(CompositePathSortOrder.DESCENDING));
        IndexingPolicy indexing = new IndexingPolicy()
            .setIndexingMode(IndexingMode.CONSISTENT)
            .setIncludedPaths(List.of(new IncludedPath("/*")))
            .setExcludedPaths(List.of(new ExcludedPath("/large/*")))
            .setCompositeIndexes(List.of(composite))
            .setSpatialIndexes(List.of(
                new SpatialSpec().setPath("/place/*").setSpatialTypes(List.of(SpatialType.POINT, SpatialType.POLYGON))));
        CosmosContainer container = create(new CosmosContainerProperties("policies", "/pk")
            .setDefaultTimeToLiveInSeconds(3600)
            .setUniqueKeyPolicy(new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/email")))))
            .setConflictResolutionPolicy(ConflictResolutionPolicy.createLastWriterWinsPolicy("/order"))
            .setComputedProperties(List.of(new ComputedProperty("lower", "SELECT VALUE LOWER(c.name) FROM c")))
            .setIndexingPolicy(indexing));
        CosmosContainerProperties kept = container.read().getProperties();
        same("ttl", kept.getDefaultTimeToLiveInSeconds(), 3600);
        same("unique keys", kept.getUniqueKeyPolicy().getUniqueKeys().get(0).getPaths(), List.of("/email"));
        same("conflicts", kept.getConflictResolutionPolicy().getConflictResolutionPath(), "/order");
        same("computed", kept.getComputedProperties().iterator().next().getName(), "lower");
        same("composite", kept.getIndexingPolicy().getCompositeIndexes().get(0).get(1).getPath(), "/b");
        same("spatial", kept.getIndexingPolicy().getSpatialIndexes().get(0).getPath(), "/place/*");
        kept.setDefaultTimeToLiveInSeconds(-1);
        same("ttl", container.replace(kept).getProperties().getDefaultTimeToLiveInSeconds(), -1);
    }

    private void computedPropertyIsQueried() throws Exception {
        CosmosContainer container = database.get().getContainer("policies");
        container.createItem(document("{'id':'1','pk':'p','name':'ADA','email':'a'}"));
        String query = "SELECT VALUE c.lower FROM c WHERE c.lower = 'ada'";
        List<String> rows = container.queryItems(query, new CosmosQueryRequestOptions(), String.class).stream()
            .collect(Collectors.toList());
        same("rows", rows, List.of("ada"));
    }

    private void uniqueKeyIsKept() throws Exception {
        CosmosContainer container = database.get().getContainer("policies");
        refused(409, () -> container.createItem(document("{'id':'2','pk':'p','email':'a'}")));
        container.createItem(document("{'id':'2','pk':'q','email':'a'}"));
        container.createItem(document("{'id':'3','pk':'p','email':'b'}"));
        refused(409, () -> container.upsertItem(document("{'id':'3','pk':'p','email':'a'}")));
    }

    private void documentExpires() throws Exception {
        CosmosContainer container =
            create(new CosmosContainerProperties("fading", "/pk").setDefaultTimeToLiveInSeconds(-1));
        container.createItem(document("{'id':'short','pk':'p','ttl':1}"));
        container.createItem(document("{'id':'long','pk':'p'}"));
        // The clock of a real server cannot be moved from here.
        Thread.sleep(2100);
        refused(404, () -> read(container, "short", key("p")));
        same("id", read(container, "long", key("p")).get("id").asText(), "long");
    }

    private void throughputIsAutoscaled() {
        database.get().createContainer(
            new CosmosContainerProperties("scaled", "/pk"), ThroughputProperties.createAutoscaledThroughput(4000));
        CosmosContainer container = database.get().getContainer("scaled");
        same("maximum", container.readThroughput().getProperties().getAutoscaleMaxThroughput(), 4000);
        container.replaceThroughput(ThroughputProperties.createAutoscaledThroughput(5000));
        same("maximum", container.readThroughput().getProperties().getAutoscaleMaxThroughput(), 5000);
        container.delete();
    }

    private void databaseSharesThroughput() {
        String id = database.get().getId() + "-shared";
        client.createDatabase(id, ThroughputProperties.createManualThroughput(400));
        CosmosDatabase shared = client.getDatabase(id);
        same("throughput", shared.readThroughput().getProperties().getManualThroughput(), 400);
        shared.createContainer("tenant", "/pk");
        refused(400, () -> shared.getContainer("tenant").readThroughput());
        shared.delete();
    }

    /** Permissions are there in the asynchronous half of the SDK only. */
    private void permissionOpensContainer() throws Exception {
        CosmosContainer container = create(new CosmosContainerProperties("guarded", "/pk"));
        container.createItem(document("{'id':'1','pk':'p'}"));
        database.get().createUser(new CosmosUserProperties().setId("reader"));
        CosmosPermissionProperties wanted = new CosmosPermissionProperties()
            .setId("read")
            .setPermissionMode(PermissionMode.READ)
            .setContainerName("guarded");
        try (CosmosAsyncClient asynchronous = builder.get().buildAsyncClient()) {
            CosmosAsyncUser user = asynchronous.getDatabase(database.get().getId()).getUser("reader");
            CosmosPermissionProperties given = user.createPermission(wanted, null).block().getProperties();
            same("mode", given.getPermissionMode(), PermissionMode.READ);
            same("listed", user.readAllPermissions().collectList().block().size(), 1);
            CosmosClientBuilder limited = builder.get().resourceToken(given.getToken());
            try (CosmosClient reader = limited.buildClient()) {
                CosmosContainer seen = reader.getDatabase(database.get().getId()).getContainer("guarded");
                same("id", read(seen, "1", key("p")).get("id").asText(), "1");
                refused(403, () -> seen.createItem(document("{'id':'2','pk':'p'}")));
            }
            user.getPermission("read").delete(null).block();
        }
        List<String> users = database.get().readAllUsers().stream()
            .map(CosmosUserProperties::getId)
            .collect(Collectors.toList());
        same("users", users, List.of("reader"));
        database.get().getUser("reader").delete();
    }

    private void conflictsAreRead() {
        try (CosmosAsyncClient asynchronous = builder.get().buildAsyncClient()) {
            int conflicts = asynchronous.getDatabase(database.get().getId()).getContainer("guarded")
                .readAllConflicts(new CosmosQueryRequestOptions())
                .collectList()
                .block()
                .size();
            same("conflicts", conflicts, 0);
        }
    }

    private void sessionTokenGoesForward() throws Exception {
        CosmosContainer container = database.get().getContainer("guarded");
        String earlier = container.upsertItem(document("{'id':'s','pk':'p','n':1}")).getSessionToken();
        String later = container.upsertItem(document("{'id':'s','pk':'p','n':2}")).getSessionToken();
        same("tokens are the same", earlier.equals(later), false);
        CosmosItemRequestOptions options = new CosmosItemRequestOptions().setSessionToken(later);
        ObjectNode seen = container.readItem("s", key("p"), options, ObjectNode.class).getItem();
        same("n", seen.get("n").asInt(), 2);
    }

    private void manyDocumentsAreRead() throws Exception {
        CosmosContainer container = create(new CosmosContainerProperties("many", "/pk"));
        for (String pk : List.of("p", "q")) {
            for (String id : List.of("1", "2", "3")) {
                container.createItem(document("{'id':'" + id + "','pk':'" + pk + "'}"));
            }
        }
        List<CosmosItemIdentity> wanted = List.of(
            new CosmosItemIdentity(key("p"), "1"),
            new CosmosItemIdentity(key("q"), "2"),
            new CosmosItemIdentity(key("q"), "3"),
            new CosmosItemIdentity(key("q"), "missing"));
        List<String> found = container.readMany(wanted, ObjectNode.class).getResults().stream()
            .map(each -> each.get("pk").asText() + each.get("id").asText())
            .sorted()
            .collect(Collectors.toList());
        same("found", found, List.of("p1", "q2", "q3"));
        same("of one key", container.readAllItems(key("q"), ObjectNode.class).stream().count(), 3L);
        same("feed ranges", container.getFeedRanges().size(), 1);
    }

    private void documentsOfKeyAreDeleted() {
        CosmosContainer container = database.get().getContainer("many");
        container.deleteAllItemsByPartitionKey(key("p"), new CosmosItemRequestOptions());
        List<String> left = container
            .queryItems("SELECT VALUE c.pk FROM c", new CosmosQueryRequestOptions(), String.class).stream()
            .distinct()
            .collect(Collectors.toList());
        same("left", left, List.of("q"));
    }

    private void unchangedDocumentIs304() {
        CosmosContainer container = database.get().getContainer("many");
        String etag = read(container, "1", key("q")).get("_etag").asText();
        CosmosItemRequestOptions options = new CosmosItemRequestOptions().setIfNoneMatchETag(etag);
        same("status", container.readItem("1", key("q"), options, ObjectNode.class).getStatusCode(), 304);
    }

    private void containerIsDeleted() {
        CosmosContainer container = database.get().getContainer("many");
        same("status", container.delete().getStatusCode(), 204);
        refused(404, container::read);
    }
}
