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
    help="Change what the nodes do. Each command tells whom it concerns, and asks before it sends anything; "
    "--yes sends without asking.",
)

Ids = Annotated[list[str], typer.Argument(metavar="ID", show_default=False, help="The ids of the tasks.")]
TaskName = Annotated[str, typer.Argument(metavar="TASK", show_default=False, help="The name of the task.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False, help="The name of the queue.")]
Number = Annotated[int, typer.Argument(metavar="N", min=1, help="How many processes or threads.")]
Terminate = Annotated[bool, typer.Option("--terminate", help="Also stop tasks that have begun.")]
Signal = Annotated[str, typer.Option("--signal", metavar="NAME", help="The signal that stops them.")]


def revoke(
    session: Session,
    *,
    ids: Ids,
    terminate: Terminate = False,
    signal: Signal = "SIGTERM",
    order: Order = _ORDER,
) -> Code:
    """Have nodes skip tasks that have not begun.

    For example:
      celeriac revoke 3f6c6d52-6d5b-4c1c-9b8e-2f6c1d1f8a10
      celeriac revoke --terminate --signal SIGKILL --yes ID1 ID2
    """
    send = partial(session.app.control.revoke, ids, terminate=terminate, signal=signal)
    stop = f", and stop those that have begun with {signal}" if terminate else ""
    return carry_out(session, order, send, what=f"revoke {_listed(ids, 'task')}{stop}")


add_command(control, "revoke")(revoke)


@add_command(control, "revoke-by-stamped-headers")
def revoke_by_stamped_headers(
    session: Session,
    *,
    stamps: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", show_default=False, help="The stamps.")],
    terminate: Terminate = False,
    signal: Signal = "SIGTERM",
    order: Order = _ORDER,
) -> Code:
    """Have nodes skip the tasks that carry one of these stamps.

    For example:
      celeriac control revoke-by-stamped-headers customer=17 customer=18
    """
    headers: dict[str, list[str]] = {}
    for stamp in stamps:
        key, found, value = stamp.partition("=")
        if not found:
            raise CallerError(f"{stamp!r} is no stamp: write KEY=VALUE")
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
        typer.Argument(metavar="RATE", show_default=False, help="'10/s', '100/m', '1000/h'; 0 for no limit."),
    ],
    order: Order = _ORDER,
) -> Code:
    """Limit how often tasks of one name begin, on each node.

    For example:
      celeriac control rate-limit shop.mail 10/m
    """
    send = partial(session.app.control.rate_limit, task, rate)
    return carry_out(session, order, send, what=f"limit {task} to {rate}")


@add_command(control, "time-limit")
def time_limit(
    session: Session,
    *,
    task: TaskName,
    soft: Annotated[
        float | None, typer.Option("--soft", metavar="SECONDS", help="When an exception is raised in it.")
    ] = None,
    hard: Annotated[
        float | None, typer.Option("--hard", metavar="SECONDS", help="When its process is killed.")
    ] = None,
    order: Order = _ORDER,
) -> Code:
    """Limit how long tasks of one name may take. A limit that is not given is taken away.

    For example:
      celeriac control time-limit shop.report --soft 60 --hard 90
    """
    send = partial(session.app.control.time_limit, task, soft=soft, hard=hard)
    limits = f"soft {'none' if soft is None else soft}, hard {'none' if hard is None else hard}"
    return carry_out(session, order, send, what=f"set the time limits of {task} to {limits}")


@add_command(control, "pool-grow")
def pool_grow(session: Session, *, number: Number = 1, order: Order = _ORDER) -> Code:
    """Add N processes or threads to the pools."""
    send = partial(session.app.control.pool_grow, number)
    return carry_out(session, order, send, what=f"let each pool grow by {number}")


@add_command(control, "pool-shrink")
def pool_shrink(session: Session, *, number: Number = 1, order: Order = _ORDER) -> Code:
    """Take N processes or threads from the pools."""
    send = partial(session.app.control.pool_shrink, number)
    return carry_out(session, order, send, what=f"let each pool shrink by {number}")


@add_command(control, "pool-restart")
def pool_restart(
    session: Session,
    *,
    module: Annotated[
        list[str] | None, typer.Option("--module", metavar="NAME", help="Import this module; again for more.")
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Load the modules anew.")] = False,
    order: Order = _ORDER,
) -> Code:
    """Start the pools anew. Celery's nodes do so only if their setting worker_pool_restarts is on."""
    send = partial(session.app.control.pool_restart, modules=module, reload=reload)
    return carry_out(session, order, send, what="restart the pools")


@add_command(control, "autoscale")
def autoscale(
    session: Session,
    *,
    most: Annotated[int, typer.Argument(metavar="MAX", min=0, show_default=False, help="The largest size.")],
    least: Annotated[
        int, typer.Argument(metavar="MIN", min=0, show_default=False, help="The smallest size.")
    ],
    order: Order = _ORDER,
) -> Code:
    """Set between which sizes the pools grow and shrink, on nodes that were started with autoscale."""
    send = partial(session.app.control.autoscale, most, least)
    return carry_out(session, order, send, what=f"let the pools scale between {least} and {most}")


@add_command(control, "add-consumer")
def add_consumer(
    session: Session,
    *,
    queue: QueueName,
    exchange: Annotated[
        str | None, typer.Option("--exchange", help="Its exchange; else named as it is.")
    ] = None,
    exchange_type: Annotated[
        str, typer.Option("--exchange-type", help="The type of the exchange.")
    ] = "direct",
    routing_key: Annotated[str | None, typer.Option("--routing-key", help="Its key; else its name.")] = None,
    order: Order = _ORDER,
) -> Code:
    """Have nodes take tasks from one more queue."""
    send = partial(
        session.app.control.add_consumer,
        queue,
        exchange=exchange,
        exchange_type=exchange_type,
        routing_key=routing_key,
    )
    return carry_out(session, order, send, what=f"take tasks from the queue {queue}")


@add_command(control, "cancel-consumer")
def cancel_consumer(session: Session, *, queue: QueueName, order: Order = _ORDER) -> Code:
    """Have nodes take no more tasks from a queue."""
    send = partial(session.app.control.cancel_consumer, queue)
    return carry_out(session, order, send, what=f"take no more tasks from the queue {queue}")


@add_command(control, "enable-events")
def enable_events(session: Session, *, order: Order = _ORDER) -> Code:
    """Have nodes send events of tasks."""
    return carry_out(session, order, session.app.control.enable_events, what="turn events of tasks on")


@add_command(control, "disable-events")
def disable_events(session: Session, *, order: Order = _ORDER) -> Code:
    """Have nodes send no events of tasks."""
    return carry_out(session, order, session.app.control.disable_events, what="turn events of tasks off")


@add_command(control, "heartbeat")
def heartbeat(session: Session, *, order: Order = _ORDER) -> Code:
    """Have nodes send a heartbeat event now. It changes nothing, so nobody is asked."""
    send = session.app.control.heartbeat
    return carry_out(session, order, send, what="ask for a heartbeat", is_harmless=True)


@add_command(control, "shutdown")
def shutdown(session: Session, *, order: Order = _ORDER) -> Code:
    """Stop nodes, once they have done what they are doing.

    For example:
      celeriac control shutdown -d celery@web1
    """
    send = session.app.control.shutdown
    return carry_out(session, order, send, what="stop the workers", has_reply=False)


def _listed(ids: list[str], noun: str) -> str:
    return f"{noun} {ids[0]}" if len(ids) == 1 else f"{len(ids)} {noun}s"
