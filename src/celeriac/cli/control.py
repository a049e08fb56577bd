"""``celeriac control``: commands that change what the nodes do."""

from functools import partial
from typing import Annotated, Final

import typer

from celeriac.cli.exit import Code
from celeriac.cli.option import add_command, add_common
from celeriac.cli.order import Order, carry_out
from celeriac.cli.session import Session
from celeriac.errors import CallerError

__all__ = ["control", "revoke"]

_ORDER: Final = Order()

control = typer.Typer(no_args_is_help=True)
add_common(
    control,
    help="Control workers. Each command names the nodes it reaches and asks before it sends; --yes skips the "
    "question.",
)

Ids = Annotated[list[str], typer.Argument(metavar="ID", show_default=False, help="Task ids.")]
TaskName = Annotated[str, typer.Argument(metavar="TASK", show_default=False, help="Task name.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False, help="Queue name.")]
Number = Annotated[int, typer.Argument(metavar="N", min=1, help="Number of processes or threads.")]
Terminate = Annotated[bool, typer.Option("--terminate", help="Terminate tasks that are running, too.")]
Signal = Annotated[str, typer.Option("--signal", metavar="NAME", help="Signal for --terminate.")]


def revoke(
    session: Session,
    *,
    ids: Ids,
    terminate: Terminate = False,
    signal: Signal = "SIGTERM",
    order: Order = _ORDER,
) -> Code:
    """Revoke tasks: workers skip those that have not started.

    For example:
      celeriac revoke 3f6c6d52-6d5b-4c1c-9b8e-2f6c1d1f8a10
      celeriac revoke --terminate --signal SIGKILL --yes ID1 ID2
    """
    send = partial(session.app.control.revoke, ids, terminate=terminate, signal=signal)
    stop = f", and terminate those that run with {signal}" if terminate else ""
    return carry_out(session, order, send, what=f"revoke {_listed(ids, 'task')}{stop}")


add_command(control, "revoke")(revoke)


@add_command(control, "revoke-by-stamped-headers")
def revoke_by_stamped_headers(
    session: Session,
    *,
    stamps: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", show_default=False, help="Stamps.")],
    terminate: Terminate = False,
    signal: Signal = "SIGTERM",
    order: Order = _ORDER,
) -> Code:
    """Revoke the tasks that have one of these stamps.

    For example:
      celeriac control revoke-by-stamped-headers customer=17 customer=18
    """
    headers: dict[str, list[str]] = {}
    for stamp in stamps:
        key, found, value = stamp.partition("=")
        if not found:
            raise CallerError(f"Invalid stamp {stamp!r}. Use KEY=VALUE")
        headers.setdefault(key, []).append(value)
    command = session.app.control.revoke_by_stamped_headers
    send = partial(command, headers, terminate=terminate, signal=signal)
    return carry_out(session, order, send, what=f"revoke all tasks stamped {' or '.join(stamps)}")


@add_command(control, "rate-limit")
def rate_limit(
    session: Session,
    *,
    task: TaskName,
    rate: Annotated[
        str,
        typer.Argument(
            metavar="RATE", show_default=False, help="Rate: '10/s', '100/m', '1000/h'; 0 for no limit."
        ),
    ],
    order: Order = _ORDER,
) -> Code:
    """Set the rate limit of a task, per worker.

    For example:
      celeriac control rate-limit shop.mail 10/m
    """
    send = partial(session.app.control.rate_limit, task, rate)
    return carry_out(session, order, send, what=f"set the rate limit of {task} to {rate}")


@add_command(control, "time-limit")
def time_limit(
    session: Session,
    *,
    task: TaskName,
    soft: Annotated[
        float | None,
        typer.Option(
            "--soft", metavar="SECONDS", help="Raise SoftTimeLimitExceeded in the task after SECONDS."
        ),
    ] = None,
    hard: Annotated[
        float | None,
        typer.Option("--hard", metavar="SECONDS", help="Kill the process of the task after SECONDS."),
    ] = None,
    order: Order = _ORDER,
) -> Code:
    """Set the time limits of a task. A limit that is not given is removed.

    For example:
      celeriac control time-limit shop.report --soft 60 --hard 90
    """
    send = partial(session.app.control.time_limit, task, soft=soft, hard=hard)
    limits = f"soft {'none' if soft is None else soft}, hard {'none' if hard is None else hard}"
    return carry_out(session, order, send, what=f"set the time limits of {task} to {limits}")


@add_command(control, "pool-grow")
def pool_grow(session: Session, *, number: Number = 1, order: Order = _ORDER) -> Code:
    """Add N processes or threads to each pool."""
    send = partial(session.app.control.pool_grow, number)
    return carry_out(session, order, send, what=f"grow each pool by {number}")


@add_command(control, "pool-shrink")
def pool_shrink(session: Session, *, number: Number = 1, order: Order = _ORDER) -> Code:
    """Remove N processes or threads from each pool."""
    send = partial(session.app.control.pool_shrink, number)
    return carry_out(session, order, send, what=f"shrink each pool by {number}")


@add_command(control, "pool-restart")
def pool_restart(
    session: Session,
    *,
    module: Annotated[
        list[str] | None, typer.Option("--module", metavar="NAME", help="Module to import. Repeatable.")
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Reload the modules.")] = False,
    order: Order = _ORDER,
) -> Code:
    """Restart the pools. Celery workers do so only if worker_pool_restarts is on."""
    send = partial(session.app.control.pool_restart, modules=module, reload=reload)
    return carry_out(session, order, send, what="restart the pools")


@add_command(control, "autoscale")
def autoscale(
    session: Session,
    *,
    most: Annotated[int, typer.Argument(metavar="MAX", min=0, show_default=False, help="Largest pool size.")],
    least: Annotated[
        int, typer.Argument(metavar="MIN", min=0, show_default=False, help="Smallest pool size.")
    ],
    order: Order = _ORDER,
) -> Code:
    """Set the limits of autoscaling, for workers that were started with --autoscale."""
    send = partial(session.app.control.autoscale, most, least)
    return carry_out(session, order, send, what=f"autoscale the pools between {least} and {most}")


@add_command(control, "add-consumer")
def add_consumer(
    session: Session,
    *,
    queue: QueueName,
    exchange: Annotated[
        str | None, typer.Option("--exchange", help="Exchange. Default: the queue name.")
    ] = None,
    exchange_type: Annotated[str, typer.Option("--exchange-type", help="Exchange type.")] = "direct",
    routing_key: Annotated[
        str | None, typer.Option("--routing-key", help="Routing key. Default: the queue name.")
    ] = None,
    order: Order = _ORDER,
) -> Code:
    """Consume from another queue."""
    send = partial(
        session.app.control.add_consumer,
        queue,
        exchange=exchange,
        exchange_type=exchange_type,
        routing_key=routing_key,
    )
    return carry_out(session, order, send, what=f"consume from queue {queue}")


@add_command(control, "cancel-consumer")
def cancel_consumer(session: Session, *, queue: QueueName, order: Order = _ORDER) -> Code:
    """Stop consuming from a queue."""
    send = partial(session.app.control.cancel_consumer, queue)
    return carry_out(session, order, send, what=f"stop consuming from queue {queue}")


@add_command(control, "enable-events")
def enable_events(session: Session, *, order: Order = _ORDER) -> Code:
    """Turn on task events, for monitors."""
    return carry_out(session, order, session.app.control.enable_events, what="turn on task events")


@add_command(control, "disable-events")
def disable_events(session: Session, *, order: Order = _ORDER) -> Code:
    """Turn off task events."""
    return carry_out(session, order, session.app.control.disable_events, what="turn off task events")


@add_command(control, "heartbeat")
def heartbeat(session: Session, *, order: Order = _ORDER) -> Code:
    """Request a heartbeat event now. Nothing is changed, so no question is asked."""
    send = session.app.control.heartbeat
    return carry_out(session, order, send, what="ask for a heartbeat", is_harmless=True)


@add_command(control, "shutdown")
def shutdown(session: Session, *, order: Order = _ORDER) -> Code:
    """Shut workers down, after the tasks that run now (warm shutdown).

    For example:
      celeriac control shutdown -d celery@web1
    """
    send = session.app.control.shutdown
    return carry_out(session, order, send, what="shut down the workers", has_reply=False)


def _listed(ids: list[str], noun: str) -> str:
    return f"{noun} {ids[0]}" if len(ids) == 1 else f"{len(ids)} {noun}s"
