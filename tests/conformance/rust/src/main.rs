//! One scenario over the Rust SDK.
//!
//! The connection string comes from ORRERY_CONNECTION_STRING; the last line printed is `N passed, M failed` and the
//! exit code is 1 if M is not 0. The steps run in order and build on each other. The SDK reads documents in feeds only
//! by query or change feed, so no feed is here; queries are in a module of their own. It writes documents in a binary
//! form of JSON unless told not to, and it is not told.

mod change_feed;
mod queries;

use std::error::Error;
use std::fmt::Debug;
use std::process::ExitCode;

use azure_core::Uuid;
use azure_core::http::StatusCode;
use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::models::{
    ContainerProperties, PatchInstructions, PatchOperation, ThroughputProperties,
};
use azure_data_cosmos::options::{
    BatchOptions, ConnectionPoolOptions, ContentResponseOnWrite, CreateContainerOptions,
    ItemWriteOptions, OperationOptions, PatchItemOptions, PatchStrategy, Precondition, Region,
    ServerCertificateValidation,
};
use azure_data_cosmos::{
    AccountEndpoint, AccountReference, CosmosClient, CosmosError, CosmosRuntime, PartitionKey,
    RoutingStrategy, TransactionalBatch,
};
use serde_json::{Value, json};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> ExitCode {
    let connection_string = std::env::var("ORRERY_CONNECTION_STRING").unwrap_or_default();
    let client = match connect(&connection_string).await {
        Ok(client) => client,
        Err(error) => {
            eprintln!("cannot connect: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (passed, failed) = play(client).await;
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Connects as the SDK does by default, but trusts the self-signed certificate of a server on this machine.
async fn connect(connection_string: &str) -> Outcome<CosmosClient> {
    let part = |name: &str| {
        connection_string
            .split(';')
            .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
            .ok_or_else(|| format!("no {name} in the connection string"))
    };
    let endpoint: AccountEndpoint = part("AccountEndpoint")?.parse()?;
    let key = part("AccountKey")?.to_owned();
    let pool = ConnectionPoolOptions::builder()
        .with_server_certificate_validation(ServerCertificateValidation::RequiredUnlessEmulator)
        .build()?;
    let runtime = CosmosRuntime::builder().with_connection_pool(pool).build().await?;
    let account = AccountReference::with_authentication_key(endpoint, key);
    let routing = RoutingStrategy::ProximityTo(Region::EAST_US_2);
    Ok(CosmosClient::builder().with_runtime(runtime).build(account, routing).await?)
}

/// Plays every step, prints those that fail, and returns how many passed and failed.
async fn play(client: CosmosClient) -> (u32, u32) {
    let mut scenario = Scenario::new(client);
    let (mut passed, mut failed) = (0, 0);
    macro_rules! steps {
        ($($step:ident),* $(,)?) => {$(
            match scenario.$step().await {
                Ok(()) => passed += 1,
                Err(error) => {
                    failed += 1;
                    eprintln!("FAILED {}: {error}", stringify!($step));
                }
            }
        )*};
    }
    steps!(
        database_is_created_and_read,
        container_is_created_and_read,
        document_round_trips,
        document_is_replaced,
        document_is_upserted,
        document_is_patched,
        write_without_body,
        missing_document_is_404,
        taken_id_is_409,
        stale_etag_is_412,
        batch_is_applied_whole,
        failed_batch_leaves_nothing,
        hierarchical_key_separates_documents,
        null_and_absent_keys_differ,
        throughput_is_read_and_replaced,
        container_with_several_ranges_is_filled,
    );
    for (name, outcome) in scenario.ask_queries().await {
        match outcome {
            Ok(()) => passed += 1,
            Err(error) => {
                failed += 1;
                eprintln!("FAILED query: {name}: {error}");
            }
        }
    }
    steps!(change_feed_is_read, change_feed_has_all_versions, database_is_deleted);
    (passed, failed)
}

struct Scenario {
    client: CosmosClient,
    database_id: String,
    orders: Option<ContainerClient>,
    ranges: Option<(queries::Script, ContainerClient)>,
}

impl Scenario {
    fn new(client: CosmosClient) -> Self {
        Self {
            client,
            database_id: format!("conformance-{}", Uuid::new_v4()),
            orders: None,
            ranges: None,
        }
    }

    fn database(&self) -> DatabaseClient {
        self.client.database_client(self.database_id.clone())
    }

    fn orders(&self) -> Outcome<&ContainerClient> {
        Ok(self.orders.as_ref().ok_or("the container was not created")?)
    }

    async fn create_container(
        &self,
        properties: ContainerProperties,
        options: Option<CreateContainerOptions>,
    ) -> Outcome<ContainerClient> {
        let id = properties.id.clone();
        self.database().create_container(properties, options).await?;
        Ok(self.database().container_client(id.into_owned(), None).await?)
    }

    async fn database_is_created_and_read(&mut self) -> Outcome {
        self.client.create_database(&self.database_id, None).await?;
        let read = self.database().read(None).await?.into_model()?;
        same("id", &read.id, &Some(self.database_id.clone()))?;
        refused(StatusCode::Conflict, self.client.create_database(&self.database_id, None).await)
    }

    async fn container_is_created_and_read(&mut self) -> Outcome {
        let throughput = ThroughputProperties::manual(400);
        let orders = self
            .create_container(
                ContainerProperties::new("orders", "/customer".into()),
                Some(CreateContainerOptions::default().with_throughput(throughput)),
            )
            .await?;
        let read = orders.read(None).await?.into_model()?;
        same("paths", &read.partition_key.paths()[0].to_string(), &"/customer".to_owned())?;
        self.orders = Some(orders);
        Ok(())
    }

    async fn document_round_trips(&mut self) -> Outcome {
        let written = json!({
            "id": "a", "customer": "x", "total": 1.5, "lines": [{"sku": "s"}, null, true, "日本 🎉"], "empty": {},
            "none": null, "negative": -7, "large": 9007199254740991_i64, "text": "long ".repeat(100), "list": [],
        });
        let created: Value = self
            .orders()?
            .create_item("x", "a", &written, Some(with_body()))
            .await?
            .into_model()?;
        let read = read(self.orders()?, "a", "x").await?;
        for (name, value) in written.as_object().expect("an object was written") {
            same(name, &read[name], value)?;
        }
        same("document answered and document read", &created, &read)
    }

    async fn document_is_replaced(&mut self) -> Outcome {
        let before = read(self.orders()?, "a", "x").await?;
        let body = json!({"id": "a", "customer": "x", "total": 2});
        let replaced: Value =
            self.orders()?.replace_item("x", "a", &body, Some(with_body())).await?.into_model()?;
        same("total", &replaced["total"], &json!(2))?;
        same("lines", &replaced.get("lines"), &None)?;
        same("_rid", &replaced["_rid"], &before["_rid"])?;
        same("etag is kept", &(replaced["_etag"] == before["_etag"]), &false)
    }

    async fn document_is_upserted(&mut self) -> Outcome {
        let orders = self.orders()?;
        let first = json!({"id": "b", "customer": "x", "total": 1});
        let created = orders.upsert_item("x", "b", &first, None).await?;
        same("first status", &created.status().status_code(), &StatusCode::Created)?;
        let second = json!({"id": "b", "customer": "x", "total": 5});
        let replaced = orders.upsert_item("x", "b", &second, None).await?;
        same("second status", &replaced.status().status_code(), &StatusCode::Ok)?;
        same("total", &read(orders, "b", "x").await?["total"], &json!(5))
    }

    async fn document_is_patched(&mut self) -> Outcome {
        let orders = self.orders()?;
        // The SDK has two ways to patch: the server's, and a replace guarded by the etag.
        for strategy in [PatchStrategy::ServerSide, PatchStrategy::ClientSide] {
            let patch = PatchInstructions::new()
                .with_operation(PatchOperation::set("/note", json!("n")))
                .with_operation(PatchOperation::increment("/total", 10_i64))
                .with_operation(PatchOperation::move_value("/note", "/remark"));
            let options = PatchItemOptions::default().with_strategy(strategy);
            orders.patch_item("x", "b", patch, Some(options)).await?;
        }
        let patched = read(orders, "b", "x").await?;
        same("total", &patched["total"], &json!(25))?;
        same("remark", &patched["remark"], &json!("n"))?;
        same("note", &patched.get("note"), &None)
    }

    async fn write_without_body(&mut self) -> Outcome {
        let body = json!({"id": "b", "customer": "x"});
        let response = self.orders()?.replace_item("x", "b", &body, None).await?;
        let etag = response.headers().etag().map(|etag| etag.to_string()).unwrap_or_default();
        same("body is empty", &response.into_body().is_empty(), &true)?;
        same("etag", &json!(etag), &read(self.orders()?, "b", "x").await?["_etag"])
    }

    async fn missing_document_is_404(&mut self) -> Outcome {
        let orders = self.orders()?;
        refused(StatusCode::NotFound, orders.read_item("x", "missing", None).await)?;
        refused(StatusCode::NotFound, orders.delete_item("another key", "a", None).await)
    }

    async fn taken_id_is_409(&mut self) -> Outcome {
        let body = json!({"id": "a", "customer": "x"});
        refused(StatusCode::Conflict, self.orders()?.create_item("x", "a", &body, None).await)
    }

    async fn stale_etag_is_412(&mut self) -> Outcome {
        let orders = self.orders()?;
        let response = orders.read_item("x", "a", None).await?;
        let etag = response.headers().etag().ok_or("no etag")?.clone();
        let stale = ItemWriteOptions::default().with_precondition(Precondition::if_match(etag));
        let body = json!({"id": "a", "customer": "x", "total": 3});
        orders.replace_item("x", "a", &body, Some(stale.clone())).await?;
        let replaced = orders.replace_item("x", "a", &body, Some(stale.clone())).await;
        refused(StatusCode::PreconditionFailed, replaced)?;
        refused(StatusCode::PreconditionFailed, orders.delete_item("x", "a", Some(stale)).await)
    }

    async fn batch_is_applied_whole(&mut self) -> Outcome {
        let orders = self.orders()?;
        let batch = TransactionalBatch::new("x")
            .create_item(json!({"id": "c", "customer": "x", "total": 1}))?
            .upsert_item(json!({"id": "d", "customer": "x", "total": 1}), None)?
            .read_item("c", None)
            .replace_item("d", json!({"id": "d", "customer": "x", "total": 9}), None)?
            .delete_item("b", None);
        let options = BatchOptions::default().with_operation_options(content_on_write());
        let response = orders.execute_transactional_batch(batch, Some(options)).await?;
        same("status", &response.status().status_code(), &StatusCode::Ok)?;
        let response = response.into_model()?;
        let statuses: Vec<_> = response.results().iter().map(|each| each.status_code()).collect();
        same("statuses", &statuses, &vec![201, 201, 200, 200, 204])?;
        let seen: Option<Value> = response.results()[2].into_model()?;
        same("total seen inside the batch", &seen.ok_or("no body")?["total"], &json!(1))?;
        same("total", &read(orders, "d", "x").await?["total"], &json!(9))
    }

    async fn failed_batch_leaves_nothing(&mut self) -> Outcome {
        let orders = self.orders()?;
        let batch = TransactionalBatch::new("x")
            .create_item(json!({"id": "e", "customer": "x"}))?
            .create_item(json!({"id": "a", "customer": "x"}))?
            .delete_item("d", None);
        let response = orders.execute_transactional_batch(batch, None).await?;
        same("status", &response.status().status_code(), &StatusCode::MultiStatus)?;
        let response = response.into_model()?;
        let statuses: Vec<_> = response.results().iter().map(|each| each.status_code()).collect();
        same("statuses", &statuses, &vec![424, 409, 424])?;
        refused(StatusCode::NotFound, orders.read_item("x", "e", None).await)?;
        same("total", &read(orders, "d", "x").await?["total"], &json!(9))
    }

    async fn hierarchical_key_separates_documents(&mut self) -> Outcome {
        let paths = ("/tenant", "/user", "/day").into();
        let events = self.create_container(ContainerProperties::new("events", paths), None).await?;
        let key = |day: i64| PartitionKey::from(("t", "u", day));
        for day in [1, 2] {
            let body = json!({"id": "e", "tenant": "t", "user": "u", "day": day});
            events.create_item(key(day), "e", &body, None).await?;
        }
        events.delete_item(key(1), "e", None).await?;
        refused(StatusCode::NotFound, events.read_item(key(1), "e", None).await)?;
        same("day", &read(&events, "e", key(2)).await?["day"], &json!(2))
    }

    async fn null_and_absent_keys_differ(&mut self) -> Outcome {
        let properties = ContainerProperties::new("loose", "/key".into());
        let loose = self.create_container(properties, None).await?;
        let keys: [(Value, PartitionKey); 5] = [
            (json!({"id": "k", "key": null, "is": "null"}), PartitionKey::NULL.into()),
            (json!({"id": "k", "is": "absent"}), PartitionKey::UNDEFINED.into()),
            (json!({"id": "k", "key": "", "is": "empty"}), "".into()),
            (json!({"id": "k", "key": false, "is": "false"}), false.into()),
            (json!({"id": "k", "key": 0, "is": "zero"}), 0_i64.into()),
        ];
        for (body, key) in &keys {
            loose.create_item(key.clone(), "k", body, None).await?;
        }
        for (body, key) in &keys {
            same("document", &read(&loose, "k", key.clone()).await?["is"], &body["is"])?;
        }
        loose.delete_item(PartitionKey::UNDEFINED, "k", None).await?;
        refused(StatusCode::NotFound, loose.read_item(PartitionKey::UNDEFINED, "k", None).await)
    }

    async fn throughput_is_read_and_replaced(&mut self) -> Outcome {
        let orders = self.orders()?;
        let before = orders.read_throughput(None).await?.ok_or("no throughput")?;
        same("throughput", &before.throughput(), &Some(400))?;
        let poller =
            orders.begin_replace_throughput(ThroughputProperties::manual(500), None).await?;
        same("throughput", &poller.await?.into_model()?.throughput(), &Some(500))?;
        let after = orders.read_throughput(None).await?.ok_or("no throughput")?;
        same("throughput", &after.throughput(), &Some(500))
    }

    async fn container_with_several_ranges_is_filled(&mut self) -> Outcome {
        let script = queries::Script::read(&std::env::var("ORRERY_CONFORMANCE_QUERIES")?)?;
        let container = script.fill(&self.database()).await?;
        self.ranges = Some((script, container));
        Ok(())
    }

    /// Asks every query, and says how each went.
    async fn ask_queries(&self) -> Vec<(String, Outcome)> {
        let mut outcomes = Vec::new();
        let Some((script, container)) = &self.ranges else { return outcomes };
        for query in script.queries() {
            let outcome = queries::ask(container, query).await;
            outcomes.push((query["name"].as_str().unwrap_or_default().to_owned(), outcome));
        }
        outcomes
    }

    async fn database_is_deleted(&mut self) -> Outcome {
        self.database().delete(None).await?;
        refused(StatusCode::NotFound, self.database().read(None).await)
    }
}

/// The SDK drops the body of a written document unless asked for it.
fn content_on_write() -> OperationOptions {
    let mut options = OperationOptions::default();
    options.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
    options
}

fn with_body() -> ItemWriteOptions {
    ItemWriteOptions::default().with_operation_options(content_on_write())
}

async fn read(
    container: &ContainerClient,
    id: &str,
    key: impl Into<PartitionKey>,
) -> Outcome<Value> {
    Ok(container.read_item(key, id, None).await?.into_model()?)
}

fn same<T: PartialEq + Debug>(what: &str, actual: &T, expected: &T) -> Outcome {
    if actual == expected {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, got {actual:?}").into())
}

/// Asserts that the call failed with the SDK's own error type and this status.
fn refused<T>(status: StatusCode, result: Result<T, CosmosError>) -> Outcome {
    match result {
        Ok(_) => Err(format!("expected status {status}, but the call succeeded").into()),
        Err(error) => same("status", &error.status().status_code(), &status),
    }
}
