// One scenario over the JavaScript SDK. The connection string comes from ORRERY_CONNECTION_STRING; the last line
// printed is `N passed, M failed` and the exit code is 1 if M is not 0. The steps run in order and build on each other.
//
// The server's certificate is self-signed, which the SDK has no setting for: the caller sets NODE_TLS_REJECT_UNAUTHORIZED=0.

import { deepStrictEqual as same, ok } from "node:assert";
import { randomUUID } from "node:crypto";
import { CosmosClient, PartitionKeyBuilder, PartitionKeyKind } from "@azure/cosmos";
import { changeFeedSteps } from "./change_feed.js";
import { find, refused } from "./checks.js";
import { querySteps } from "./queries.js";
import { resourceSteps } from "./resources.js";
import { scriptSteps } from "./scripts.js";

const client = new CosmosClient(process.env.ORRERY_CONNECTION_STRING);
const databaseId = `conformance-${randomUUID()}`;
let database;
let orders;

const steps = {
  async "database is created and read"() {
    database = (await client.databases.create({ id: databaseId })).database;
    same((await database.read()).resource.id, databaseId);
    await refused(409, () => client.databases.create({ id: databaseId }));
  },

  async "container is created and read"() {
    const created = await database.containers.create({
      id: "orders",
      partitionKey: { paths: ["/customer"] },
      throughput: 400,
    });
    orders = created.container;
    const { paths, kind } = (await orders.read()).resource.partitionKey;
    same({ paths, kind }, { paths: ["/customer"], kind: "Hash" });
  },

  async "document round-trips"() {
    const document = {
      id: "a",
      customer: "x",
      total: 1.5,
      lines: [{ sku: "s", count: 2 }, null, true, "日本 🎉"],
      empty: {},
      none: null,
      negative: -7,
      large: Number.MAX_SAFE_INTEGER,
    };
    const { resource: created, statusCode } = await orders.items.create(document);
    same(statusCode, 201);
    const { _rid, _self, _etag, _ts, _attachments, ...kept } = await find(orders, "a", "x");
    same(kept, document);
    same([created._rid, created._self, created._etag, created._ts], [_rid, _self, _etag, _ts]);
  },

  async "document is replaced"() {
    const before = await find(orders, "a", "x");
    const { resource, statusCode } = await orders.item("a", "x").replace({ id: "a", customer: "x", total: 2 });
    same(statusCode, 200);
    same([resource.total, resource.lines, resource._rid], [2, undefined, before._rid]);
    ok(resource._etag !== before._etag, "a replace changes the etag");
  },

  async "document is upserted"() {
    const created = await orders.items.upsert({ id: "b", customer: "x", total: 1 });
    const replaced = await orders.items.upsert({ id: "b", customer: "x", total: 5 });
    same([created.statusCode, replaced.statusCode, replaced.resource.total], [201, 200, 5]);
  },

  async "document is patched"() {
    const { resource } = await orders.item("b", "x").patch([
      { op: "add", path: "/tags", value: ["new"] },
      { op: "set", path: "/note", value: "n" },
      { op: "incr", path: "/total", value: 10 },
      { op: "remove", path: "/note" },
    ]);
    same([resource.tags, resource.total, resource.note], [["new"], 15, undefined]);
    const operations = [{ op: "set", path: "/total", value: 0 }];
    await refused(412, () => orders.item("b", "x").patch({ condition: "from c where c.total = 16", operations }));
    await orders.item("b", "x").patch({ condition: "from c where c.total = 15", operations });
    same((await find(orders, "b", "x")).total, 0);
    await refused(400, () => orders.item("b", "x").patch([{ op: "replace", path: "/missing", value: 1 }]));
  },

  async "missing document is 404"() {
    same(await find(orders, "missing", "x"), undefined);
    await refused(404, () => orders.item("missing", "x").delete());
    await refused(404, () => orders.item("a", "another key").replace({ id: "a", customer: "another key" }));
  },

  async "taken id is 409"() {
    await refused(409, () => orders.items.create({ id: "a", customer: "x" }));
  },

  async "stale etag is 412"() {
    const stale = { accessCondition: { type: "IfMatch", condition: (await find(orders, "a", "x"))._etag } };
    await orders.item("a", "x").replace({ id: "a", customer: "x", total: 3 }, stale);
    await refused(412, () => orders.item("a", "x").replace({ id: "a", customer: "x", total: 4 }, stale));
    await refused(412, () => orders.item("a", "x").delete(stale));
  },

  async "unchanged document is 304"() {
    const current = await find(orders, "a", "x");
    const { statusCode } = await orders
      .item("a", "x")
      .read({ accessCondition: { type: "IfNoneMatch", condition: current._etag } });
    same(statusCode, 304);
  },

  async "batch is applied whole"() {
    const { code, result } = await orders.items.batch(
      [
        { operationType: "Create", resourceBody: { id: "c", customer: "x", total: 1 } },
        { operationType: "Upsert", resourceBody: { id: "d", customer: "x", total: 1 } },
        { operationType: "Patch", id: "c", resourceBody: { operations: [{ op: "incr", path: "/total", value: 1 }] } },
        { operationType: "Read", id: "c" },
        { operationType: "Replace", id: "d", resourceBody: { id: "d", customer: "x", total: 9 } },
        { operationType: "Delete", id: "b" },
      ],
      "x",
    );
    same([code, result.map((each) => each.statusCode)], [200, [201, 201, 200, 200, 200, 204]]);
    same(result[3].resourceBody.total, 2, "a batch sees its own writes");
    same((await find(orders, "d", "x")).total, 9);
  },

  async "failed batch leaves nothing"() {
    const { code, result } = await orders.items.batch(
      [
        { operationType: "Create", resourceBody: { id: "e", customer: "x" } },
        { operationType: "Create", resourceBody: { id: "a", customer: "x" } },
        { operationType: "Delete", id: "d" },
      ],
      "x",
    );
    same([code, result.map((each) => each.statusCode)], [207, [424, 409, 424]]);
    same(await find(orders, "e", "x"), undefined);
    same((await find(orders, "d", "x")).total, 9);
  },

  async "bulk operations are independent"() {
    const results = await orders.items.executeBulkOperations([
      { operationType: "Create", partitionKey: "y", resourceBody: { id: "1", customer: "y" } },
      { operationType: "Create", partitionKey: "x", resourceBody: { id: "a", customer: "x" } },
      { operationType: "Upsert", partitionKey: "z", resourceBody: { id: "1", customer: "z" } },
    ]);
    const statuses = results.map(({ response, error }) => response?.statusCode ?? error?.code);
    same(statuses, [201, 409, 201]);
  },

  async "hierarchical key separates documents"() {
    const { container } = await database.containers.create({
      id: "events",
      partitionKey: { paths: ["/tenant", "/user", "/day"], kind: PartitionKeyKind.MultiHash, version: 2 },
    });
    for (const day of [1, 2]) {
      await container.items.create({ id: "e", tenant: "t", user: "u", day });
    }
    const key = (day) => new PartitionKeyBuilder().addValue("t").addValue("u").addValue(day).build();
    same((await find(container, "e", key(2))).day, 2);
    const error = await refused(400, () => container.item("e", ["t", "u"]).delete());
    same(Number(error.substatus), 1001);
    await container.item("e", key(1)).delete();
    same(await find(container, "e", key(1)), undefined);
    same((await find(container, "e", key(2))).day, 2);
  },

  async "null and absent keys differ"() {
    const { container } = await database.containers.create({ id: "loose", partitionKey: { paths: ["/key"] } });
    const keys = { null: null, absent: undefined, empty: "", false: false, zero: 0 };
    for (const [is, key] of Object.entries(keys)) {
      await container.items.create(key === undefined ? { id: "k", is } : { id: "k", key, is });
    }
    // A bare undefined would let the SDK fall back to the id, so an absent key is spelled as the builder does.
    const spelled = (key) => (key === undefined ? new PartitionKeyBuilder().addNoneValue().build() : key);
    for (const [is, key] of Object.entries(keys)) {
      same((await find(container, "k", spelled(key))).is, is);
    }
    await container.item("k", spelled(undefined)).delete();
    same(await find(container, "k", spelled(undefined)), undefined);
    same((await find(container, "k", null)).is, "null");
  },

  async "throughput is read and replaced"() {
    const { offer, resource } = await orders.readOffer();
    same(resource.content.offerThroughput, 400);
    resource.content.offerThroughput = 500;
    same((await offer.replace(resource)).resource.content.offerThroughput, 500);
    same((await orders.readOffer()).resource.content.offerThroughput, 500);
  },

  async "feed is read in pages"() {
    const { container } = await database.containers.create({ id: "pages", partitionKey: { paths: ["/pk"] } });
    const ids = ["0", "1", "2", "3", "4", "5", "6"];
    for (const id of ids) {
      await container.items.create({ id, pk: "p" });
    }
    const pages = [];
    const feed = container.items.readAll({ maxItemCount: 3 });
    while (feed.hasMoreResults()) {
      const { resources } = await feed.fetchNext();
      if (resources?.length) pages.push(resources.map((document) => document.id));
    }
    same(pages, [["0", "1", "2"], ["3", "4", "5"], ["6"]]);
  },

  ...resourceSteps(client, () => database),

  ...scriptSteps(() => database),

  ...querySteps(() => database),
  ...changeFeedSteps(() => database),

  async "database is deleted"() {
    same((await database.delete()).statusCode, 204);
    await refused(404, () => database.read());
  },
};

let passed = 0;
let failed = 0;
for (const [name, step] of Object.entries(steps)) {
  try {
    await step();
    passed += 1;
  } catch (error) {
    failed += 1;
    console.error(`FAILED ${name}:`, error);
  }
}
client.dispose();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
