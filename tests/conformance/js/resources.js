// What surrounds documents, through the JavaScript SDK: the policies of containers, throughput, users and permissions,
// conflicts, time to live, unique keys, computed properties, session tokens.

import { deepStrictEqual as same, ok } from "node:assert";
import { setTimeout as wait } from "node:timers/promises";
import { CosmosClient, PermissionMode } from "@azure/cosmos";
import { find, refused } from "./checks.js";

/** Steps over these resources; `database` gives the database to do it in. */
export function resourceSteps(client, database) {
  const create = async (definition) =>
    (await database().containers.create({ partitionKey: { paths: ["/pk"] }, ...definition })).container;

  return {
    async "databases are listed, queried and made once"() {
      const { id } = database();
      const { resources } = await client.databases.readAll().fetchAll();
      ok(resources.some((each) => each.id === id));
      const query = { query: "SELECT * FROM d WHERE d.id = @id", parameters: [{ name: "@id", value: id }] };
      same((await client.databases.query(query).fetchAll()).resources.length, 1);
      same((await client.databases.createIfNotExists({ id })).statusCode, 200);
      same((await database().containers.createIfNotExists({ id: "once", partitionKey: { paths: ["/pk"] } })).statusCode, 201);
      same((await database().containers.createIfNotExists({ id: "once", partitionKey: { paths: ["/pk"] } })).statusCode, 200);
    },

    async "container keeps every policy"() {
      const definition = {
        id: "policies",
        defaultTtl: 3600,
        uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] },
        conflictResolutionPolicy: { mode: "LastWriterWins", conflictResolutionPath: "/order" },
        geospatialConfig: { type: "Geography" },
        indexingPolicy: {
          automatic: true,
          indexingMode: "consistent",
          includedPaths: [{ path: "/*" }],
          excludedPaths: [{ path: "/large/*" }],
          compositeIndexes: [[{ path: "/a", order: "ascending" }, { path: "/b", order: "descending" }]],
          spatialIndexes: [{ path: "/place/*", types: ["Point", "Polygon"] }],
        },
        computedProperties: [{ name: "lower", query: "SELECT VALUE LOWER(c.name) FROM c" }],
      };
      const container = await create(definition);
      const { resource } = await container.read();
      same(resource.defaultTtl, 3600);
      same(resource.uniqueKeyPolicy.uniqueKeys.map(({ paths }) => paths), [["/email"]]);
      same(resource.conflictResolutionPolicy.conflictResolutionPath, "/order");
      same(resource.geospatialConfig.type, "Geography");
      same(resource.indexingPolicy.compositeIndexes, definition.indexingPolicy.compositeIndexes);
      ok(resource.indexingPolicy.excludedPaths.some(({ path }) => path === "/large/*"));
      ok(resource.indexingPolicy.spatialIndexes.some(({ path }) => path === "/place/*"));
      same(resource.computedProperties, definition.computedProperties);
      const replaced = await container.replace({ ...resource, defaultTtl: -1 });
      same([replaced.statusCode, replaced.resource.defaultTtl], [200, -1]);
      await refused(400, () => container.replace({ ...resource, partitionKey: { paths: ["/other"] } }));
    },

    async "computed property is queried"() {
      const container = database().container("policies");
      await container.items.create({ id: "1", pk: "p", name: "ADA", email: "a" });
      const query = "SELECT VALUE c.lower FROM c WHERE c.lower = 'ada'";
      same((await container.items.query(query).fetchAll()).resources, ["ada"]);
    },

    async "unique key is kept within a partition"() {
      const container = database().container("policies");
      await refused(409, () => container.items.create({ id: "2", pk: "p", email: "a" }));
      await container.items.create({ id: "2", pk: "q", email: "a" });
      await container.items.create({ id: "3", pk: "p", email: "b" });
      await refused(409, () => container.items.upsert({ id: "3", pk: "p", email: "a" }));
    },

    async "document expires"() {
      const container = await create({ id: "fading", defaultTtl: -1 });
      await container.items.create({ id: "short", pk: "p", ttl: 1 });
      await container.items.create({ id: "long", pk: "p" });
      ok(await find(container, "short", "p"));
      // The clock of a real server cannot be moved from here.
      await wait(2100);
      same(await find(container, "short", "p"), undefined);
      ok(await find(container, "long", "p"));
    },

    async "throughput is autoscaled"() {
      const container = await create({ id: "scaled", maxThroughput: 4000 });
      const { resource, offer } = await container.readOffer();
      same(resource.content.offerAutopilotSettings.maxThroughput, 4000);
      resource.content.offerAutopilotSettings.maxThroughput = 5000;
      same((await offer.replace(resource)).resource.content.offerAutopilotSettings.maxThroughput, 5000);
      ok((await client.offers.readAll().fetchAll()).resources.some(({ id }) => id === resource.id));
    },

    async "permission opens one container"() {
      const container = await create({ id: "guarded" });
      await create({ id: "closed" });
      await container.items.create({ id: "1", pk: "p" });
      const { user } = await database().users.create({ id: "reader" });
      const { resource: definition } = await container.read();
      const made = await user.permissions.create({
        id: "read",
        permissionMode: PermissionMode.Read,
        resource: definition._self,
      });
      same(made.statusCode, 201);
      const permission = (await made.permission.read()).resource;
      same([permission.permissionMode, permission.resource], [PermissionMode.Read, definition._self]);
      const limited = new CosmosClient({
        endpoint: await client.getReadEndpoint(),
        resourceTokens: { [definition._self]: permission._token, [`dbs/${database().id}/colls/guarded`]: permission._token },
      });
      const seen = limited.database(database().id).container("guarded");
      same((await seen.item("1", "p").read()).resource.id, "1");
      await refused(403, () => seen.items.create({ id: "2", pk: "p" }));
      limited.dispose();
      same((await user.permissions.readAll().fetchAll()).resources.length, 1);
      same((await made.permission.delete()).statusCode, 204);
      same((await database().users.readAll().fetchAll()).resources.map(({ id }) => id), ["reader"]);
      same((await user.delete()).statusCode, 204);
    },

    async "conflicts are read"() {
      const container = database().container("guarded");
      same((await container.conflicts.readAll().fetchAll()).resources, []);
      await refused(404, () => container.conflict("missing", "p").delete());
    },

    async "session token goes forward with every write"() {
      const container = database().container("guarded");
      const first = await container.items.upsert({ id: "s", pk: "p", n: 1 });
      const second = await container.items.upsert({ id: "s", pk: "p", n: 2 });
      const [earlier, later] = [first, second].map(({ headers }) => headers["x-ms-session-token"]);
      ok(earlier && later && earlier !== later, `${earlier} ${later}`);
      const read = await container.item("s", "p").read({ sessionToken: later });
      same(read.resource.n, 2);
    },

    async "documents of a key are deleted at once"() {
      const container = await create({ id: "swept" });
      for (const pk of ["p", "p", "q"]) {
        await container.items.create({ id: crypto.randomUUID(), pk });
      }
      await container.deleteAllItemsForPartitionKey("p");
      same((await container.items.query("SELECT VALUE c.pk FROM c").fetchAll()).resources, ["q"]);
    },

    async "query tells its metrics"() {
      const container = database().container("swept");
      const options = { populateQueryMetrics: true, populateIndexMetrics: true };
      const page = await container.items.query("SELECT * FROM c WHERE c.pk = 'q'", options).fetchNext();
      ok(page.headers["x-ms-request-charge"] > 0);
      ok(page.indexMetrics, "index metrics");
    },

    async "feed ranges cover the container"() {
      const container = database().container("swept");
      const ranges = await container.getFeedRanges();
      same([ranges.length, ranges[0].minInclusive, ranges.at(-1).maxExclusive], [1, "", "FF"]);
    },

    async "container is deleted"() {
      same((await database().container("swept").delete()).statusCode, 204);
      await refused(404, () => database().container("swept").read());
      await refused(404, () => database().container("swept").items.create({ id: "1", pk: "p" }));
    },
  };
}
