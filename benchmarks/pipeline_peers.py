"""The fold of a log into tasks by others: DuckDB, Polars, and Celery's State, fed event by event.

DuckDB and Polars get the query that the design gives for the carrier: for each task the event that speaks for
each type, the sets of its receipts, starts, retries and customs, and the state by the same rules. Both write
what they found to Parquet. They hold no history with which a later event could be joined, make no other
table, and check no file.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_DUCKDB = """
COPY (
WITH e AS (
  SELECT uuid, substr(type, 6) AS t, timestamp AS moment,
    CASE type WHEN 'task-sent' THEN 0 ELSE clock END AS clock,
         hostname, pid, coalesce(retries, 0) AS retries, name, queue, root_id, parent_id, runtime, sequence,
         received_at
  FROM read_parquet($log, hive_partitioning = false) WHERE uuid IS NOT NULL AND type LIKE 'task-%'),
a AS (
  SELECT uuid, min(received_at) AS seen_at, min(moment) AS first_at, max(moment) AS last_at,
    max({'retries': retries, 'moment': moment, 'clock': clock, 'host': hostname, 'pid': pid, 'name': name,
          'queue': queue, 'root_id': root_id, 'parent_id': parent_id, 'row': sequence})
      FILTER (t = 'sent') AS sent,
    max({'retries': retries, 'moment': moment, 'clock': clock, 'host': hostname, 'pid': pid, 'name': name,
          'root_id': root_id, 'parent_id': parent_id, 'row': sequence}) FILTER (t = 'received') AS received,
    max({'moment': moment, 'clock': clock, 'host': hostname, 'pid': pid}) FILTER (t = 'started') AS started,
    max({'moment': moment, 'clock': clock, 'host': hostname, 'pid': pid, 'runtime': runtime,
    'row': sequence})
      FILTER (t = 'succeeded') AS succeeded,
    max({'moment': moment, 'clock': clock, 'host': hostname, 'pid': pid, 'row': sequence})
      FILTER (t = 'failed') AS failed,
    max({'moment': moment, 'clock': clock, 'host': hostname, 'pid': pid, 'row': sequence})
      FILTER (t = 'retried') AS retried,
    max({'moment': moment, 'clock': clock, 'host': hostname, 'pid': pid}) FILTER (t = 'revoked') AS revoked,
    list(DISTINCT {'host': hostname, 'pid': pid, 'clock': clock}) FILTER (t = 'retried') AS retries,
    list(DISTINCT {'retries': retries, 'moment': moment, 'clock': clock, 'host': hostname, 'pid': pid})
      FILTER (t = 'received') AS receipts,
    list(DISTINCT {'moment': moment, 'clock': clock, 'host': hostname, 'pid': pid})
      FILTER (t = 'started') AS starts,
    list(DISTINCT {'moment': moment, 'clock': clock, 'host': hostname, 'pid': pid, 't': t})
      FILTER (t NOT IN ('sent', 'received', 'started', 'succeeded', 'failed', 'retried', 'revoked',
    'rejected')) AS customs
  FROM e GROUP BY uuid),
b AS (SELECT *, list_filter(receipts, lambda r: r.retries = received.retries) AS live FROM a),
c AS (SELECT *,
    list_aggregate(list_filter(customs, lambda k: len(list_filter(live,
      lambda r: r.host = k.host AND k.moment >= r.moment)) > 0), 'max') AS custom,
    len(list_filter(starts, lambda s: len(list_filter(live,
      lambda r: r.host = s.host AND r.pid = s.pid AND s.clock > r.clock)) > 0)) > 0 AS is_running
  FROM b)
SELECT uuid, coalesce(received.name, sent.name) AS name,
  CASE WHEN succeeded IS NOT NULL THEN 'SUCCESS' WHEN failed IS NOT NULL THEN 'FAILURE'
       WHEN revoked IS NOT NULL THEN 'REVOKED' WHEN received IS NULL THEN 'PENDING'
       WHEN len(retries) > received.retries THEN 'RETRY' WHEN custom IS NOT NULL THEN upper(custom.t)
       WHEN is_running THEN 'STARTED' ELSE 'RECEIVED' END AS state,
  coalesce(succeeded.host, failed.host, revoked.host, received.host) AS worker,
    sent.host AS client, sent.queue AS queue,
  coalesce(received.root_id, sent.root_id) AS root_id, coalesce(received.parent_id,
    sent.parent_id) AS parent_id,
  coalesce(received.retries, sent.retries) AS retries, len(receipts) AS deliveries,
    len(starts) AS executions,
  sent.moment AS sent_at, received.moment AS received_at, started.moment AS started_at,
    succeeded.moment AS succeeded_at,
  failed.moment AS failed_at, retried.moment AS retried_at, revoked.moment AS revoked_at,
    succeeded.runtime AS runtime,
  first_at, last_at, seen_at, coalesce(received.row, sent.row) AS description_row,
    succeeded.row AS result_row,
  coalesce(failed.row, retried.row) AS error_row
FROM c
) TO '{out}' (FORMAT parquet, COMPRESSION zstd)
"""


def fold_by_duckdb(log: Path, out: Path) -> float:
    """Fold a log into tasks, and return the seconds that took."""
    import duckdb  # noqa: PLC0415 - each side is measured in a process that has loaded no other

    text = _DUCKDB.replace("{out}", str(out))
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        begun = perf_counter()
        connection.execute(text, {"log": f"{log}/events/*/*/*.parquet"})
        return perf_counter() - begun


def fold_by_polars(log: Path, out: Path) -> float:
    """Fold a log into tasks, and return the seconds that took."""
    import polars as pl  # noqa: PLC0415

    begun = perf_counter()
    moment = ["at", "clock", "hostname", "pid"]
    events = (
        pl.scan_parquet(f"{log}/events/*/*/*.parquet", hive_partitioning=False)
        .filter(pl.col("uuid").is_not_null(), pl.col("type").str.starts_with("task-"))
        .select(
            "uuid", "hostname", "pid", "name", "queue", "root_id", "parent_id", "runtime", "sequence",
            "received_at", "clock", pl.col("type").str.slice(5).alias("t"), pl.col("timestamp").alias("at"),
            pl.col("retries").fill_null(0),
        )
    )  # fmt: skip

    def last(kind: str, *fields: str, order: list[str]) -> pl.LazyFrame:
        """Return the event of a type that speaks for each task."""
        chosen = events.filter(pl.col("t") == kind).sort(order)
        return chosen.group_by("uuid").agg(pl.col(field).last().alias(f"{kind}_{field}") for field in fields)

    described = ("at", "clock", "hostname", "pid", "retries", "name", "root_id", "parent_id", "sequence")
    tasks = events.group_by("uuid").agg(
        pl.col("received_at").min().alias("seen_at"),
        pl.col("at").min().alias("first_at"),
        pl.col("at").max().alias("last_at"),
        pl.struct("hostname", "pid", "clock").filter(pl.col("t") == "retried").n_unique().alias("gave_up"),
        pl.struct("hostname", "pid", "clock")
        .filter(pl.col("t") == "received")
        .n_unique()
        .alias("deliveries"),
        pl.struct("hostname", "pid", "clock").filter(pl.col("t") == "started").n_unique().alias("executions"),
    )
    for kind, fields, order in (
        ("sent", (*described, "queue"), ["retries", *moment]),
        ("received", described, ["retries", *moment]),
        ("started", ("at", "clock", "hostname", "pid"), moment),
        ("succeeded", ("at", "hostname", "runtime", "sequence"), moment),
        ("failed", ("at", "hostname", "sequence"), moment),
        ("retried", ("at", "hostname", "sequence"), moment),
        ("revoked", ("at", "hostname"), moment),
    ):
        tasks = tasks.join(last(kind, *fields, order=order), on="uuid", how="left")
    state = (
        pl.when(pl.col("succeeded_at").is_not_null()).then(pl.lit("SUCCESS"))
        .when(pl.col("failed_at").is_not_null()).then(pl.lit("FAILURE"))
        .when(pl.col("revoked_at").is_not_null()).then(pl.lit("REVOKED"))
        .when(pl.col("received_at").is_null()).then(pl.lit("PENDING"))
        .when(pl.col("gave_up") > pl.col("received_retries")).then(pl.lit("RETRY"))
        .when(pl.col("started_clock") > pl.col("received_clock")).then(pl.lit("STARTED"))
        .otherwise(pl.lit("RECEIVED"))
    )  # fmt: skip
    tasks.with_columns(state.alias("state")).sink_parquet(out, compression="zstd")
    return perf_counter() - begun


def fold_by_celery(log: Path, events: int) -> float:
    """Feed so many events of a log to Celery's State, one by one, and return how many a second it took."""
    from celery.events.state import State  # noqa: PLC0415

    state = State(max_tasks_in_memory=events)
    seconds, fed = 0.0, 0
    for batch in _dicts(log, events):
        begun = perf_counter()
        for event in batch:
            state.event(event)
        seconds += perf_counter() - begun
        fed += len(batch)
    return fed / seconds


def _dicts(log: Path, events: int) -> Iterator[list[dict[str, Any]]]:
    """Yield events as a receiver of Celery hands them on, without what they do not say."""
    left = events
    for path in sorted(log.glob("events/*/*/*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(20_000):
            rows = pa.Table.from_batches([batch]).drop_columns(["recorder", "sequence"]).to_pylist()
            said = (
                {name: value for name, value in row.items() if value is not None}
                | {"local_received": row["received_at"]}
                for row in rows
            )
            chosen = list(islice(said, left))
            left -= len(chosen)
            yield chosen
            if not left:
                return
