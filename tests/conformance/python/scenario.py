"""One scenario over the Python SDK, played with its blocking client and again with its asyncio client.

Both clients have the same methods and differ only in that one returns results and the other awaitables, so the
scenario is written once: `settled` awaits what needs awaiting. The connection string comes from the environment
variable ORRERY_CONNECTION_STRING. The last line printed is `N passed, M failed`; the exit code is 1 if M is not 0.
"""

import asyncio
import inspect
import os
import sys
import traceback
import uuid

from azure.core import MatchConditions
from azure.cosmos import CosmosClient, PartitionKey, exceptions
from azure.cosmos.aio import CosmosClient as AsyncCosmosClient
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue

import change_feed


async def settled(result):
    """The result itself from the blocking client, what it resolves to from the other."""
    return await result if inspect.isawaitable(result) else result


async def listed(feed):
    """All elements of a feed of either client."""
    if hasattr(feed, "__aiter__"):
        return [element async for element in feed]
    return list(feed)


async def paged(feed):
    """The pages of a feed of either client, each as a list."""
    pages = feed.by_page()
    if hasattr(pages, "__aiter__"):
        return [await listed(page) async for page in pages]
    return [list(page) for page in pages]


def equal(actual, expected, what="value"):
    assert actual == expected, f"{what}: expected {expected!r}, got {actual!r}"


async def refused(error_type, status, result_of):
    """Asserts that the SDK reports the call as `error_type` with `status`, and returns the error."""
    try:
        await settled(result_of())
    except error_type as error:
        equal(error.status_code, status, "status")
        return error
    raise AssertionError(f"expected {error_type.__name__} with status {status}, but the call succeeded")


class Scenario:
    """The steps, in order; each takes up where the one before it ended."""

    def __init__(self, client):
        self.client = client
        self.database_id = "conformance-" + uuid.uuid4().hex

    async def database_is_created_and_read(self):
        self.database = await settled(self.client.create_database(self.database_id))
        properties = await settled(self.database.read())
        equal(properties["id"], self.database_id, "id")
        await refused(
            exceptions.CosmosResourceExistsError, 409,
            lambda: self.client.create_database(self.database_id))

    async def container_is_created_and_read(self):
        self.container = await settled(self.database.create_container(
            "orders", partition_key=PartitionKey("/customer"), offer_throughput=400))
        properties = await settled(self.container.read())
        equal(properties["partitionKey"], {"paths": ["/customer"], "kind": "Hash", "version": 2}, "partition key")
        equal([c["id"] for c in await listed(self.database.list_containers())], ["orders"], "containers")

    async def document_round_trips(self):
        document = {
            "id": "a", "customer": "x", "total": 1.5, "lines": [{"sku": "s", "count": 2}, None, True, "日本 🎉"],
            "empty": {}, "none": None, "negative": -7, "large": 9007199254740991,
        }
        created = await settled(self.container.create_item(document))
        read = await settled(self.container.read_item("a", "x"))
        for name, value in document.items():
            equal(created[name], value, name)
            equal(read[name], value, name)
        for name in ("_rid", "_self", "_etag", "_ts"):
            equal(read[name], created[name], name)

    async def document_is_replaced(self):
        before = await settled(self.container.read_item("a", "x"))
        replaced = await settled(self.container.replace_item("a", {"id": "a", "customer": "x", "total": 2}))
        equal(replaced["total"], 2, "total")
        assert "lines" not in replaced, "a replace keeps nothing of the old document"
        assert replaced["_etag"] != before["_etag"], "a replace changes the etag"
        equal(replaced["_rid"], before["_rid"], "_rid")

    async def document_is_upserted(self):
        created = await settled(self.container.upsert_item({"id": "b", "customer": "x", "total": 1}))
        replaced = await settled(self.container.upsert_item({"id": "b", "customer": "x", "total": 5}))
        equal(replaced["total"], 5, "total")
        equal(replaced["_rid"], created["_rid"], "_rid")

    async def document_is_patched(self):
        patched = await settled(self.container.patch_item("b", "x", [
            {"op": "add", "path": "/tags", "value": ["new"]},
            {"op": "set", "path": "/note", "value": "n"},
            {"op": "incr", "path": "/total", "value": 10},
            {"op": "move", "from": "/note", "path": "/remark"},
        ]))
        equal((patched["tags"], patched["total"], patched["remark"]), (["new"], 15, "n"), "patched fields")
        assert "note" not in patched, "a moved field is gone from its old place"
        await refused(
            exceptions.CosmosHttpResponseError, 400,
            lambda: self.container.patch_item("b", "x", [{"op": "replace", "path": "/missing", "value": 1}]))

    async def patch_condition_is_checked(self):
        operations = [{"op": "set", "path": "/total", "value": 0}]
        await refused(
            exceptions.CosmosAccessConditionFailedError, 412,
            lambda: self.container.patch_item(
                "b", "x", operations, filter_predicate="from c where c.total = 16"))
        patched = await settled(self.container.patch_item(
            "b", "x", operations, filter_predicate="from c where c.total = 15"))
        equal(patched["total"], 0, "total")

    async def missing_document_is_404(self):
        await refused(
            exceptions.CosmosResourceNotFoundError, 404, lambda: self.container.read_item("missing", "x"))
        await refused(
            exceptions.CosmosResourceNotFoundError, 404, lambda: self.container.delete_item("a", "another key"))

    async def taken_id_is_409(self):
        await refused(
            exceptions.CosmosResourceExistsError, 409,
            lambda: self.container.create_item({"id": "a", "customer": "x"}))

    async def stale_etag_is_412(self):
        stale = (await settled(self.container.read_item("a", "x")))["_etag"]
        body = {"id": "a", "customer": "x", "total": 3}
        await settled(self.container.replace_item(
            "a", body, etag=stale, match_condition=MatchConditions.IfNotModified))
        await refused(
            exceptions.CosmosAccessConditionFailedError, 412,
            lambda: self.container.replace_item(
                "a", body, etag=stale, match_condition=MatchConditions.IfNotModified))
        await refused(
            exceptions.CosmosAccessConditionFailedError, 412,
            lambda: self.container.delete_item(
                "a", "x", etag=stale, match_condition=MatchConditions.IfNotModified))

    async def batch_is_applied_whole(self):
        results = await settled(self.container.execute_item_batch([
            ("create", ({"id": "c", "customer": "x", "total": 1},)),
            ("upsert", ({"id": "d", "customer": "x", "total": 1},)),
            ("patch", ("c", [{"op": "incr", "path": "/total", "value": 1}])),
            ("read", ("c",)),
            ("replace", ("d", {"id": "d", "customer": "x", "total": 9})),
            ("delete", ("b",)),
        ], partition_key="x"))
        equal([result["statusCode"] for result in results], [201, 201, 200, 200, 200, 204], "statuses")
        equal(results[3]["resourceBody"]["total"], 2, "total seen inside the batch")
        equal((await settled(self.container.read_item("d", "x")))["total"], 9, "total")

    async def failed_batch_leaves_nothing(self):
        error = await refused(
            exceptions.CosmosBatchOperationError, 409,
            lambda: self.container.execute_item_batch([
                ("create", ({"id": "e", "customer": "x"},)),
                ("create", ({"id": "a", "customer": "x"},)),
                ("delete", ("d",)),
            ], partition_key="x"))
        equal([result["statusCode"] for result in error.operation_responses], [424, 409, 424], "statuses")
        equal(error.error_index, 1, "index of the failed operation")
        await refused(exceptions.CosmosResourceNotFoundError, 404, lambda: self.container.read_item("e", "x"))
        equal((await settled(self.container.read_item("d", "x")))["total"], 9, "total")

    async def hierarchical_key_separates_documents(self):
        container = await settled(self.database.create_container(
            "events", partition_key=PartitionKey(path=["/tenant", "/user", "/day"], kind="MultiHash")))
        for day in (1, 2):
            await settled(container.create_item({"id": "e", "tenant": "t", "user": "u", "day": day}))
        equal((await settled(container.read_item("e", ["t", "u", 2])))["day"], 2, "day")
        error = await refused(
            exceptions.CosmosHttpResponseError, 400, lambda: container.read_item("e", ["t", "u"]))
        equal(error.sub_status, 1001, "sub-status")
        await settled(container.delete_item("e", ["t", "u", 1]))
        await refused(exceptions.CosmosResourceNotFoundError, 404, lambda: container.read_item("e", ["t", "u", 1]))
        equal([document["day"] for document in await listed(container.read_all_items())], [2], "days left")

    async def null_and_absent_keys_differ(self):
        container = await settled(self.database.create_container("loose", partition_key=PartitionKey("/key")))
        documents = [
            ({"id": "k", "key": None, "is": "null"}, NullPartitionKeyValue),
            ({"id": "k", "is": "absent"}, NonePartitionKeyValue),
            ({"id": "k", "key": "", "is": "empty"}, ""),
            ({"id": "k", "key": False, "is": "false"}, False),
            ({"id": "k", "key": 0, "is": "zero"}, 0),
        ]
        for document, _ in documents:
            await settled(container.create_item(document))
        for document, key in documents:
            equal((await settled(container.read_item("k", key)))["is"], document["is"], "document")
        await settled(container.delete_item("k", NonePartitionKeyValue))
        await refused(
            exceptions.CosmosResourceNotFoundError, 404, lambda: container.read_item("k", NonePartitionKeyValue))
        equal((await settled(container.read_item("k", NullPartitionKeyValue)))["is"], "null", "document")

    async def throughput_is_read_and_replaced(self):
        equal((await settled(self.container.get_throughput())).offer_throughput, 400, "throughput")
        equal((await settled(self.container.replace_throughput(500))).offer_throughput, 500, "throughput")
        equal((await settled(self.container.get_throughput())).offer_throughput, 500, "throughput")

    async def feed_is_read_in_pages(self):
        container = await settled(self.database.create_container("pages", partition_key=PartitionKey("/pk")))
        for number in range(7):
            await settled(container.create_item({"id": str(number), "pk": "p"}))
        pages = await paged(container.read_all_items(max_item_count=3))
        equal([len(page) for page in pages], [3, 3, 1], "page sizes")
        equal([document["id"] for page in pages for document in page], [str(n) for n in range(7)], "order")

    async def key_is_emptied(self):
        container = self.database.get_container_client("pages")
        await settled(container.create_item({"id": "kept", "pk": "q"}))
        await settled(container.delete_all_items_by_partition_key("p"))
        equal([document["id"] for document in await listed(container.read_all_items())], ["kept"], "documents")

    async def database_is_deleted(self):
        await settled(self.client.delete_database(self.database_id))
        await refused(exceptions.CosmosResourceNotFoundError, 404, lambda: self.database.read())

    STEPS = [
        database_is_created_and_read, container_is_created_and_read, document_round_trips, document_is_replaced,
        document_is_upserted, document_is_patched, patch_condition_is_checked, missing_document_is_404,
        taken_id_is_409, stale_etag_is_412, batch_is_applied_whole, failed_batch_leaves_nothing,
        hierarchical_key_separates_documents, null_and_absent_keys_differ, throughput_is_read_and_replaced,
        feed_is_read_in_pages, key_is_emptied, *change_feed.steps(settled, listed, paged, equal), database_is_deleted,
    ]


async def play(name, client):
    """Plays every step, prints those that fail, and returns how many passed and failed."""
    scenario = Scenario(client)
    passed = failed = 0
    for step in Scenario.STEPS:
        try:
            await step(scenario)
            passed += 1
        except Exception:  # Anything may come out of an SDK; the other steps still say something.
            failed += 1
            print(f"FAILED {name}: {step.__name__}", file=sys.stderr)
            traceback.print_exc()
    return passed, failed


async def main():
    connection_string = os.environ["ORRERY_CONNECTION_STRING"]
    with CosmosClient.from_connection_string(connection_string) as client:
        outcomes = [await play("sync", client)]
    async with AsyncCosmosClient.from_connection_string(connection_string) as client:
        outcomes.append(await play("async", client))
    passed, failed = map(sum, zip(*outcomes))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
