//! The change feed through the Rust SDK: latest versions of a container of several ranges, by partition key and whole,
//! from the beginning and resumed; then all versions and deletes.

use std::time::Duration;

use azure_data_cosmos::PartitionKey;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::{
    ChangeFeedItem, ChangeFeedPolicy, ContainerProperties, ThroughputProperties,
};
use azure_data_cosmos::options::{
    ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom, CreateContainerOptions,
};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::{Outcome, Scenario, same};

impl Scenario {
    pub(crate) async fn change_feed_is_read(&mut self) -> Outcome {
        let properties = ContainerProperties::new("changes", "/pk".into());
        let options =
            CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(20_000));
        let changes = self.create_container(properties, Some(options)).await?;
        for n in 0..12 {
            write(&changes, &n.to_string(), &format!("p{}", n % 4), 0).await?;
        }
        write(&changes, "0", "p0", 1).await?;
        changes.delete_item("p0", "4", None).await?;

        let beginning = ChangeFeedStartFrom::Beginning;
        let partition = FeedScope::partition(PartitionKey::from("p0"));
        let (items, _) = read(&changes, partition, beginning.clone(), None).await?;
        same("ids of a partition", &ids(&items), &vec!["8", "0"])?;
        let everything = FeedScope::full_container();
        let (items, end) = read(&changes, everything.clone(), beginning.clone(), None).await?;
        let mut all = ids(&items);
        all.sort();
        same("ids", &all, &vec!["0", "1", "10", "11", "2", "3", "5", "6", "7", "8", "9"])?;

        write(&changes, "new", "p1", 0).await?;
        let resumed = ChangeFeedOptions::default().with_continuation_token(end);
        let (items, _) = read(&changes, everything, beginning, Some(resumed)).await?;
        same("ids after the continuation", &ids(&items), &vec!["new"])
    }

    pub(crate) async fn change_feed_has_all_versions(&mut self) -> Outcome {
        let policy = ChangeFeedPolicy::default().with_retention_duration(Duration::from_secs(600));
        let properties =
            ContainerProperties::new("log", "/pk".into()).with_change_feed_policy(policy);
        let log = self.create_container(properties, None).await?;
        let everything = FeedScope::full_container();
        let options = ChangeFeedOptions::default().with_mode(ChangeFeedMode::AllVersionsAndDeletes);
        let now = ChangeFeedStartFrom::Now;
        let (items, start) =
            read(&log, everything.clone(), now.clone(), Some(options.clone())).await?;
        same("changes before anything happened", &items.len(), &0)?;
        write(&log, "a", "p", 1).await?;
        write(&log, "a", "p", 2).await?;
        log.delete_item("p", "a", None).await?;
        let options = options.with_continuation_token(start);
        let (items, _) = read(&log, everything, now, Some(options)).await?;
        let told: Vec<String> = items
            .iter()
            .map(|item| {
                let operation = item.operation_type().map(|kind| format!("{kind:?}"));
                let n = |document: Option<&Value>| document.and_then(|d| d["n"].as_i64());
                format!("{:?} {:?} {:?}", operation, n(item.current()), n(item.previous()))
            })
            .collect();
        same(
            "changes",
            &told,
            &vec![
                r#"Some("Create") Some(1) None"#.to_owned(),
                r#"Some("Replace") Some(2) None"#.to_owned(),
                r#"Some("Delete") None Some(2)"#.to_owned(),
            ],
        )
    }
}

type Token = azure_data_cosmos::feed::ContinuationToken;

async fn write(container: &ContainerClient, id: &str, key: &str, n: i64) -> Outcome {
    let document = json!({"id": id, "pk": key, "n": n});
    container.upsert_item(key.to_owned(), id, document, None).await?;
    Ok(())
}

/// All changes until there are no more, and where to go on.
async fn read(
    container: &ContainerClient,
    scope: FeedScope,
    start: ChangeFeedStartFrom,
    options: Option<ChangeFeedOptions>,
) -> Outcome<(Vec<ChangeFeedItem<Value>>, Token)> {
    let mut pages = container.query_change_feed::<Value>(scope, start, options).await?;
    let mut items = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page?.into_items();
        if page.is_empty() {
            break;
        }
        items.extend(page);
    }
    Ok((items, pages.to_continuation_token()?))
}

fn ids(items: &[ChangeFeedItem<Value>]) -> Vec<&str> {
    let documents = items.iter().filter_map(ChangeFeedItem::current);
    documents.map(|document| document["id"].as_str().unwrap_or_default()).collect()
}
