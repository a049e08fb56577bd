"""What a run would do, before it is done."""

from contextlib import redirect_stdout
from io import StringIO

from celeriac.pipeline.event import narrow
from celeriac.pipeline.fold import fold
from celeriac.pipeline.intake import Intake, covered_spans
from celeriac.pipeline.report import Estimate
from celeriac.pipeline.warehouse import Warehouse

__all__ = ["estimate"]


def estimate(intake: Intake, warehouse: Warehouse) -> Estimate:
    """Return what is new, by the names of segments, and the plan by which it would be folded."""
    manifest = warehouse.manifest()
    covered = covered_spans(manifest)
    new = intake.new(covered)
    events = sum(segment.rows for segment in new)
    rate = None if manifest is None else manifest.rate
    plan = ""
    if new:
        recorders = sorted({segment.recorder for segment in new})
        raw = intake.fresh(intake.raw(new), new, covered)
        with redirect_stdout(StringIO()) as told:
            fold(narrow(raw, recorders)).explain("formatted")
        plan = told.getvalue().strip()
    return Estimate(
        segments=len(new),
        events=events,
        bytes=sum(segment.size for segment in new),
        seconds=events / rate if rate else None,
        plan=plan,
    )
