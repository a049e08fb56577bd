"""Traces of tasks, taken by a server that speaks OpenTelemetry's protocol."""

import gzip
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from celeriac.cli.exit import Code
from tests.event_logs import failed, received, seal, started, succeeded


class Collector(ThreadingHTTPServer):
    """Keeps the spans that it is sent, unless it is to refuse them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.is_refusing = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Request(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        told = ExportTraceServiceRequest.FromString(body)
        for resource in told.resource_spans:
            self.server.services |= {
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            }
            self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.send_response(400 if self.server.is_refusing else 200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(ExportTraceServiceResponse().SerializeToString())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    events = [
        received("a"), started("a", 1.0), succeeded("a", 2.0, runtime=1.0),
        received("b", 3.0, parent_id="a", root_id="a"), started("b", 4.0), failed("b", 5.0, exception="E()"),
        received("open", 6.0),
    ]  # fmt: skip
    seal(tmp_path / "log", events, recorder="rec-1")
    return tmp_path / "log"


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "celeriac", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command


def test_the_tasks_of_a_log_arrive_as_spans(collector: Collector, log: Path) -> None:
    done = run_cli("export", "otel", str(log), "--endpoint", collector.url, "--service", "shop")

    assert (done.returncode, collector.services) == (Code.OK, {"shop"})
    assert "4 spans sent to http://127.0.0.1" in done.stderr
    by_name = {span.name: span for span in collector.spans}
    assert len(collector.spans) == 4
    child = next(span for span in collector.spans if span.status.code == 2 and span.name == "shop.pay")
    parent = next(span for span in collector.spans if span.span_id == child.parent_span_id)
    assert child.trace_id == parent.trace_id
    assert child.status.message == "E()"
    attempt = by_name["shop.pay attempt 1"]
    assert attempt.end_time_unix_nano - attempt.start_time_unix_nano == 1_000_000_000


def test_to_export_again_tells_the_same_spans(collector: Collector, log: Path) -> None:
    for _ in range(2):
        run_cli("export", "otel", str(log), "--endpoint", collector.url)

    assert len({span.span_id for span in collector.spans}) == 4
    assert len(collector.spans) == 8


def test_a_collector_that_takes_nothing_is_told_with_the_fix(collector: Collector, log: Path) -> None:
    collector.is_refusing = True

    done = run_cli("export", "otel", str(log), "--endpoint", collector.url)

    assert done.returncode == Code.UNAVAILABLE
    assert "name another with --endpoint URL" in done.stderr
    assert "Traceback" not in done.stderr
