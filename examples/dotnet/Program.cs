// Writes a document and reads it, and whatever is written later, from the change feed.

using Microsoft.Azure.Cosmos;

var client = new CosmosClient("AccountEndpoint=https://localhost:8081/;AccountKey=C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==;DisableServerCertificateValidation=True;",
    new CosmosClientOptions { ConnectionMode = ConnectionMode.Gateway });
Database shop = await client.CreateDatabaseIfNotExistsAsync("shop");
Container orders = await shop.CreateContainerIfNotExistsAsync("orders", "/customer");
await orders.UpsertItemAsync(new { id = "1", customer = "ada", total = 12.5 });

Container leases = await shop.CreateContainerIfNotExistsAsync("leases", "/id");
ChangeFeedProcessor processor = orders
    .GetChangeFeedProcessorBuilder<dynamic>("printer", (changes, token) => { foreach (var c in changes) Console.WriteLine(c); return Task.CompletedTask; })
    .WithInstanceName("worker-1")
    .WithLeaseContainer(leases)
    .WithStartTime(DateTime.MinValue.ToUniversalTime())
    .Build();
await processor.StartAsync();
Console.ReadLine(); // it works in the background, until the program ends
