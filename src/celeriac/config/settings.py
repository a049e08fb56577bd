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
    """What an operator chooses, checked on construction.

    Names and defaults that Celery has too are Celery's. A value of the wrong kind, or two
    that exclude each other, raise :class:`~celeriac.errors.ImproperlyConfigured`. Tables and
    lists are copied. No secret is in ``repr()``, :meth:`public` or a message of an error.
    """

    #: Celery: with no broker named, RabbitMQ on this machine as its first user. Several URLs
    #: are parted by ``;``. An address, not a name: RabbitMQ may listen on one of two loopbacks.
    broker_url: str = "amqp://guest:guest@127.0.0.1:5672//"
    #: Passed on as they are; none, since each transport has its own.
    broker_transport_options: Mapping[str, object] = field(default_factory=dict)
    #: Off: the default broker is on this machine. True for TLS, a table for TLS with options of its own.
    broker_use_ssl: bool | Mapping[str, object] = False
    #: Long enough for a handshake across continents, short enough to try the next URL soon.
    broker_connection_timeout: float = 4.0
    #: Whole seconds, as AMQP counts them; 0 for none. Brokers drop a link after two missed beats.
    broker_heartbeat: int = 120
    #: None leaves the choice to the transport: PLAIN for AMQP.
    broker_login_method: str | None = None
    #: The first wait before a new link is tried. Waits are drawn at random: nodes must not return as one.
    broker_retry_base: float = 0.1
    #: The longest such wait: it keeps a receiver back within 2 s of its broker.
    broker_retry_cap: float = 1.0

    #: None keeps no results: most tasks need none. ``redis://…`` or ``sentinel://…`` keep them there;
    #: ``rpc://`` sends each as a message to the client that sent the task.
    result_backend: str | None = None
    #: As those of the broker: ``global_keyprefix``, ``master_name`` of Sentinel, and so on.
    result_backend_transport_options: Mapping[str, object] = field(default_factory=dict)
    #: Off, as for the broker. True for TLS, a table for TLS with options of its own.
    redis_backend_use_ssl: bool | Mapping[str, object] = False
    #: A day, as in Celery: who has not asked by then will not. 0 keeps results for ever.
    result_expires: float = DAY
    #: How long failures are kept; None as long as other results.
    result_failure_expires: float | None = None
    #: None stores results as they are: most are short. gzip, bzip2 or lzma, which Celery 5.7 reads.
    result_compression: str | None = None
    #: Off, as in Celery: messages of ``rpc://`` are for who waits now, and need not outlive the broker.
    result_persistent: bool = False
    #: A longer result is not read, and whoever waits for it is told so.
    result_max_bytes: int = 64 * MIB
    #: How to wait for results: default, gevent, eventlet or asyncio; None looks where it is asked from.
    result_drainer: str | None = None
    #: Celeriac takes JSON only. The setting is there so that a Celery configuration can be kept.
    accept_content: tuple[str, ...] = ("json",)

    #: Off, as in Celery: a worker nobody watches need not speak.
    worker_send_task_events: bool = False
    #: Off, as in Celery: it costs each client one message per task.
    task_send_sent_event: bool = False
    #: The exchange every event goes through; one name for all nodes that are to meet.
    event_exchange: str = "celeryev"
    #: A receiver's queue is named by this, a dot and the receiver's id.
    event_queue_prefix: str = "celeryev"
    #: Events are news: a receiver that lags further behind than this gets the newer ones.
    event_queue_ttl: float = 5.0
    #: A receiver that is gone this long has left, and its queue would fill for nobody.
    event_queue_expires: float = 60.0
    #: One receiver, one queue, which goes with its connection: old news need not outlive the broker.
    event_queue_exclusive: bool = True
    event_queue_durable: bool = False
    #: The only one there is; see ``accept_content``.
    event_serializer: str = "json"
    #: Off: timestamps stay the sender's. On: they are moved to our time zone, as Celery's receiver does.
    event_localize: bool = False
    #: Events a dispatcher keeps while the broker is away: about 6 MB of typical ones.
    event_offline_limit: int = 10_000

    #: On, as in Celery: a worker that cannot be asked is hard to run.
    worker_enable_remote_control: bool = True
    #: The exchange of commands is named by this and ``.pidbox``.
    control_exchange: str = "celery"
    #: A command nobody took for this long is of no use any more.
    control_queue_ttl: float = 300.0
    #: A node that is gone this long gets no more commands.
    control_queue_expires: float = 10.0
    #: One node, one mailbox, which goes with its connection: the node that was told is gone then.
    control_queue_exclusive: bool = True
    control_queue_durable: bool = False
    #: Commands that our nodes obey beyond questions, ``revoke``, which a hello can do too, ``election``,
    #: limited by ``election_actions``, and ``enable_events``, ``disable_events`` and ``heartbeat``, which
    #: every monitor sends. None: anyone who reaches the broker can send commands, and some stop workers.
    control_allow: tuple[str, ...] = ()

    #: The queue of tasks that name none, and the one a worker consumes from if it is told none.
    task_default_queue: str = "celery"
    #: Queues of tasks by name, such as ``{"reports.*": "slow"}``; the first that fits counts.
    task_routes: Mapping[str, object] = field(default_factory=dict)
    #: As RabbitMQ makes them; ``quorum`` keeps them on several of its nodes.
    task_default_queue_type: str = "classic"
    #: 0 is the most urgent on Redis and the least on RabbitMQ, as in Celery; None sends none.
    task_default_priority: int | None = None
    #: Given to queues of RabbitMQ, which else know no priorities; None for none.
    task_queue_max_priority: int | None = None
    #: A longer body of a task is refused before it is read; results have the same bound.
    task_max_bytes: int = 64 * MIB
    #: Off, as in Celery: a task is acknowledged when it begins, so that one that kills its worker runs once.
    task_acks_late: bool = False
    #: On, as in Celery: with late acknowledgement a task that failed is done, too.
    task_acks_on_failure_or_timeout: bool = True
    #: Off, as in Celery: a task whose process was killed fails. On, with late acknowledgement: it runs again.
    task_reject_on_worker_lost: bool = False
    #: Off: results are kept, if there is a backend.
    task_ignore_result: bool = False
    #: Off, as in Celery: failures are stored with results, and not without.
    task_store_errors_even_if_ignored: bool = False
    #: Off, as in Celery: that a task has begun is in its events; to store it too costs a write for each.
    task_track_started: bool = False
    #: None: tasks take as long as they take. Beyond it the process that runs a task is killed.
    task_time_limit: float | None = None
    #: None for none. Beyond it SoftTimeLimitExceeded is raised within the task.
    task_soft_time_limit: float | None = None
    #: None for none. Such as ``10/s`` or ``100/m``: how often each worker begins each task.
    task_default_rate_limit: str | None = None

    #: None runs as many tasks at a time as there are processors.
    worker_concurrency: int | None = None
    #: Tasks that a worker takes ahead, for each it can run at a time: enough to never wait for the broker.
    worker_prefetch_multiplier: int = 4
    #: None lets a process of the pool live as long as the worker. Else it is replaced after so many tasks.
    worker_max_tasks_per_child: int | None = None
    #: Tasks that wait for their ETA in a worker, some KB each; beyond it the latest wait at the broker.
    worker_eta_task_limit: int = 10_000
    #: None forgets which tasks were revoked when the worker ends. Else the file that keeps them.
    worker_state_db: str | None = None
    #: How often a worker says that it lives.
    worker_heartbeat_interval: float = 2.0
    #: How often a worker writes who is there to its log, at debug, if that changed. It looks twice a second.
    worker_gossip_interval: float = 5.0
    #: How long a worker waits for what its neighbours know, when it starts and after each reconnect.
    worker_mingle_timeout: float = 1.0

    #: None asks the broker who is elected. Else the URL of another Redis or RabbitMQ that decides.
    election_url: str | None = None
    #: What keys, and names of streams, of elections begin with: those who share it elect one of them all.
    election_namespace: str = "celeriac"
    #: Nobody acts on an election of a lower level: on L1 an acknowledged grant can vanish.
    election_min_level: str = "L2"
    #: ``follow`` takes part in elections of Celery's workers, and lets them win. ``refuse`` does not.
    election_mixed: str = "follow"
    #: Tasks that an election which another node called may start, by name, such as ``shop.*``. None:
    #: whoever reaches the broker can call elections.
    election_actions: tuple[str, ...] = ()
    #: How long a winner that may be replaced has to act.
    election_ttl: float = 30.0
    #: A week: for so long an election that was decided is not held again.
    election_retain: float = 7 * DAY
    #: How many nodes the RabbitMQ has that decides, which AMQP does not tell. With three or more, level L3.
    election_broker_nodes: int = 1

    #: What ``celeriac beat`` sends, and when; by name, as in Celery.
    beat_schedule: Mapping[str, object] = field(default_factory=dict)
    #: After so many seconds, and two more, another beat takes the place of one that is gone.
    beat_ttl: float = 15.0
    #: The zone that crontabs are meant in, as in Celery.
    timezone: str = "UTC"

    #: Where the history is kept: a folder, or the URL of an object store, such as ``s3://bucket/history``.
    log_url: str = LOG_FOLDER
    #: Where events are written first, on a disk of this machine; None for within a log that is a folder.
    log_spool: str | None = None
    #: Who records, for people: two recorders of one cluster have two names. None for the machine's.
    log_recorder: str | None = None
    #: Events are recorded in groups, which are on the disk after so many seconds at most: what a crash of
    #: the machine can cost on Redis.
    log_sync_interval: float = 0.1
    #: Uncompressed, as in memory: some 200,000 events, and 5 MB on disk.
    log_segment_bytes: int = 64 * MIB
    #: The longest that events wait to be sealed, and so to be seen in an object store.
    log_segment_age: float = 300.0
    #: Events that wait to be written, while the disk is slow or full: about 100 MB of typical ones. Beyond
    #: it RabbitMQ keeps the rest; on Redis they are dropped, counted, and told of in the log.
    log_pending_limit: int = 50_000
    #: How much RabbitMQ keeps for a recorder that is away, in messages; beyond it the oldest go.
    log_queue_limit: int = 10_000_000
    #: A recorder that is gone this long has left, and its queue would fill for nobody.
    log_queue_expires: float = 7 * DAY
    #: Seconds that events are kept; None for ever.
    log_keep: float | None = None
    #: Seconds that events of tasks which failed are kept; None as long as all others.
    log_keep_failures: float | None = None
    #: Bytes that a log may take; beyond it the oldest go. None for as many as it takes.
    log_max_bytes: int | None = None
    #: Where the pipeline publishes its tables: a folder, or the URL of an object store that Spark reaches.
    warehouse_url: str = WAREHOUSE_FOLDER
    #: None runs Spark on all processors of this machine. Else ``local[4]``, ``spark://…``, ``yarn`` or ``k8s://…``.
    spark_master: str | None = None
    #: None starts a Spark. Else the ``sc://…`` of a Spark Connect, which runs it.
    spark_remote: str | None = None
    #: Settings of Spark, such as ``{"spark.executor.memory": "4g"}``; they go before ours.
    spark_conf: Mapping[str, object] = field(default_factory=dict)
    #: What becomes of arguments and results of tasks, by name, before they are written: keep, which still
    #: masks what looks secret, hash or drop; such as ``{"billing.*": "drop"}``. The first that fits counts.
    redact_tasks: Mapping[str, object] = field(default_factory=dict)
    #: Names of arguments whose values are masked, beside those that always are: ``("iban", "tax_id")``.
    redact_names: tuple[str, ...] = ()
    #: The key that hashes are made with: equal values have equal hashes for as long as it is the same.
    #: None makes one up for each process.
    redact_hash_key: str | None = None

    #: Celery's limits. Beyond them the task or worker least recently heard of is forgotten.
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
                    f"{durable} and {exclusive} are both on ({exclusive} is by default), but an exclusive"
                    f" queue ends with its connection; set {exclusive} to False, or leave {durable} off"
                )
        if self.broker_retry_cap < self.broker_retry_base:
            raise ImproperlyConfigured(
                f"broker_retry_cap is {self.broker_retry_cap}, but the longest wait cannot be shorter than"
                f" the first, {self.broker_retry_base}; raise it, or lower broker_retry_base"
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
        ``CELERIAC_`` and the name in capitals. The file is ``file``, else what ``CELERIAC_CONFIG``
        names, else ``celeriac.toml`` in ``folder``, else the table ``tool.celeriac`` of
        ``pyproject.toml`` there. Last, before the defaults, come Celery's own variables,
        ``CELERY_BROKER_URL`` and ``CELERY_RESULT_BACKEND``. Raises ImproperlyConfigured for an
        unknown or bad one.
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
