// Stored procedures, triggers and user-defined functions through the JavaScript SDK.

import { deepStrictEqual as same, ok } from "node:assert";
import { TriggerOperation, TriggerType } from "@azure/cosmos";
import { find, refused } from "./checks.js";

/** Steps over scripts; `database` gives the database to do it in. */
export function scriptSteps(database) {
  let container;
  let scripts;

  return {
    async "procedure is stored, read, replaced and listed"() {
      container = (await database().containers.create({ id: "scripts", partitionKey: { paths: ["/pk"] } })).container;
      scripts = container.scripts;
      const body = "function () { getContext().getResponse().setBody('first'); }";
      const { storedProcedure, statusCode } = await scripts.storedProcedures.create({ id: "hello", body });
      same(statusCode, 201);
      same((await storedProcedure.read()).resource.body, body);
      same((await storedProcedure.execute("p")).resource, "first");
      await refused(409, () => scripts.storedProcedures.create({ id: "hello", body }));
      await storedProcedure.replace({ id: "hello", body: "function () { getContext().getResponse().setBody('second'); }" });
      same((await storedProcedure.execute("p")).resource, "second");
      const { resources } = await scripts.storedProcedures.readAll().fetchAll();
      same(resources.map(({ id }) => id), ["hello"]);
      const query = { query: "SELECT * FROM s WHERE s.id = @id", parameters: [{ name: "@id", value: "hello" }] };
      same((await scripts.storedProcedures.query(query).fetchAll()).resources.length, 1);
    },

    async "procedure takes parameters of every kind"() {
      const { storedProcedure } = await scripts.storedProcedures.create({
        id: "echo",
        body: "function (text, number, list, object) { getContext().getResponse().setBody([text, number, list, object]); }",
      });
      const parameters = ["日本", 1.5, [1, null, true], { a: { b: "c" } }];
      same((await storedProcedure.execute("p", parameters)).resource, parameters);
    },

    async "procedure writes in one partition, whole or not at all"() {
      const { storedProcedure } = await scripts.storedProcedures.create({
        id: "insert",
        body: `function (documents, fail) {
          var container = getContext().getCollection();
          documents.forEach(function (document) {
            var accepted = container.createDocument(container.getSelfLink(), document, function (error) {
              if (error) throw error;
            });
            if (!accepted) throw new Error("not accepted");
          });
          if (fail) throw new Error("told to fail");
          getContext().getResponse().setBody(documents.length);
        }`,
      });
      const documents = (...ids) => ids.map((id) => ({ id, pk: "p" }));
      same((await storedProcedure.execute("p", [documents("a", "b"), false])).resource, 2);
      ok(await find(container, "a", "p"));
      const error = await refused(400, () => storedProcedure.execute("p", [documents("c", "d"), true]));
      ok(error.message.includes("told to fail"), error.message);
      same(await find(container, "c", "p"), undefined);
      await refused(400, () => storedProcedure.execute("another partition", [documents("e"), false]));
      same(await find(container, "e", "p"), undefined);
    },

    async "procedure queries its partition"() {
      const { storedProcedure } = await scripts.storedProcedures.create({
        id: "count",
        body: `function () {
          var container = getContext().getCollection();
          container.queryDocuments(container.getSelfLink(), "SELECT * FROM c", {}, function (error, documents) {
            if (error) throw error;
            getContext().getResponse().setBody(documents.map(function (document) { return document.id; }).sort());
          });
        }`,
      });
      await container.items.create({ id: "elsewhere", pk: "q" });
      same((await storedProcedure.execute("p")).resource, ["a", "b"]);
      same((await storedProcedure.execute("q")).resource, ["elsewhere"]);
    },

    async "procedure writes a log when asked to"() {
      const { storedProcedure } = await scripts.storedProcedures.create({
        id: "log",
        body: "function () { console.log('one two'); getContext().getResponse().setBody('done'); }",
      });
      const silent = await storedProcedure.execute("p");
      same(silent.headers["x-ms-documentdb-script-log-results"], undefined);
      const logged = await storedProcedure.execute("p", [], { enableScriptLogging: true });
      same(decodeURIComponent(logged.headers["x-ms-documentdb-script-log-results"]), "one two");
    },

    async "procedure that is not a function is refused"() {
      const broken = { id: "broken", body: "function ( { this is not JavaScript" };
      await refused(400, async () => {
        await scripts.storedProcedures.create(broken);
        await scripts.storedProcedure("broken").execute("p");
      });
      await refused(404, () => scripts.storedProcedure("missing").execute("p"));
    },

    async "trigger is stored, replaced and run where it is named"() {
      const { trigger } = await scripts.triggers.create({
        id: "stamp",
        triggerType: TriggerType.Pre,
        triggerOperation: TriggerOperation.All,
        body: "function () { throw new Error('not yet'); }",
      });
      await refused(400, () => container.items.create({ id: "t", pk: "p" }, { preTriggerInclude: "stamp" }));
      same(await find(container, "t", "p"), undefined);
      await trigger.replace({
        id: "stamp",
        triggerType: TriggerType.Pre,
        triggerOperation: TriggerOperation.All,
        body: `function () {
          var request = getContext().getRequest();
          var document = request.getBody();
          document.stamped = request.getOperationType ? request.getOperationType() : true;
          request.setBody(document);
        }`,
      });
      ok((await container.items.create({ id: "t", pk: "p" }, { preTriggerInclude: "stamp" })).resource.stamped);
      same((await container.items.create({ id: "u", pk: "p" })).resource.stamped, undefined);
      same((await trigger.read()).resource.triggerType, TriggerType.Pre);
    },

    async "post-trigger writes with the document, or takes it back"() {
      await scripts.triggers.create({
        id: "audit",
        triggerType: TriggerType.Post,
        triggerOperation: TriggerOperation.Create,
        body: `function () {
          var container = getContext().getCollection();
          var document = getContext().getResponse().getBody();
          if (document.forbidden) throw new Error("forbidden");
          container.createDocument(container.getSelfLink(), { id: "audit-" + document.id, pk: document.pk });
        }`,
      });
      await container.items.create({ id: "v", pk: "p" }, { postTriggerInclude: "audit" });
      ok(await find(container, "audit-v", "p"));
      const forbidden = { id: "w", pk: "p", forbidden: true };
      await refused(400, () => container.items.create(forbidden, { postTriggerInclude: "audit" }));
      same(await find(container, "w", "p"), undefined);
      await refused(400, () => container.items.create({ id: "x", pk: "p" }, { preTriggerInclude: "no such trigger" }));
    },

    async "function is stored and called in queries"() {
      const { userDefinedFunction } = await scripts.userDefinedFunctions.create({
        id: "twice",
        body: "function (number) { return number * 2; }",
      });
      await container.items.create({ id: "n", pk: "n", number: 21 });
      const query = "SELECT VALUE udf.twice(c.number) FROM c WHERE udf.twice(c.number) > 40";
      same((await container.items.query(query, { partitionKey: "n" }).fetchAll()).resources, [42]);
      same((await container.items.query(query).fetchAll()).resources, [42]);
      await userDefinedFunction.replace({ id: "twice", body: "function (number) { throw new Error('no'); }" });
      await refused(400, () => container.items.query(query, { partitionKey: "n" }).fetchAll());
      await userDefinedFunction.delete();
      await refused(400, () => container.items.query(query, { partitionKey: "n" }).fetchAll());
    },

    async "scripts are deleted"() {
      same((await scripts.storedProcedure("hello").delete()).statusCode, 204);
      await refused(404, () => scripts.storedProcedure("hello").read());
      same((await scripts.trigger("stamp").delete()).statusCode, 204);
      same((await scripts.triggers.readAll().fetchAll()).resources.map(({ id }) => id), ["audit"]);
      same((await scripts.userDefinedFunctions.readAll().fetchAll()).resources, []);
    },
  };
}
