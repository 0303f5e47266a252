//! Writes a document and reads it, and whatever is written later, from the change feed.

use std::time::Duration;

use azure_data_cosmos::{AccountEndpoint, AccountReference, CosmosClient, RoutingStrategy};
use azure_data_cosmos::{feed::FeedScope, options::ChangeFeedStartFrom};
use azure_data_cosmos::{models::ContainerProperties, options::Region};
use futures::StreamExt;
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoint: AccountEndpoint = "http://localhost:8081/".parse()?;
    let account = AccountReference::with_authentication_key(endpoint, "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==".to_owned());
    let client = CosmosClient::builder().build(account, RoutingStrategy::ProximityTo(Region::EAST_US_2)).await?;
    // Both are refused when they are there already.
    let _ = client.create_database("shop", None).await;
    let database = client.database_client("shop");
    let _ = database.create_container(ContainerProperties::new("orders", "/customer".into()), None).await;
    let container = database.container_client("orders", None).await?;
    container.upsert_item("ada", "1", &serde_json::json!({"id": "1", "customer": "ada", "total": 12.5}), None).await?;

    let everything = FeedScope::full_container();
    let mut pages = container.query_change_feed::<Value>(everything, ChangeFeedStartFrom::Beginning, None).await?;
    while let Some(page) = pages.next().await {
        let changes = page?.into_items();
        if changes.is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        for change in changes {
            println!("{:?}", change.current());
        }
    }
    Ok(())
}
