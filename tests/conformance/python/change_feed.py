"""The change feed through the Python SDK, as steps of the scenario: see scenario.py.

Latest versions of a container of several ranges, by partition key, by feed range and whole, from the beginning, from a
time and resumed; then all versions and deletes.
"""

import asyncio
from datetime import datetime, timezone

from azure.cosmos import PartitionKey


def steps(settled, listed, paged, equal):
    """The steps, which share what they make."""
    made = {}

    async def written(id, key, **members):
        await settled(made["container"].upsert_item({"id": id, "pk": key, **members}))

    async def read(container, **options):
        """The changes, and the continuation after them."""
        changes = await listed(container.query_items_change_feed(**options))
        # The SDK puts its own continuation, which covers all ranges, in the place of the server's.
        return changes, container.client_connection.last_response_headers["etag"]

    async def change_feed_container_is_filled(scenario):
        made["container"] = await settled(scenario.database.create_container(
            "changes", partition_key=PartitionKey("/pk"), offer_throughput=20_000))
        for number in range(12):
            await written(str(number), f"p{number % 4}")
        await written("0", "p0", again=True)
        await settled(made["container"].delete_item("4", partition_key="p0"))

    async def change_feed_of_a_partition(scenario):
        changes, end = await read(made["container"], start_time="Beginning", partition_key="p0")
        equal([change["id"] for change in changes], ["8", "0"], "ids")
        assert all(change["_lsn"] > 0 for change in changes)
        await written("8", "p0", again=True)
        changes, _ = await read(made["container"], continuation=end)
        equal([change["id"] for change in changes], ["8"], "ids after the continuation")

    async def change_feed_of_the_container(scenario):
        container = made["container"]
        feed = container.query_items_change_feed(start_time="Beginning", max_item_count=2)
        pages = await paged(feed)
        assert all(len(page) <= 2 for page in pages), pages
        ids = sorted(change["id"] for page in pages for change in page)
        equal(ids, ["0", "1", "10", "11", "2", "3", "5", "6", "7", "8", "9"], "ids")
        ranges = await listed(await settled(container.read_feed_ranges()))
        parts = [await read(container, start_time="Beginning", feed_range=range) for range in ranges]
        equal(sum(len(changes) for changes, _ in parts), 11, "changes in all feed ranges")

    async def change_feed_from_a_time(scenario):
        await asyncio.sleep(1.1)
        time = datetime.now(timezone.utc)
        await asyncio.sleep(1.1)
        await written("late", "p2")
        changes, _ = await read(made["container"], start_time=time)
        equal([change["id"] for change in changes], ["late"], "ids")

    async def change_feed_of_all_versions(scenario):
        container = await settled(scenario.database.create_container(
            "log", partition_key=PartitionKey("/pk"), change_feed_policy={"retentionDuration": 10}))
        mode = "AllVersionsAndDeletes"
        changes, now = await read(container, mode=mode)
        equal(changes, [], "changes before anything happened")
        await settled(container.create_item({"id": "a", "pk": "p", "n": 1}))
        await settled(container.upsert_item({"id": "a", "pk": "p", "n": 2}))
        await settled(container.delete_item("a", partition_key="p"))
        changes, _ = await read(container, mode=mode, continuation=now)
        told = [
            (change["metadata"]["operationType"], change["current"].get("n"), change.get("previous", {}).get("n"))
            for change in changes
        ]
        equal(told, [("create", 1, None), ("replace", 2, None), ("delete", None, 2)], "changes")
        equal(changes[2]["metadata"]["id"], "a", "id of the delete")
        equal(changes[2]["metadata"]["partitionKey"], {"pk": "p"}, "key of the delete")

    return [
        change_feed_container_is_filled, change_feed_of_a_partition, change_feed_of_the_container,
        change_feed_from_a_time, change_feed_of_all_versions,
    ]
