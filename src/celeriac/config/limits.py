"""What one peer may send, each limit beside its reason."""

from dataclasses import dataclass

__all__ = ["DAY", "KIB", "MIB", "Limits"]

KIB = 1024
MIB = 1024 * KIB
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one peer may send. Beyond it the message is refused and counted."""

    #: A batch of events: a full one of typical events (24 of 600 bytes) is 14 KiB.
    body_bytes: int = MIB
    #: One event. Celery cuts its reprs at 1,024 characters, so 256 KiB is a long traceback.
    event_bytes: int = 256 * KIB
    #: Events in one body. Celery flushes a batch at 24.
    batch_events: int = 10_000
    #: Nesting of unknown fields: deep enough for any honest payload, far from Python's own limit.
    depth: int = 32
    #: Keys and list items in the unknown fields of one event, nested ones included.
    items: int = 1024
    #: One text. Longer ones are cut and end in a marker.
    text_chars: int = 64 * KIB
    #: How far ahead of us a sender's wall clock may be.
    future: float = DAY
    #: Refused bodies that are remembered, by digest.
    quarantine: int = 100
