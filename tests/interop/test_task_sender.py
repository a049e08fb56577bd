"""Tasks reach real brokers, also one that restarts meanwhile."""

from threading import Thread
from time import time

import pytest

from celeriac import AccessRefused, Celeriac
from celeriac.node.posting import posting_for
from celeriac.node.sender import TaskSender
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.wire.names import task_queue

#: A RabbitMQ may take minutes to start on a busy machine.
PATIENCE = 240.0


def received(app: Celeriac, number: int) -> set[str]:
    """Return the ids of the tasks in the default queue, once so many have come."""
    found: list[str] = []
    with app.connection() as connection:
        connection.consume(
            task_queue(app.conf, "celery"),
            lambda delivery: found.append(str(delivery.message.headers["id"])),
            prefetch=1000,
        )
        deadline = time() + PATIENCE
        while len(found) < number and time() < deadline:
            connection.drain(0.5)
    return set(found)


@pytest.mark.parametrize("broker", ["own_redis", "hurt_rabbit"])
def test_what_is_sent_while_a_broker_restarts_arrives(request: pytest.FixtureRequest, broker: str) -> None:
    server: RedisServer | RabbitServer = request.getfixturevalue(broker)
    app = Celeriac(server.url, environ={})
    sender = TaskSender(app.connection, settings=app.conf)
    before, after = (posting_for("shop.pay", options={"task_id": each}, settings=app.conf) for each in "ab")
    # It leaves an idle link, which breaks.
    sender.post([before])

    server.kill()
    thread = Thread(target=sender.post, args=([after],), kwargs={"timeout": PATIENCE})
    thread.start()
    server.start()
    thread.join(PATIENCE)

    assert not thread.is_alive()
    assert "b" in received(app, 1)
    sender.close()


def test_a_broker_that_does_not_know_us_is_told_at_once(amqp_url: str) -> None:
    app = Celeriac(amqp_url.replace("guest:guest", "guest:wrong"), environ={})

    with pytest.raises(AccessRefused):
        app.send_task("shop.pay")
    app.close()
