"""Redis over TLS: whoever asks for it gets it, with the certificate checked, or nothing."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange
from celeriac.programs.port import LOOPBACK
from celeriac.programs.process import find_program
from celeriac.testing.brokers import RedisServer
from celeriac.transport.connect import connect
from tests.contract import Listener, body, queue_of
from tests.links import MIB, PATIENCE, Place, arrivals, confirm, success

EVENTS = Exchange("celeryev", "fanout", is_durable=True)


class TlsRedis(RedisServer):
    """A Redis server that speaks TLS alone, with a certificate that it signed itself."""

    def __init__(self) -> None:
        super().__init__()
        self.certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        subprocess.run(  # noqa: S603 - our own command
            [
                str(find_program("openssl", package="openssl")),
                *("req", "-x509", "-days", "2", "-nodes", "-subj", "/CN=localhost"),
                *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
                *("-addext", f"subjectAltName=IP:{LOOPBACK}"),
                *("-keyout", str(key), "-out", str(self.certificate)),
            ],
            check=True,
            capture_output=True,
        )
        self._settings |= {
            "port": "0",
            "tls-port": str(self.port),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(key),
            "tls-ca-cert-file": str(self.certificate),
            "tls-auth-clients": "no",
        }

    @property
    def tls_url(self) -> str:
        return f"rediss://{LOOPBACK}:{self.port}/0"

    def client(self, database: int = 0) -> redis.Redis:
        return redis.Redis(
            host=LOOPBACK, port=self.port, db=database, ssl=True, ssl_ca_certs=str(self.certificate)
        )


@pytest.fixture(scope="module")
def tls_redis() -> Iterator[TlsRedis]:
    with TlsRedis() as server:
        yield server


def trusting(server: TlsRedis) -> Settings:
    return Settings(broker_url=f"{server.tls_url}?ssl_ca_certs={server.certificate}")


def test_a_server_whose_certificate_we_trust_is_spoken_to(tls_redis: TlsRedis) -> None:
    with connect(trusting(tls_redis)) as link:
        listener = Listener(link, queue_of(EVENTS, "#"))

        link.publish(EVENTS, body(1), routing_key="task.sent")

        assert listener.drain(1) == [1]


def test_the_options_may_be_a_setting(tls_redis: TlsRedis) -> None:
    options = {"ssl_cert_reqs": "required", "ssl_ca_certs": str(tls_redis.certificate)}
    settings = Settings(broker_url=f"redis://{LOOPBACK}:{tls_redis.port}/0", broker_use_ssl=options)

    with connect(settings) as link:
        listener = Listener(link, queue_of(EVENTS, "#"))
        link.publish(EVENTS, body(1), routing_key="task.sent")

        assert listener.drain(1) == [1]


def test_nothing_is_left_behind_in_the_layer_of_tls(tls_redis: TlsRedis) -> None:
    with connect(trusting(tls_redis)) as link, connect(trusting(tls_redis)) as sender:
        listener = Listener(link, queue_of(EVENTS, "#"))

        for number in range(3000):
            sender.publish(EVENTS, body(number), routing_key="task.sent")
            if number % 500 == 0:
                sender.publish(
                    EVENTS, b'{"number": -1, "text": "%b"}' % (b"x" * 500_000), routing_key="task.x"
                )
        assert sender.unconfirmed(30.0) == 0

        numbers = listener.drain(3006)
        assert [number for number in numbers if number >= 0] == list(range(3000))


@pytest.mark.parametrize("is_setting", [True, False])
def test_a_certificate_that_nobody_vouches_for_is_not_accepted(tls_redis: TlsRedis, is_setting: bool) -> None:
    plain_url = f"redis://{LOOPBACK}:{tls_redis.port}/0"
    settings = Settings(broker_url=plain_url if is_setting else tls_redis.tls_url, broker_use_ssl=is_setting)
    link = connect(settings)

    with pytest.raises(ConnectionLost, match="certificate verify failed"):
        link.open()

    link.close()


@pytest.mark.parametrize("is_setting", [True, False])
def test_who_asks_for_tls_never_speaks_plain_text(redis_server: RedisServer, is_setting: bool) -> None:
    url = redis_server.url if is_setting else redis_server.url.replace("redis:", "rediss:")
    link = connect(Settings(broker_url=url, broker_use_ssl=is_setting, broker_connection_timeout=1.0))

    with pytest.raises(ConnectionLost):
        link.publish(EVENTS, body(1))

    link.close()


# -- results


def test_results_are_kept_and_told_over_tls(tls_redis: TlsRedis) -> None:
    url = f"{tls_redis.tls_url}?ssl_ca_certs={tls_redis.certificate}&ssl_cert_reqs=required&socket_timeout=9"
    with ExitStack() as ends:
        place = Place(url, ends)
        link = place.link()
        confirm(link, "a", "b")

        place.write(success("a", "x" * MIB))
        place.write(success("b"))

        assert arrivals(link, 2) == [success("a", "x" * MIB), success("b")]
        link.read(["b", "a"])
        assert arrivals(link, 2) == [success("b"), success("a", "x" * MIB)]
        assert len(place.store.read(["a", "b"], timeout=PATIENCE)) == 2


@pytest.mark.parametrize("is_setting", [True, False])
def test_results_go_to_nobody_whose_certificate_we_do_not_trust(
    tls_redis: TlsRedis, is_setting: bool
) -> None:
    url = f"redis://{LOOPBACK}:{tls_redis.port}/0" if is_setting else tls_redis.tls_url
    with ExitStack() as ends:
        place = Place(url, ends, redis_backend_use_ssl=is_setting)

        with pytest.raises(ConnectionLost, match="certificate verify failed"):
            place.link()
        with pytest.raises(ConnectionLost, match="certificate verify failed"):
            place.write(success("a"))
