// The queries of queries.json, asked through the JavaScript SDK over a container of several ranges.
//
// The SDK sends a query as it is and takes the server's own answer, unless it is told to fetch a plan: then it asks every
// range and merges. Each query is asked both ways, in pages of several sizes, and resumed from continuations; every
// way must give the rows that the file says.

import { deepStrictEqual as same, ok, rejects } from "node:assert";
import { readFileSync } from "node:fs";

const script = JSON.parse(readFileSync(process.env.ORRERY_CONFORMANCE_QUERIES, "utf8"));

const ways = [
  { name: "asked whole", ask: all, options: {} },
  { name: "asked whole in pages", ask: all, options: { maxItemCount: 4 } },
  { name: "asked whole and resumed", ask: resumed, options: { maxItemCount: 4 } },
  { name: "merged", ask: all, options: { forceQueryPlan: true } },
  { name: "merged in pages of one", ask: all, options: { forceQueryPlan: true, maxItemCount: 1 } },
  { name: "merged in pages", ask: all, options: { forceQueryPlan: true, maxItemCount: 4 } },
  { name: "merged and resumed", ask: resumed, options: { forceQueryPlan: true, enableQueryControl: true, maxItemCount: 4 } },
];

/** Steps that make the container, fill it, and ask every query; `database` gives the database to do it in. */
export function querySteps(database) {
  let container;
  const steps = {
    async "container with several ranges is filled"() {
      const { container: definition, throughput, documents } = script;
      container = (await database().containers.create({ ...definition, throughput })).container;
      for (const document of documents) {
        await container.items.create(document);
      }
      const { resources } = await container.readPartitionKeyRanges().fetchAll();
      ok(resources.length >= 3, `${resources.length} ranges`);
    },
  };
  for (const query of script.queries) {
    steps[`query: ${query.name}`] = () => askEveryWay(container, query);
  }
  return steps;
}

async function askEveryWay(container, query) {
  const spec = { query: query.query, parameters: query.parameters };
  for (const { name, ask, options } of ways) {
    const refusal = refusalOf(query, options);
    if (refusal) {
      await rejects(() => ask(container, spec, options), refusal, `${name}: not refused`);
    } else if (ask !== resumed || canResume(query, options)) {
      check(name, query, options, await ask(container, spec, options));
    }
  }
}

const needs = (query, what) => query.needs?.includes(what) ?? false;

/** What the error must look like if the query is one that the server refuses, or that the SDK cannot merge. */
function refusalOf(query, options) {
  if (query.status) return { code: query.status };
  if (!options.forceQueryPlan) return undefined;
  if (needs(query, "mixed") || needs(query, "structured")) return /mixed types|unrecognizable type/;
  if (needs(query, "dcount")) return { code: 400, message: /DCount, which the calling client does not support/ };
  return undefined;
}

/** Merging, the SDK resumes after one sort key: of several it forgets that all but the first start over. */
function canResume(query, options) {
  const isSortedDistinct = needs(query, "order") && needs(query, "distinct");
  return !options.forceQueryPlan || !(needs(query, "orders") || isSortedDistinct);
}

function check(way, query, options, rows) {
  if (query.rows === undefined) {
    same(rows.length, query.count, `${way}: ${rows.length} rows instead of ${query.count}`);
    return;
  }
  // Merging distinct rows, the SDK drops those that are falsy.
  const isTruncated = options.forceQueryPlan && needs(query, "falsy");
  const expected = isTruncated ? query.rows.filter(Boolean) : query.rows;
  const arranged = query.ordered ? (list) => list : (list) => list.map(canonical).sort();
  same(arranged(rows), arranged(expected), `${way}: ${JSON.stringify(rows)} instead of ${JSON.stringify(expected)}`);
}

/** A text that is the same for equal values. */
function canonical(value) {
  const sorted = (_, part) =>
    part && typeof part === "object" && !Array.isArray(part) ? Object.fromEntries(Object.entries(part).sort()) : part;
  return JSON.stringify(value, sorted);
}

/** All rows, page by page. */
async function all(container, spec, options) {
  const rows = [];
  const pages = container.items.query(spec, options);
  while (pages.hasMoreResults()) {
    const { resources = [] } = await pages.fetchNext();
    ok(resources.length <= (options.maxItemCount ?? Infinity), "the page is too long");
    rows.push(...resources);
  }
  return rows;
}

/** All rows, with a new iterator after every page that has a continuation. */
async function resumed(container, spec, options) {
  const rows = [];
  let pages = container.items.query(spec, options);
  while (pages.hasMoreResults()) {
    const { resources = [], continuationToken } = await pages.fetchNext();
    rows.push(...resources);
    if (continuationToken && pages.hasMoreResults()) {
      pages = container.items.query(spec, { ...options, continuationToken });
    }
  }
  return rows;
}
