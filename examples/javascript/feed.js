import { ChangeFeedStartFrom, CosmosClient } from "@azure/cosmos";

const client = new CosmosClient("AccountEndpoint=http://localhost:8081/;AccountKey=C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==;");
const { database } = await client.databases.createIfNotExists({ id: "shop" });
const { container } = await database.containers.createIfNotExists({ id: "orders", partitionKey: "/customer" });
await container.items.upsert({ id: "1", customer: "ada", total: 12.5 });

const feed = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning() });
while (feed.hasMoreResults) {
  const page = await feed.readNext();
  if (page.statusCode === 304) await new Promise((resolve) => setTimeout(resolve, 1000));
  else for (const change of page.result) console.log(change._lsn, change.id);
  // page.continuationToken starts a later iterator: ChangeFeedStartFrom.Continuation(token)
}
