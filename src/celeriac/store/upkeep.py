"""What is done with a log beside writing and reading it."""

from celeriac.store.compaction import Merged, merge_small
from celeriac.store.export import FORMATS, Format, export
from celeriac.store.log_stat import LogStat, RecorderStat, stat
from celeriac.store.retaining import Retained, apply_retention
from celeriac.store.verification import Finding, Verified, verify

__all__ = [
    "FORMATS",
    "Finding",
    "Format",
    "LogStat",
    "Merged",
    "RecorderStat",
    "Retained",
    "Verified",
    "apply_retention",
    "export",
    "merge_small",
    "stat",
    "verify",
]
