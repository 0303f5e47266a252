import com.azure.cosmos.*;
import com.azure.cosmos.models.*;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;

/** Writes a document and reads it, and whatever is written later, from the change feed. */
public class Feed {
    public static void main(String[] arguments) throws InterruptedException {
        CosmosClient client = new CosmosClientBuilder()
            .endpoint("https://localhost:8081/").key("C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==").gatewayMode().buildClient();
        client.createDatabaseIfNotExists("shop");
        CosmosDatabase database = client.getDatabase("shop");
        database.createContainerIfNotExists("orders", "/customer");
        database.getContainer("orders").upsertItem(Map.of("id", "1", "customer", "ada", "total", 12.5));

        CosmosAsyncDatabase shop = new CosmosClientBuilder()
            .endpoint("https://localhost:8081/").key("C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==").gatewayMode().contentResponseOnWriteEnabled(true)
            .buildAsyncClient().getDatabase("shop");
        shop.createContainerIfNotExists("leases", "/id").block();
        ChangeFeedProcessor processor = new ChangeFeedProcessorBuilder()
            .hostName("worker-1")
            .feedContainer(shop.getContainer("orders"))
            .leaseContainer(shop.getContainer("leases"))
            .options(new ChangeFeedProcessorOptions().setStartFromBeginning(true))
            .handleChanges((List<JsonNode> changes) -> changes.forEach(System.out::println))
            .buildChangeFeedProcessor();
        processor.start().block();
        Thread.currentThread().join(); // it works in the background, until the program ends
    }
}
