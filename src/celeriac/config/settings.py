"""Settings, each default beside its reason.

Nothing here looks at the process around it: environment and folder are arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

from celeriac.config.celery_app import read_app, read_celery_environ
from celeriac.config.kind import checked
from celeriac.config.limits import DAY, MIB
from celeriac.config.source import FILE_VARIABLE, read_environ, read_file, read_given
from celeriac.errors import ImproperlyConfigured
from celeriac.masking import masked

__all__ = ["DATA_FOLDER", "LOG_FOLDER", "WAREHOUSE_FOLDER", "Settings"]

#: The folder of ``celeriac up``, and in it the event log and the tables. Every command looks there.
DATA_FOLDER: Final = ".celeriac"
LOG_FOLDER: Final = f"{DATA_FOLDER}/log"
WAREHOUSE_FOLDER: Final = f"{DATA_FOLDER}/warehouse"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """Settings, checked on construction.

    Settings that Celery also has keep its names and defaults. A value of the wrong type, or two values
    that exclude each other, raise :class:`~celeriac.errors.ImproperlyConfigured`. Tables and
    lists are copied. ``repr()``, :meth:`public` and error messages contain no secrets.
    """

    #: As in Celery: RabbitMQ on this machine with the guest user. Several URLs are separated by ``;``. An
    #: address, not a name: RabbitMQ may listen on only one of two loopback addresses.
    broker_url: str = "amqp://guest:guest@127.0.0.1:5672//"
    #: Passed on unchanged. Empty, because each transport has its own options.
    broker_transport_options: Mapping[str, object] = field(default_factory=dict)
    #: Off: the default broker is on this machine. True for TLS, a table for TLS with options.
    broker_use_ssl: bool | Mapping[str, object] = False
    #: Long enough for a handshake across continents, short enough to try the next URL soon.
    broker_connection_timeout: float = 4.0
    #: Integer seconds, as in AMQP; 0 turns heartbeats off. Brokers close a connection after two missed
    #: heartbeats.
    broker_heartbeat: int = 120
    #: None uses the default of the transport: PLAIN for AMQP.
    broker_login_method: str | None = None
    #: Upper limit of the first wait before a reconnect. Waits are random, so that nodes do not reconnect at
    #: once.
    broker_retry_base: float = 0.1
    #: Upper limit of all such waits: a receiver reconnects within 2 s of its broker.
    broker_retry_cap: float = 1.0

    #: None stores no results: most tasks need none. ``redis://…`` or ``sentinel://…`` store results;
    #: ``rpc://`` sends each result as a message to the client that sent the task.
    result_backend: str | None = None
    #: As for the broker: ``global_keyprefix``, ``master_name`` of Sentinel, and so on.
    result_backend_transport_options: Mapping[str, object] = field(default_factory=dict)
    #: Off, as for the broker. True for TLS, a table for TLS with options.
    redis_backend_use_ssl: bool | Mapping[str, object] = False
    #: A day, as in Celery. 0 keeps results indefinitely.
    result_expires: float = DAY
    #: How long failures are kept; None uses result_expires.
    result_failure_expires: float | None = None
    #: None stores results uncompressed: most are short. gzip, bzip2 or lzma, which Celery reads from 5.7
    #: on.
    result_compression: str | None = None
    #: Off, as in Celery: ``rpc://`` results are for a client that waits now, and need not survive a broker
    #: restart.
    result_persistent: bool = False
    #: Longer results are not read: waiting for one raises ResultUnreadable.
    result_max_bytes: int = 64 * MIB
    #: default, gevent, eventlet or asyncio; None detects it from the environment of the call.
    result_drainer: str | None = None
    #: Celeriac accepts JSON only. The setting exists so that a Celery configuration can be kept.
    accept_content: tuple[str, ...] = ("json",)

    #: Off, as in Celery: unmonitored workers need not send events.
    worker_send_task_events: bool = False
    #: Off, as in Celery: it costs one message per task.
    task_send_sent_event: bool = False
    #: The exchange of all events; the same name on all nodes of a cluster.
    event_exchange: str = "celeryev"
    #: Receiver queues are named by this prefix, a dot and the id of the receiver.
    event_queue_prefix: str = "celeryev"
    #: Older events are dropped for a receiver that lags, in favour of newer ones.
    event_queue_ttl: float = 5.0
    #: After this time the queue of a disconnected receiver is deleted, so that it does not fill up.
    event_queue_expires: float = 60.0
    #: One receiver, one queue, deleted with its connection: old events need not survive a broker restart.
    event_queue_exclusive: bool = True
    event_queue_durable: bool = False
    #: The only supported serializer; see ``accept_content``.
    event_serializer: str = "json"
    #: Off: timestamps keep the time zone of the sender. On: they are converted to the local time zone, as
    #: in Celery.
    event_localize: bool = False
    #: Events that a dispatcher buffers while the broker is unreachable: about 6 MB of typical events.
    event_offline_limit: int = 10_000

    #: On, as in Celery: workers without remote control are hard to operate.
    worker_enable_remote_control: bool = True
    #: The command exchange is named by this prefix and ``.pidbox``.
    control_exchange: str = "celery"
    #: Unread commands are useless after this time.
    control_queue_ttl: float = 300.0
    #: After this time a disconnected node gets no more commands.
    control_queue_expires: float = 10.0
    #: One node, one mailbox, deleted with its connection: a restarted node is another process.
    control_queue_exclusive: bool = True
    control_queue_durable: bool = False
    #: Commands that nodes accept in addition to queries, ``revoke``, which a hello can do too,
    #: ``election``, limited by ``election_actions``, and ``enable_events``, ``disable_events`` and
    #: ``heartbeat``, which every monitor sends. Empty: anyone with access to the broker can send commands,
    #: and some commands stop workers.
    control_allow: tuple[str, ...] = ()

    #: The queue of tasks without a queue, and of workers without ``-Q``.
    task_default_queue: str = "celery"
    #: Queues by task name, such as ``{"reports.*": "slow"}``; the first matching pattern applies.
    task_routes: Mapping[str, object] = field(default_factory=dict)
    #: The default of RabbitMQ; ``quorum`` replicates queues to several nodes.
    task_default_queue_type: str = "classic"
    #: 0 is the highest on Redis and the lowest on RabbitMQ, as in Celery; None sends no priority.
    task_default_priority: int | None = None
    #: Highest priority of RabbitMQ queues; None for queues without priorities.
    task_queue_max_priority: int | None = None
    #: Longer task bodies are refused before they are decoded; results have the same limit.
    task_max_bytes: int = 64 * MIB
    #: Off, as in Celery: a task is acknowledged at its start, so that a task that kills its worker runs
    #: once.
    task_acks_late: bool = False
    #: On, as in Celery: late acknowledgement includes failed tasks.
    task_acks_on_failure_or_timeout: bool = True
    #: Off, as in Celery: a task whose process was killed fails. On, with late acknowledgement: the task
    #: runs again.
    task_reject_on_worker_lost: bool = False
    #: Off: results are stored if a result backend is set.
    task_ignore_result: bool = False
    #: Off, as in Celery: failures are stored only if results are stored.
    task_store_errors_even_if_ignored: bool = False
    #: Off, as in Celery: events already report the start; storing the state costs one write per task.
    task_track_started: bool = False
    #: None: no limit. The process of a task that exceeds the limit is killed.
    task_time_limit: float | None = None
    #: None: no limit. SoftTimeLimitExceeded is raised in a task that exceeds the limit.
    task_soft_time_limit: float | None = None
    #: None: no limit. ``10/s`` or ``100/m`` limits the starts of each task in each worker.
    task_default_rate_limit: str | None = None

    #: None runs one task per processor at a time.
    worker_concurrency: int | None = None
    #: Prefetched tasks per task that can run at a time: enough to never wait for the broker.
    worker_prefetch_multiplier: int = 4
    #: None: pool processes live as long as the worker. A number replaces a process after that many tasks.
    worker_max_tasks_per_child: int | None = None
    #: Tasks with an ETA that wait in a worker, some KB each; beyond it the latest ones wait at the broker.
    worker_eta_task_limit: int = 10_000
    #: None loses the list of revoked tasks when the worker stops. A path names the file that keeps it.
    worker_state_db: str | None = None
    #: Seconds between heartbeats.
    worker_heartbeat_interval: float = 2.0
    #: Seconds between debug log lines that list known nodes, if the list changed. Silence is checked twice
    #: a second.
    worker_gossip_interval: float = 5.0
    #: Timeout for replies of neighbours, at start and after each reconnect.
    worker_mingle_timeout: float = 1.0

    #: None: the broker decides elections. A URL names another Redis or RabbitMQ.
    election_url: str | None = None
    #: Prefix of election keys and streams: nodes with the same prefix share elections.
    election_namespace: str = "celeriac"
    #: Nodes do not act on an election of a lower level: on L1 an acknowledged grant can be lost.
    election_min_level: str = "L2"
    #: ``follow`` takes part in elections of Celery workers, and lets them win. ``refuse`` does not take
    #: part.
    election_mixed: str = "follow"
    #: Names of tasks that elections called by other nodes may start, such as ``shop.*``. Empty: anyone with
    #: access to the broker can call elections.
    election_actions: tuple[str, ...] = ()
    #: Time for the winner of a takeover election to act.
    election_ttl: float = 30.0
    #: A week: a decided election is not repeated within this time.
    election_retain: float = 7 * DAY
    #: Number of RabbitMQ nodes, which AMQP does not report. With three or more the level is L3.
    election_broker_nodes: int = 1

    #: Schedule of ``celeriac beat``, by entry name, as in Celery.
    beat_schedule: Mapping[str, object] = field(default_factory=dict)
    #: Seconds until another beat replaces a lost leader; takeover adds up to two seconds.
    beat_ttl: float = 15.0
    #: Time zone of crontabs, as in Celery.
    timezone: str = "UTC"

    #: Storage of the event log: a folder, or the URL of an object store, such as ``s3://bucket/history``.
    log_url: str = LOG_FOLDER
    #: Folder for write-ahead files, on a disk of this machine; None for a folder inside a log on disk.
    log_spool: str | None = None
    #: Name of the recorder: two recorders of one cluster need two names. None for the host name.
    log_recorder: str | None = None
    #: Events are synced to disk in groups, at this interval at most: the loss on Redis if the machine
    #: crashes.
    log_sync_interval: float = 0.1
    #: Uncompressed, as in memory: about 200,000 events, and 5 MB on disk.
    log_segment_bytes: int = 64 * MIB
    #: Longest time until events are sealed, and visible in an object store.
    log_segment_age: float = 300.0
    #: Events buffered while the disk is slow or full: about 100 MB of typical events. Beyond it RabbitMQ
    #: keeps the rest; on Redis events are dropped, counted, and recorded as a gap.
    log_pending_limit: int = 50_000
    #: Messages that RabbitMQ keeps for a disconnected recorder; beyond it the oldest are dropped.
    log_queue_limit: int = 10_000_000
    #: After this time the queue of a disconnected recorder is deleted, so that it does not fill up.
    log_queue_expires: float = 7 * DAY
    #: Seconds to keep events; None keeps them indefinitely.
    log_keep: float | None = None
    #: Seconds to keep events of failed tasks; None uses log_keep.
    log_keep_failures: float | None = None
    #: Size limit of the log in bytes; beyond it the oldest segments are removed. None: no limit.
    log_max_bytes: int | None = None
    #: Storage of the tables: a folder, or the URL of an object store that Spark can read and write.
    warehouse_url: str = WAREHOUSE_FOLDER
    #: None runs Spark on all processors of this machine. ``local[4]``, ``spark://…``, ``yarn`` or
    #: ``k8s://…``.
    spark_master: str | None = None
    #: None starts Spark. A URL ``sc://…`` uses a Spark Connect server.
    spark_remote: str | None = None
    #: Spark settings, such as ``{"spark.executor.memory": "4g"}``; they override those of Celeriac.
    spark_conf: Mapping[str, object] = field(default_factory=dict)
    #: Redaction of arguments and results by task name, before they are written: keep (masks secrets only),
    #: hash or drop; such as ``{"billing.*": "drop"}``. The first matching pattern applies.
    redact_tasks: Mapping[str, object] = field(default_factory=dict)
    #: Additional names of arguments whose values are masked: ``("iban", "tax_id")``.
    redact_names: tuple[str, ...] = ()
    #: Key of the hashes: equal values have equal hashes as long as the key is the same. None uses a random
    #: key for each process.
    redact_hash_key: str | None = None

    #: Limits of Celery. Beyond them the least recently seen task or worker is removed.
    max_tasks_in_memory: int = 10_000
    max_workers_in_memory: int = 5000

    _sources: Mapping[str, str] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():
            object.__setattr__(self, name, checked(name, kind, getattr(self, name), "argument"))
        for owner in ("event", "control"):
            exclusive, durable = f"{owner}_queue_exclusive", f"{owner}_queue_durable"
            # Celery: durable alone is refused too, because exclusive is the default.
            if getattr(self, exclusive) and getattr(self, durable):
                raise ImproperlyConfigured(
                    f"{durable} and {exclusive} are both on ({exclusive} is on by default), but an "
                    f"exclusive queue is deleted with its connection; set {exclusive} to False, or "
                    f"{durable} to False"
                )
        if self.broker_retry_cap < self.broker_retry_base:
            raise ImproperlyConfigured(
                f"broker_retry_cap is {self.broker_retry_cap}, less than broker_retry_base, "
                f"{self.broker_retry_base}; raise it, or lower broker_retry_base"
            )

    @classmethod
    def load(
        cls,
        arguments: Mapping[str, object] | None = None,
        *,
        environ: Mapping[str, str],
        file: Path | None = None,
        folder: Path = Path(),
        celery: Any = None,
    ) -> Self:
        """Return the settings of arguments, a Celery app, variables, a file, or the defaults, in this order.

        An argument that is None counts as not given. ``celery`` is the app. Variables are
        ``CELERIAC_`` and the name in capitals. The file is ``file``, ``CELERIAC_CONFIG``,
        ``celeriac.toml`` in ``folder``, or the table ``tool.celeriac`` of
        ``pyproject.toml`` there, in this order. Before the defaults come the Celery variables
        ``CELERY_BROKER_URL`` and ``CELERY_RESULT_BACKEND``. Raises ImproperlyConfigured for an
        unknown or invalid setting.
        """
        if file is None and environ.get(FILE_VARIABLE):
            file = Path(environ[FILE_VARIABLE])
        given = (
            read_celery_environ(_TYPES, environ)
            | read_file(_TYPES, file, folder)
            | read_environ(_TYPES, environ)
            | ({} if celery is None else read_app(_TYPES, celery, cls()))
            | read_given(_TYPES, arguments or {}, "argument")
        )
        values: dict[str, Any] = {name: value for name, (value, _) in given.items()}
        settings = cls(**values)
        object.__setattr__(settings, "_sources", {name: source for name, (_, source) in given.items()})
        return settings

    def sources(self) -> dict[str, str]:
        """Return, for each setting, the argument, app, variable or file it came from, or ``default``."""
        chosen = dict.fromkeys(self._chosen(), "argument")
        return dict.fromkeys(_TYPES, "default") | chosen | dict(self._sources)

    def public(self) -> dict[str, object]:
        """Return the settings for people and JSON: nothing in it is secret."""
        return {name: masked(name, getattr(self, name)) for name in _TYPES}

    def __repr__(self) -> str:
        public = self.public()
        return f"Settings({', '.join(f'{name}={public[name]!r}' for name in self._chosen())})"

    def _chosen(self) -> list[str]:
        default = type(self)()
        return [name for name in _TYPES if getattr(self, name) != getattr(default, name)]


_TYPES = {each.name: each.type for each in fields(Settings) if not each.name.startswith("_")}
