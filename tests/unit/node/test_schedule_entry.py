"""From the setting ``beat_schedule`` to entries: what Celery takes is taken, what cannot work is refused."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from celery import schedules as celerys

from celeriac.config import Settings
from celeriac.core.beat import Every, Tick
from celeriac.errors import ImproperlyConfigured
from celeriac.node.crontab import Calendar, crontab
from celeriac.node.schedule_entry import ScheduleEntry, posting_of, read_schedule

#: 2026-05-01, 08:00 UTC.
NOW = 1777622400.0


def read(schedule: Any = 60, /, *, timezone: str = "UTC", **more: Any) -> ScheduleEntry:
    """Return the one entry of a schedule."""
    entry = {"task": "shop.report", "schedule": schedule, **more}
    settings = Settings(beat_schedule={"report": entry}, timezone=timezone)
    return read_schedule(settings, now=NOW)["report"]


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [(60, 60.0), (0.5, 0.5), (timedelta(minutes=2), 120.0), (celerys.schedule(timedelta(seconds=3)), 3.0)],
)
def test_an_interval_is_a_number_a_timedelta_or_a_schedule_of_celery(schedule: Any, seconds: float) -> None:
    entry = read(schedule)

    assert entry.rhythm == Every(seconds)
    assert entry.when == f"every {seconds:g} s"


@pytest.mark.parametrize(
    "schedule",
    [
        "0 3 * * mon-fri",
        crontab(0, 3, day_of_week="mon-fri"),
        celerys.crontab(minute=0, hour=3, day_of_week="mon-fri"),
        celerys.crontab(minute="0", hour={3}, day_of_week=[1, 2, 3, 4, 5]),
    ],
)
def test_a_crontab_is_a_text_or_an_object_of_ours_or_of_celery(schedule: Any) -> None:
    entry = read(schedule, timezone="Europe/Berlin")

    next_at = datetime.fromtimestamp(entry.rhythm.next_after(NOW)).astimezone()
    assert isinstance(entry.rhythm, Calendar)
    assert next_at == datetime.fromisoformat("2026-05-04T03:00:00+02:00")


def test_an_entry_as_celery_writes_it_is_taken_as_it_stands() -> None:
    entry = read(
        celerys.crontab(minute=0),
        args=(16, 16),
        kwargs={"deep": True},
        options={"queue": "reports", "expires": 30, "priority": 3},
        relative=True,
    )

    assert (entry.task, entry.args, entry.kwargs) == ("shop.report", (16, 16), {"deep": True})
    assert entry.item.lasts == 30
    assert entry.options["queue"] == "reports"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("shop.report", "entry is 'shop.report'; give a table with task and schedule"),
        ({"schedule": 5}, "missing task"),
        ({"task": "shop.report"}, "missing schedule"),
        ({"task": "shop.report", "schedule": 5, "cron": 1}, "unknown key cron; use task, schedule"),
        ({"task": "shop.report", "schedule": 0}, "give 0.1 to"),
        ({"task": "shop.report", "schedule": -3}, "give 0.1 to"),
        ({"task": "shop.report", "schedule": timedelta(0)}, "give 0.1 to"),
        ({"task": "shop.report", "schedule": float("nan")}, "schedule is nan; give seconds"),
        ({"task": "shop.report", "schedule": True}, "schedule is True; give seconds"),
        ({"task": "shop.report", "schedule": "often"}, "give five fields"),
        ({"task": "shop.report", "schedule": "99 * * * *"}, "(bad minute): correct that field"),
        ({"task": "shop.report", "schedule": crontab(hour=25)}, "crontab hour is 25: give a number from"),
        ({"task": "shop.report", "schedule": crontab(0, 0, 1, 31, 2)}, "'0 0 31 2 1' is never due"),
        ({"task": "", "schedule": 5}, "task names are strings such as 'shop.pay', not"),
        ({"task": "shop.report", "schedule": 5, "args": "abc"}, "give a list or a tuple"),
        ({"task": "shop.report", "schedule": 5, "args": [object()]}, "cannot send"),
        ({"task": "shop.report", "schedule": 5, "kwargs": [1]}, "give a dict with string keys"),
        ({"task": "shop.report", "schedule": 5, "options": 7}, "options is 7; give a table"),
        ({"task": "shop.report", "schedule": 5, "options": {"que": "a"}}, "did you mean queue?"),
        ({"task": "shop.report", "schedule": 5, "options": {"task_id": "a"}}, "remove the option task_id"),
        ({"task": "shop.report", "schedule": 5, "options": {"eta": 5.0}}, "remove the option eta"),
        (
            {"task": "shop.report", "schedule": 5, "options": {"expires": "2027-01-01"}},
            "give seconds above 0",
        ),
        (
            {"task": "shop.report", "schedule": 5, "options": {"headers": {"fencing": 1}}},
            "the header fencing is reserved for the tick; use another name",
        ),
    ],
)
def test_an_entry_that_cannot_work_is_refused_by_its_name_with_the_fix(entry: Any, told: str) -> None:
    settings = Settings(beat_schedule={"the report": entry})

    with pytest.raises(ImproperlyConfigured) as raised:
        read_schedule(settings, now=NOW)

    assert str(raised.value).startswith("beat_schedule, entry 'the report': ")
    assert told in str(raised.value)


def test_a_zone_that_is_not_known_is_refused() -> None:
    settings = Settings(timezone="Europe/Atlantis")

    with pytest.raises(ImproperlyConfigured, match="timezone is 'Europe/Atlantis'"):
        read_schedule(settings, now=NOW)


def test_more_entries_than_a_note_holds_are_refused() -> None:
    entry = {"task": "shop.report", "schedule": 60}
    settings = Settings(beat_schedule={f"report {number:090}": entry for number in range(400)})

    with pytest.raises(ImproperlyConfigured, match="several beats, each with a --name"):
        read_schedule(settings, now=NOW)


# -- messages


def test_the_message_of_a_tick_is_the_same_on_every_host_but_for_the_token() -> None:
    entry = read(60, options={"countdown": 5, "expires": 30, "headers": {"trace": "t1"}})
    settings = Settings()

    first, again = (
        posting_of(entry, Tick("report", NOW), beat="beat", token=token, settings=settings, origin="here")
        for token in (7, 8)
    )

    request = first.request
    assert request.headers == {"trace": "t1", "beat": "report", "beat_tick": NOW, "fencing": 7}
    assert (request.eta, request.expires) == (NOW + 5, NOW + 30)
    assert again.request._replace(headers=request.headers) == request


def test_ids_differ_by_beat_entry_and_moment() -> None:
    entry, other = read(60), read(60)._replace(name="other")
    settings = Settings()

    ids = {
        posting_of(each, Tick(each.name, at), beat=beat, token=1, settings=settings).request.id
        for each in (entry, other)
        for at in (NOW, NOW + 0.5)
        for beat in ("beat", "reports")
    }

    assert len(ids) == 8
