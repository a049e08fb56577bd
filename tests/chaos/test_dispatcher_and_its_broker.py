"""What a dispatcher does when its broker is short of memory, hangs, or its process forks."""

import json
import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from celeriac import Celeriac, ConnectionLost, EventDispatcher
from celeriac.model.message import Exchange, Message, Queue
from celeriac.programs.port import LOOPBACK
from celeriac.programs.process import find_program, wait_until
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.transport.base import Connection
from tests.cables import Cables

#: Far more than needed, for a busy machine.
PATIENCE = 120.0
#: The share of the memory that RabbitMQ may use by default.
ENOUGH = "0.4"


class Listener:
    """Sees every event that is published from now on."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.bodies: list[bytes] = []
        exchange = Exchange("celeryev", "fanout" if link.driver == "redis" else "topic", is_durable=True)
        link.subscribe(Queue("celeryev.listener", exchange, "#"), self._receive)

    def _receive(self, message: Message) -> None:
        self.bodies.append(message.body)

    def has(self, number: int) -> bool:
        self.link.drain(0.1)
        return len(self.bodies) >= number

    def events(self) -> list[dict[str, object]]:
        return [json.loads(body) for body in self.bodies]


@pytest.fixture
def short_rabbit(hurt_rabbit: RabbitServer) -> Iterator[RabbitServer]:
    """A RabbitMQ server whose memory the test may limit."""
    yield hurt_rabbit
    limit_memory(hurt_rabbit, ENOUGH)


def limit_memory(server: RabbitServer, limit: str) -> None:
    server.evaluate(f"ok = vm_memory_monitor:set_vm_memory_high_watermark({limit})")


def test_a_broker_short_of_memory_is_left_alone_and_gets_everything_later(
    short_rabbit: RabbitServer,
) -> None:
    app = Celeriac(short_rabbit.url, environ={})
    with app.connection() as link, app.events.Dispatcher(hostname="w@h") as dispatcher:
        listener = Listener(link)
        dispatcher.send("worker-online")
        limit_memory(short_rabbit, "{absolute, 1}")
        assert wait_until(lambda: is_blocked_after_a_send(dispatcher), patience=PATIENCE)

        for number in range(500):
            dispatcher.send("task-sent", uuid=str(number))
        waiting = dispatcher.buffered
        limit_memory(short_rabbit, ENOUGH)

        assert waiting >= 500
        assert dispatcher.flush(PATIENCE) == 0
        sent = {str(number) for number in range(500)}
        assert wait_until(lambda: listener.has(501) and uuids(listener) >= sent, patience=PATIENCE)


def uuids(listener: Listener) -> set[object]:
    return {event.get("uuid") for event in listener.events()}


def is_blocked_after_a_send(dispatcher: EventDispatcher) -> bool:
    """RabbitMQ tells a publisher that it is blocked when it publishes."""
    dispatcher.send("worker-heartbeat")
    return dispatcher._courier._link.is_blocked


def test_the_last_event_before_a_restart_arrives_though_nothing_is_sent_after_it(
    own_redis: RedisServer,
) -> None:
    with Cables() as cables:
        # What Redis has while nobody listens is gone; so its way is closed until somebody does.
        cable = cables.lay(own_redis.port)
        url = cable.url_of(own_redis.url, port=own_redis.port)
        app = Celeriac(url, environ={}, broker_retry_base=1.0, broker_retry_cap=1.0)
        with app.events.Dispatcher(hostname="w@h") as dispatcher:
            dispatcher.send("worker-online")
            assert dispatcher.flush(PATIENCE) == 0
            cable.cut()
            assert wait_until(lambda: cable.ended_links > 0, patience=PATIENCE)
            own_redis.stop()

            dispatcher.send("worker-offline")
            own_redis.start()
            with Celeriac(own_redis.url, environ={}).connection() as link:
                listener = Listener(link)
                cable.mend()
                came = wait_until(lambda: listener.has(1), patience=PATIENCE)

    assert came
    assert [event["type"] for event in listener.events()] == ["worker-offline"]


def test_a_child_process_sends_its_own_events_and_none_of_its_parents(own_redis: RedisServer) -> None:
    app = Celeriac(own_redis.url, environ={})
    with app.connection() as link, app.events.Dispatcher(hostname="w@h") as dispatcher:
        listener = Listener(link)
        dispatcher.send("worker-online")

        child = os.fork()
        if child == 0:
            for _ in range(50):
                dispatcher.send("task-sent", uuid="child")
            os._exit(dispatcher.flush(PATIENCE))
        for _ in range(50):
            dispatcher.send("task-sent", uuid="parent")
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert dispatcher.flush(PATIENCE) == 0
        assert wait_until(lambda: listener.has(101), patience=PATIENCE)
        assert len(listener.bodies) == 101
        senders = {(event["uuid"], event["pid"]) for event in listener.events() if "uuid" in event}
        assert senders == {("child", child), ("parent", os.getpid())}


@pytest.mark.parametrize("scheme", ["amqps", "amqp", "rediss"])
def test_a_broker_with_the_certificate_of_another_gets_no_word_from_us(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(  # noqa: S603 - our own command
        [
            str(find_program("openssl", package="openssl")),
            *("req", "-x509", "-days", "2", "-nodes", "-subj", "/CN=another.example"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", "subjectAltName=DNS:another.example"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    # Stands for a certificate that an authority we trust gave to somebody else.
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    heard: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def serve(server: socket.socket) -> None:
        link, _ = server.accept()
        try:
            with context.wrap_socket(link, server_side=True) as talk:
                heard.append(talk.recv(100))
        except OSError:
            link.close()

    with socket.create_server((LOOPBACK, 0)) as server:
        serving = Thread(target=serve, args=(server,))
        serving.start()
        url = f"{scheme}://user:word@localhost:{server.getsockname()[1]}/0"
        app = Celeriac(url, environ={}, broker_use_ssl=True if scheme == "amqp" else None)
        with pytest.raises(ConnectionLost, match="certificate"):
            app.connection().open()
        serving.join(PATIENCE)

    assert heard in ([], [b""])
