import time

from azure.cosmos import CosmosClient, PartitionKey

client = CosmosClient.from_connection_string("AccountEndpoint=http://localhost:8081/;AccountKey=C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==;")
database = client.create_database_if_not_exists("shop")
container = database.create_container_if_not_exists("orders", PartitionKey(path="/customer"))
container.upsert_item({"id": "1", "customer": "ada", "total": 12.5})
print(container.read_item("1", partition_key="ada"))

continuation = None
while True:
    start = {"continuation": continuation} if continuation else {"start_time": "Beginning"}
    for change in container.query_items_change_feed(**start):
        print(change["_lsn"], change["id"])
    continuation = container.client_connection.last_response_headers["etag"]
    time.sleep(1)
