package orrery.conformance;

import static orrery.conformance.Scenario.document;
import static orrery.conformance.Scenario.key;
import static orrery.conformance.Scenario.read;
import static orrery.conformance.Scenario.refused;
import static orrery.conformance.Scenario.same;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosScripts;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.CosmosStoredProcedureProperties;
import com.azure.cosmos.models.CosmosStoredProcedureRequestOptions;
import com.azure.cosmos.models.CosmosStoredProcedureResponse;
import com.azure.cosmos.models.CosmosTriggerProperties;
import com.azure.cosmos.models.CosmosUserDefinedFunctionProperties;
import com.azure.cosmos.models.TriggerOperation;
import com.azure.cosmos.models.TriggerType;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/** Stored procedures, triggers and user-defined functions through the Java SDK. */
final class Scripts {
    private final Supplier<CosmosDatabase> database;
    private CosmosContainer container;
    private CosmosScripts scripts;

    Scripts(Supplier<CosmosDatabase> database) {
        this.database = database;
    }

    void addTo(Map<String, Scenario.Step> steps) {
        steps.put("procedure is stored, read, replaced and listed", this::procedureIsStored);
        steps.put("procedure takes parameters of every kind", this::procedureTakesParameters);
        steps.put("procedure writes in one partition, whole or not at all", this::procedureWritesWholeOrNotAtAll);
        steps.put("procedure writes a log when asked to", this::procedureWritesLog);
        steps.put("trigger runs where it is named", this::triggerRunsWhereNamed);
        steps.put("post-trigger writes with the document, or takes it back", this::postTriggerWritesOrTakesBack);
        steps.put("function is stored and called in queries", this::functionIsCalled);
        steps.put("scripts are deleted", this::scriptsAreDeleted);
    }

    private CosmosStoredProcedureResponse execute(String id, String partition, Object... parameters) {
        CosmosStoredProcedureRequestOptions options =
            new CosmosStoredProcedureRequestOptions().setPartitionKey(key(partition));
        return scripts.getStoredProcedure(id).execute(List.of(parameters), options);
    }

    private void procedureIsStored() {
        database.get().createContainer("scripts", "/pk");
        container = database.get().getContainer("scripts");
        scripts = container.getScripts();
        String first = "function () { getContext().getResponse().setBody('first'); }";
        CosmosStoredProcedureProperties properties = new CosmosStoredProcedureProperties("hello", first);
        same("status", scripts.createStoredProcedure(properties).getStatusCode(), 201);
        same("body", scripts.getStoredProcedure("hello").read().getProperties().getBody(), first);
        same("answer", execute("hello", "p").getResponseAsString(), "\"first\"");
        refused(409, () -> scripts.createStoredProcedure(properties));
        String second = "function () { getContext().getResponse().setBody('second'); }";
        // The SDK replaces by the link that the stored properties carry.
        CosmosStoredProcedureProperties stored = scripts.getStoredProcedure("hello").read().getProperties();
        scripts.getStoredProcedure("hello").replace(stored.setBody(second));
        same("answer", execute("hello", "p").getResponseAsString(), "\"second\"");
        List<String> listed = scripts.readAllStoredProcedures().stream()
            .map(CosmosStoredProcedureProperties::getId)
            .collect(Collectors.toList());
        same("listed", listed, List.of("hello"));
    }

    private void procedureTakesParameters() {
        String body = "function (text, number, list, object) {"
            + " getContext().getResponse().setBody([text, number, list, object]); }";
        scripts.createStoredProcedure(new CosmosStoredProcedureProperties("echo", body));
        String answer = execute("echo", "p", "日本", 1.5, List.of(1, true), Map.of("a", "b")).getResponseAsString();
        same("answer", answer, "[\"日本\",1.5,[1,true],{\"a\":\"b\"}]");
    }

    private void procedureWritesWholeOrNotAtAll() {
        String body = "function (ids, fail) {"
            + " var container = getContext().getCollection();"
            + " ids.forEach(function (id) {"
            + "   container.createDocument(container.getSelfLink(), { id: id, pk: 'p' }, function (error) {"
            + "     if (error) throw error;"
            + "   });"
            + " });"
            + " if (fail) throw new Error('told to fail');"
            + " getContext().getResponse().setBody(ids.length);"
            + "}";
        scripts.createStoredProcedure(new CosmosStoredProcedureProperties("insert", body));
        same("answer", execute("insert", "p", List.of("a", "b"), false).getResponseAsString(), "2");
        same("id", read(container, "a", key("p")).get("id").asText(), "a");
        refused(400, () -> execute("insert", "p", List.of("c"), true));
        refused(404, () -> read(container, "c", key("p")));
        refused(400, () -> execute("insert", "another partition", List.of("d"), false));
        refused(404, () -> execute("missing", "p"));
    }

    private void procedureWritesLog() {
        String body = "function () { console.log('one two'); getContext().getResponse().setBody('done'); }";
        scripts.createStoredProcedure(new CosmosStoredProcedureProperties("log", body));
        CosmosStoredProcedureRequestOptions logged = new CosmosStoredProcedureRequestOptions()
            .setPartitionKey(key("p"))
            .setScriptLoggingEnabled(true);
        same("log", scripts.getStoredProcedure("log").execute(List.of(), logged).getScriptLog(), "one two");
    }

    private void triggerRunsWhereNamed() throws Exception {
        String body = "function () {"
            + " var request = getContext().getRequest();"
            + " var document = request.getBody();"
            + " document.stamped = true;"
            + " request.setBody(document);"
            + "}";
        scripts.createTrigger(new CosmosTriggerProperties("stamp", body)
            .setTriggerType(TriggerType.PRE)
            .setTriggerOperation(TriggerOperation.ALL));
        same("type", scripts.getTrigger("stamp").read().getProperties().getTriggerType(), TriggerType.PRE);
        CosmosItemRequestOptions stamped = new CosmosItemRequestOptions().setPreTriggerInclude(List.of("stamp"));
        ObjectNode created = container.createItem(document("{'id':'t','pk':'p'}"), key("p"), stamped).getItem();
        same("stamped", created.get("stamped").asBoolean(), true);
        ObjectNode plain = container.createItem(document("{'id':'u','pk':'p'}"), key("p"), null).getItem();
        same("stamped", plain.has("stamped"), false);
        CosmosItemRequestOptions unknown = new CosmosItemRequestOptions().setPreTriggerInclude(List.of("missing"));
        refused(400, () -> container.createItem(document("{'id':'v','pk':'p'}"), key("p"), unknown));
    }

    private void postTriggerWritesOrTakesBack() throws Exception {
        String body = "function () {"
            + " var container = getContext().getCollection();"
            + " var document = getContext().getResponse().getBody();"
            + " if (document.forbidden) throw new Error('forbidden');"
            + " container.createDocument(container.getSelfLink(), { id: 'audit-' + document.id, pk: document.pk });"
            + "}";
        scripts.createTrigger(new CosmosTriggerProperties("audit", body)
            .setTriggerType(TriggerType.POST)
            .setTriggerOperation(TriggerOperation.CREATE));
        CosmosItemRequestOptions audited = new CosmosItemRequestOptions().setPostTriggerInclude(List.of("audit"));
        container.createItem(document("{'id':'w','pk':'p'}"), key("p"), audited);
        same("id", read(container, "audit-w", key("p")).get("id").asText(), "audit-w");
        ObjectNode forbidden = document("{'id':'x','pk':'p','forbidden':true}");
        refused(400, () -> container.createItem(forbidden, key("p"), audited));
        refused(404, () -> read(container, "x", key("p")));
    }

    private void functionIsCalled() throws Exception {
        String body = "function (number) { return number * 2; }";
        scripts.createUserDefinedFunction(new CosmosUserDefinedFunctionProperties("twice", body));
        container.createItem(document("{'id':'n','pk':'n','number':21}"));
        String query = "SELECT VALUE udf.twice(c.number) FROM c WHERE udf.twice(c.number) > 40";
        same("rows", ask(query, new CosmosQueryRequestOptions().setPartitionKey(key("n"))), List.of(42));
        same("rows", ask(query, new CosmosQueryRequestOptions()), List.of(42));
        String broken = "function (number) { throw new Error('no'); }";
        CosmosUserDefinedFunctionProperties stored = scripts.getUserDefinedFunction("twice").read().getProperties();
        scripts.getUserDefinedFunction("twice").replace(stored.setBody(broken));
        refused(400, () -> ask(query, new CosmosQueryRequestOptions().setPartitionKey(key("n"))));
    }

    private List<Integer> ask(String query, CosmosQueryRequestOptions options) {
        return container.queryItems(query, options, Integer.class).stream().collect(Collectors.toList());
    }

    private void scriptsAreDeleted() {
        same("status", scripts.getStoredProcedure("hello").delete().getStatusCode(), 204);
        refused(404, () -> scripts.getStoredProcedure("hello").read());
        scripts.getTrigger("stamp").delete();
        List<String> triggers = scripts.readAllTriggers().stream()
            .map(CosmosTriggerProperties::getId)
            .collect(Collectors.toList());
        same("triggers", triggers, List.of("audit"));
        scripts.getUserDefinedFunction("twice").delete();
        same("functions", scripts.readAllUserDefinedFunctions().stream().count(), 0L);
    }
}
