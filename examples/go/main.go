// Writes a document and reads it, and whatever is written later, from the change feed.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func main() {
	ctx := context.Background()
	client, err := azcosmos.NewClientFromConnectionString("AccountEndpoint=http://localhost:8081/;AccountKey=C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==;", nil)
	_, err = client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "shop"}, nil)
	database, err := client.NewDatabase("shop")
	key := azcosmos.PartitionKeyDefinition{Paths: []string{"/customer"}}
	_, err = database.CreateContainer(ctx, azcosmos.ContainerProperties{ID: "orders", PartitionKeyDefinition: key}, nil)
	container, err := database.NewContainer("orders")
	item := []byte(`{"id": "1", "customer": "ada", "total": 12.5}`)
	if _, err = container.UpsertItem(ctx, azcosmos.NewPartitionKeyString("ada"), item, nil); err != nil {
		panic(err)
	}

	ranges, err := container.ReadFeedRanges(ctx, nil)
	if err != nil {
		panic(err)
	}
	continuations := make([]*string, len(ranges))
	for {
		for i := range ranges {
			options := azcosmos.ChangeFeedOptions{FeedRange: &ranges[i], Continuation: continuations[i]}
			page, err := container.ReadChangeFeed(ctx, &options)
			if err != nil {
				panic(err)
			}
			for _, change := range page.Items {
				fmt.Println(string(change))
			}
			continuations[i] = to.Ptr(page.ContinuationToken)
		}
		time.Sleep(time.Second)
	}
}
