// The change feed through the JavaScript SDK: by partition key, by feed range and over a whole container of several
// ranges, from the beginning, from now, from a time and resumed; in the older and in the newer iterator; and with all
// versions and deletes.

import { deepStrictEqual as same, ok } from "node:assert";
import { setTimeout as pause } from "node:timers/promises";
import { ChangeFeedMode, ChangeFeedPolicy, ChangeFeedRetentionTimeSpan, ChangeFeedStartFrom } from "@azure/cosmos";

/** Steps over a container of their own; `database` gives the database to do it in. */
export function changeFeedSteps(database) {
  let container;
  let log;
  return {
    async "change feed: container with several ranges is filled"() {
      const definition = { id: "changes", partitionKey: { paths: ["/pk"] }, throughput: 20_000 };
      container = (await database().containers.create(definition)).container;
      for (let n = 0; n < 12; n += 1) {
        await container.items.create({ id: `${n}`, pk: `p${n % 4}` });
      }
      await container.items.upsert({ id: "0", pk: "p0", again: true });
      await container.item("4", "p0").delete();
    },

    async "change feed: the older iterator reads a partition"() {
      const seen = [];
      const feed = container.items.changeFeed("p0", { startFromBeginning: true, maxItemCount: 1 });
      for await (const page of feed.getAsyncIterator()) {
        seen.push(...page.result.map((document) => document.id));
      }
      same(seen, ["8", "0"]);
    },

    async "change feed: a partition is read and resumed"() {
      const from = ChangeFeedStartFrom.Beginning("p1");
      const first = await readAll(container, { changeFeedStartFrom: from, maxItemCount: 2 }, 1);
      same(first.pages, [["1", "5"]]);
      const rest = ChangeFeedStartFrom.Continuation(first.continuation);
      same((await readAll(container, { changeFeedStartFrom: rest })).pages, [["9"]]);
    },

    async "change feed: the whole container is read range by range"() {
      const from = ChangeFeedStartFrom.Beginning();
      const { pages } = await readAll(container, { changeFeedStartFrom: from, maxItemCount: 3 });
      const expected = ["0", "1", "10", "11", "2", "3", "5", "6", "7", "8", "9"];
      same(pages.flat().sort(), expected);
      ok(pages.every((page) => page.length <= 3));
    },

    async "change feed: every feed range is read by itself"() {
      const seen = [];
      for (const range of await container.getFeedRanges()) {
        const from = ChangeFeedStartFrom.Beginning(range);
        seen.push(...(await readAll(container, { changeFeedStartFrom: from })).pages.flat());
      }
      same(seen.length, 11);
      same(new Set(seen).size, 11);
    },

    async "change feed: a reader who starts now sees what comes"() {
      const now = await readAll(container, { changeFeedStartFrom: ChangeFeedStartFrom.Now() });
      same(now.pages, []);
      await container.items.create({ id: "new", pk: "p2" });
      await container.items.create({ id: "newer", pk: "p3" });
      const from = ChangeFeedStartFrom.Continuation(now.continuation);
      const { pages } = await readAll(container, { changeFeedStartFrom: from });
      same(pages.flat().sort(), ["new", "newer"]);
    },

    async "change feed: a reader may start with a time"() {
      await pause(1_100);
      const time = new Date();
      await pause(1_100);
      await container.items.create({ id: "late", pk: "p0" });
      const from = ChangeFeedStartFrom.Time(time);
      same((await readAll(container, { changeFeedStartFrom: from })).pages, [["late"]]);
    },

    async "change feed: all versions and deletes are told"() {
      const changeFeedPolicy = new ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(5));
      const previousImageRetentionPolicy = { supportedFeatures: { allVersionsAndDeletes: { mode: 3 } } };
      const definition = { id: "log", partitionKey: { paths: ["/pk"] }, changeFeedPolicy, previousImageRetentionPolicy };
      log = (await database().containers.create(definition)).container;
      const changeFeedMode = ChangeFeedMode.AllVersionsAndDeletes;
      const now = await readAll(log, { changeFeedMode, changeFeedStartFrom: ChangeFeedStartFrom.Now() });
      await log.items.create({ id: "a", pk: "p", n: 1 });
      await log.items.upsert({ id: "a", pk: "p", n: 2 });
      await log.item("a", "p").delete();
      const from = ChangeFeedStartFrom.Continuation(now.continuation);
      const { changes } = await readAll(log, { changeFeedMode, changeFeedStartFrom: from });
      const told = changes.map(({ current, previous, metadata }) => [metadata.operationType, current?.n, previous?.n]);
      same(told, [["create", 1, undefined], ["replace", 2, 1], ["delete", undefined, 2]]);
      const { id, partitionKey, timeToLiveExpired, lsn, previousImageLSN } = changes[2].metadata;
      same({ id, partitionKey }, { id: "a", partitionKey: { pk: "p" } });
      ok(!timeToLiveExpired && lsn > previousImageLSN);
    },
  };
}

/** The pages of a feed until it says that there is nothing more, or until there are enough of them. */
async function readAll(container, options, pagesMax = Infinity) {
  const iterator = container.items.getChangeFeedIterator(options);
  const pages = [];
  const changes = [];
  let continuation;
  while (iterator.hasMoreResults && pages.length < pagesMax) {
    const page = await iterator.readNext();
    continuation = page.continuationToken;
    if (page.statusCode === 304) break;
    changes.push(...page.result);
    pages.push(page.result.map((change) => change.id));
  }
  return { pages, changes, continuation };
}
