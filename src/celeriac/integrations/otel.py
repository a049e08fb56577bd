"""Traces of tasks, sent to whatever takes OpenTelemetry's protocol (OTLP over HTTP)."""

from collections.abc import Iterable
from typing import Final, Self

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from celeriac.errors import ConnectionLost
from celeriac.masking import sanitize_url
from celeriac.views.trace import TaskSpan

__all__ = ["DEFAULT_ENDPOINT", "SpanSender"]

#: Where a collector on this machine listens.
DEFAULT_ENDPOINT: Final = "http://127.0.0.1:4318"
#: Spans of one request.
_BATCH: Final = 500
_TIMEOUT: Final = 10.0


class SpanSender:
    """Sends spans in batches, the last of them when the context ends well."""

    def __init__(self, endpoint: str, *, service: str) -> None:
        self._endpoint = endpoint
        self._exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_TIMEOUT)
        self._resource = Resource.create({"service.name": service})
        self._scope = InstrumentationScope("celeriac")
        self._waiting: list[ReadableSpan] = []
        #: How many were taken there.
        self.sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def send(self, spans: Iterable[TaskSpan]) -> None:
        """Send spans, or have them wait until there are enough."""
        for span in spans:
            self._waiting.append(self._made(span))
            if len(self._waiting) >= _BATCH:
                self.flush()

    def flush(self) -> None:
        """Send what waits. Raises ConnectionLost if nobody takes it."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        if self._exporter.export(waiting) is not SpanExportResult.SUCCESS:
            raise ConnectionLost(
                f"{sanitize_url(self._endpoint)} accepted {self.sent} spans, then stopped; exporting again "
                "sends the same spans"
            )
        self.sent += len(waiting)

    def _made(self, span: TaskSpan) -> ReadableSpan:
        codes = {True: StatusCode.OK, False: StatusCode.ERROR, None: StatusCode.UNSET}
        status = Status(codes[span.is_ok], span.note if span.is_ok is False else None)
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=None if span.parent_id is None else _context(span.trace_id, span.parent_id),
            resource=self._resource,
            attributes=span.attributes,
            kind=SpanKind.CONSUMER,
            status=status,
            start_time=int(span.begin_at * 1e9),
            end_time=int(span.end_at * 1e9),
            instrumentation_scope=self._scope,
        )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
