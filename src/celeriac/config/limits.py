"""Limits of the input of a peer, each with its reason."""

from dataclasses import dataclass

__all__ = ["DAY", "KIB", "MIB", "Limits"]

KIB = 1024
MIB = 1024 * KIB
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the messages of one peer. A message that exceeds a limit is refused and counted."""

    #: A batch of events: a full batch of typical events (24 of 600 bytes) has 14 KiB.
    body_bytes: int = MIB
    #: One event. Celery truncates reprs to 1,024 characters, so 256 KiB is a long traceback.
    event_bytes: int = 256 * KIB
    #: Events in one body. Celery sends batches of up to 24.
    batch_events: int = 10_000
    #: Nesting of unknown fields: deep enough for valid payloads, far below the limit of Python.
    depth: int = 32
    #: Keys and list items in the unknown fields of one event, including nested ones.
    items: int = 1024
    #: One string. Longer ones are truncated and end in a marker.
    text_chars: int = 64 * KIB
    #: Seconds that the wall clock of a sender may be ahead.
    future: float = DAY
    #: Number of refused bodies that are kept, by digest.
    quarantine: int = 100
