"""Running one task: what comes of whatever it does."""

import asyncio
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread
from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.errors import Ignore, Reject, Retry, SoftTimeLimitExceeded, WorkerLost
from celeriac.model.outcome import Outcome
from celeriac.model.task_request import TaskRequest
from celeriac.node.stop_signals import interrupt, stop_signals
from celeriac.transport.memory import MemoryBroker
from celeriac.worker.execute import Executor
from celeriac.worker.pool.base import Job
from celeriac.worker.pool.run import ListenerReport
from tests.component.worker.pool.ledger import Ledger


class Bench:
    """An app, and what runs its tasks, one at a time."""

    def __init__(self, **settings: Any) -> None:
        self.app = Celeriac(MemoryBroker(), "redis://", environ={}, **settings)
        self.executor = Executor(self.app.tasks, self.app.conf)

    def job(self, name: str, *args: Any, embed: dict[str, Any] | None = None, **fields: Any) -> Job:
        body = json.dumps([args, {}, embed or {}]).encode()
        request = TaskRequest(**{"id": "the-id", "task": name, "body": body, **fields})
        return Job(1, request, "w1@here", routing_key="celery", priority=3, is_redelivered=True)

    def run(self, name: str, *args: Any, embed: dict[str, Any] | None = None, **fields: Any) -> Outcome:
        report = ListenerReport(1, Ledger(None))  # type: ignore[arg-type]
        return self.executor.execute(self.job(name, *args, embed=embed, **fields), report)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def stored(outcome: Outcome) -> Any:
    return json.loads(outcome.result)


def signature(task: str, *args: Any, **options: Any) -> dict[str, Any]:
    return {
        "task": task,
        "args": list(args),
        "kwargs": {},
        "options": options,
        "subtask_type": None,
        "immutable": False,
    }


# -- what a task returns


def test_a_value_is_told_as_json_and_as_text(bench: Bench) -> None:
    bench.app.task(name="double")(lambda text: [text, text])

    outcome = bench.run("double", "a")

    assert (outcome.state, outcome.result, outcome.text) == ("SUCCESS", b'["a", "a"]', "['a', 'a']")
    assert outcome.runtime > 0
    assert (outcome.postings, outcome.children, outcome.chord, outcome.traceback) == ((), (), b"", None)


def test_the_text_of_a_result_is_cut_where_the_task_says(bench: Bench) -> None:
    bench.app.task(name="long", resultrepr_maxsize=20)(lambda: "x" * 1000)

    outcome = bench.run("long")

    assert len(outcome.text) == 20
    assert len(outcome.result) == 1002


def test_a_value_that_json_cannot_hold_is_a_failure_that_names_it(bench: Bench) -> None:
    bench.app.task(name="odd")(lambda: {"a": object()})

    outcome = bench.run("odd")

    assert outcome.state == "FAILURE"
    assert "task odd returned a dict" in outcome.text
    assert "object is not JSON serializable: use strings, numbers, lists and" in outcome.text


@pytest.mark.parametrize("case", ["task", "message", "settings", "no backend"])
def test_a_result_that_nobody_keeps_may_be_anything(case: str) -> None:
    settings: dict[str, Any] = {"task_ignore_result": True} if case == "settings" else {}
    bench = Bench(**settings)
    if case == "no backend":
        bench.app = Celeriac(MemoryBroker(), environ={})
        bench.executor = Executor(bench.app.tasks, bench.app.conf)
    options = {"ignore_result": True} if case == "task" else {}
    bench.app.task(name="odd", **options)(object)

    outcome = bench.run("odd", ignore_result=True if case == "message" else None)

    assert (outcome.state, outcome.result) == ("SUCCESS", b"null")
    assert outcome.text.startswith("<object object")


def test_a_coroutine_is_run_to_its_end(bench: Bench) -> None:
    @bench.app.task(name="later", bind=True)
    async def later(self: Any, number: int) -> list[Any]:
        await asyncio.sleep(0)
        return [number, self.request.id]

    outcome = bench.run("later", 3)

    assert stored(outcome) == [3, "the-id"]


def test_a_task_knows_the_run_it_is_in(bench: Bench) -> None:
    @bench.app.task(name="asks", bind=True)
    def asks(self: Any) -> list[Any]:
        request = self.request
        return [request.id, request.retries, request.hostname, request.delivery_info]

    outcome = bench.run("asks", retries=2)

    where = {"exchange": "", "routing_key": "celery", "priority": 3, "redelivered": True}
    assert stored(outcome) == ["the-id", 2, "w1@here", where]


def test_tasks_that_a_task_sends_are_its_children(bench: Bench) -> None:
    child = bench.app.task(name="child")(lambda: None)
    bench.app.task(name="parent")(lambda: child.delay().id)

    outcome = bench.run("parent")

    assert [tree.id for tree in outcome.children] == [stored(outcome)]


# -- what cannot be run at all


def test_an_unknown_task_fails_under_the_name_that_celery_knows(bench: Bench) -> None:
    outcome = bench.run("nobody.knows")

    assert outcome.state == "FAILURE"
    assert stored(outcome) == {
        "exc_type": "NotRegistered",
        "exc_message": ["nobody.knows"],
        "exc_module": "celery.exceptions",
    }


def test_a_body_that_cannot_be_read_is_a_failure(bench: Bench) -> None:
    bench.app.task(name="any")(lambda: None)

    outcome = bench.run("any", body=b"no json")

    assert outcome.state == "FAILURE"
    assert "cannot decode the task arguments" in outcome.text


def test_arguments_that_a_task_does_not_take_are_a_failure(bench: Bench) -> None:
    bench.app.task(name="none")(lambda: None)

    outcome = bench.run("none", 1)

    assert stored(outcome)["exc_type"] == "TypeError"


# -- what a task raises


def test_an_error_is_told_with_where_it_came_from(bench: Bench) -> None:
    @bench.app.task(name="fails")
    def fails(number: int) -> None:
        raise ValueError("no", number)

    outcome = bench.run("fails", 3)

    assert (outcome.state, outcome.text) == ("FAILURE", "ValueError('no', 3)")
    assert stored(outcome) == {"exc_type": "ValueError", "exc_message": ["no", 3], "exc_module": "builtins"}
    assert outcome.traceback is not None
    assert "in fails" in outcome.traceback
    assert "in execute" not in outcome.traceback
    assert outcome.is_expected is False


def test_an_error_that_cannot_be_told_is_told_by_its_kind(bench: Bench) -> None:
    class Shy(Exception):
        def __repr__(self) -> str:
            raise RuntimeError

        __str__ = __repr__

    @bench.app.task(name="fails")
    def fails() -> None:
        raise Shy

    outcome = bench.run("fails")

    assert (outcome.state, outcome.text) == ("FAILURE", "<Shy>")


def test_an_error_without_arguments_to_look_at_is_told_by_its_kind(bench: Bench) -> None:
    class Hidden(Exception):
        @property
        def args(self) -> Any:  # type: ignore[override]
            raise RuntimeError

    @bench.app.task(name="fails")
    def fails() -> None:
        raise Hidden

    outcome = bench.run("fails", embed={"errbacks": [signature("told")]})

    assert (stored(outcome)["exc_type"].split(".")[-1], stored(outcome)["exc_message"]) == ("Hidden", [])
    assert [each.request.task for each in outcome.postings] == ["told"]


def test_an_error_that_cannot_be_told_is_tried_again_all_the_same(bench: Bench) -> None:
    class Shy(Exception):
        def __repr__(self) -> str:
            raise RuntimeError

        __str__ = __repr__

    @bench.app.task(name="tries", autoretry_for=(Shy,))
    def tries() -> None:
        raise Shy

    outcome = bench.run("tries")

    assert (outcome.state, len(outcome.postings)) == ("RETRY", 1)


@pytest.mark.parametrize("option", ["autoretry_for", "throws"])
def test_a_warning_that_comes_while_an_error_is_seen_to_changes_nothing(bench: Bench, option: str) -> None:
    warnings = [SoftTimeLimitExceeded()]

    class Interrupted(type):
        def __instancecheck__(cls, value: object) -> bool:
            while warnings:
                raise warnings.pop()
            return isinstance(value, ValueError)

    class Late(Exception, metaclass=Interrupted):
        pass

    @bench.app.task(name="fails", **{option: (Late,)})
    def fails() -> None:
        raise ValueError("no")

    outcome = bench.run("fails", embed={"errbacks": [signature("told")]})

    ends = {"autoretry_for": ("RETRY", "fails"), "throws": ("FAILURE", "told")}
    assert (outcome.state, outcome.postings[0].request.task) == ends[option]
    assert outcome.text == "ValueError('no')"
    assert not warnings


def test_the_trace_of_an_error_is_cut(bench: Bench) -> None:
    @bench.app.task(name="fails")
    def fails() -> None:
        raise ValueError("x" * 1_000_000)

    outcome = bench.run("fails")

    assert outcome.traceback is not None
    assert len(outcome.traceback) < 70_000
    assert len(outcome.text) < 11_000


def test_an_error_that_a_task_expects_is_marked(bench: Bench) -> None:
    @bench.app.task(name="fails", throws=(KeyError,))
    def fails() -> None:
        raise KeyError("a")

    outcome = bench.run("fails")

    assert (outcome.state, outcome.is_expected) == ("FAILURE", True)


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError()])
def test_what_would_end_a_program_is_a_failure_and_ends_none(bench: Bench, error: BaseException) -> None:
    @bench.app.task(name="ends")
    def ends() -> None:
        raise error

    outcome = bench.run("ends")

    assert outcome.state == "FAILURE"
    assert stored(outcome)["exc_type"] == "WorkerLostError"
    assert type(error).__name__ in outcome.text


@pytest.mark.usefixtures("default_signals")
def test_ctrl_c_is_passed_on(bench: Bench) -> None:
    @bench.app.task(name="ends")
    def ends() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run("ends")


@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_by_sigterm_is_passed_on_where_ctrl_c_is_ignored(bench: Bench) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    @bench.app.task(name="ends")
    def ends() -> None:
        signal.raise_signal(signal.SIGTERM)

    with stop_signals(interrupt), pytest.raises(KeyboardInterrupt):
        bench.run("ends")


def test_what_ctrl_c_raises_is_a_failure_where_ctrl_c_does_not_come(bench: Bench) -> None:
    @bench.app.task(name="ends")
    def ends() -> None:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as thread:
        outcome = thread.submit(bench.run, "ends").result()

    assert (outcome.state, stored(outcome)["exc_type"]) == ("FAILURE", "WorkerLostError")


def test_a_task_may_end_without_a_result(bench: Bench) -> None:
    @bench.app.task(name="ignores")
    def ignores() -> None:
        raise Ignore

    outcome = bench.run("ignores")

    assert outcome.state == "IGNORED"


@pytest.mark.parametrize("requeue", [True, False])
def test_a_task_may_reject_its_message(bench: Bench, requeue: bool) -> None:
    @bench.app.task(name="rejects")
    def rejects() -> None:
        raise Reject("not mine", requeue=requeue)

    outcome = bench.run("rejects")

    assert (outcome.state, outcome.requeue) == ("REJECTED", requeue)
    assert "not mine" in outcome.text


# -- once more


def test_a_retry_brings_the_message_of_the_next_try_and_the_reason(bench: Bench) -> None:
    @bench.app.task(name="retries", bind=True)
    def retries(self: Any) -> None:
        raise self.retry(exc=ValueError("not yet"), countdown=60)

    outcome = bench.run("retries", retries=1)

    assert (outcome.state, outcome.text) == ("RETRY", "ValueError('not yet')")
    assert stored(outcome)["exc_type"] == "ValueError"
    assert outcome.traceback is not None
    (posting,) = outcome.postings
    assert (posting.request.id, posting.request.retries, posting.routing_key) == ("the-id", 2, "celery")


def test_a_retry_goes_to_the_queue_that_the_task_waited_in(bench: Bench) -> None:
    @bench.app.task(name="tries", bind=True)
    def tries(self: Any) -> None:
        self.retry()

    job = bench.job("tries")._replace(exchange="topics", routing_key="news.today", queue="news")
    outcome = bench.executor.execute(job, ListenerReport(1, Ledger(None)))  # type: ignore[arg-type]

    (posting,) = outcome.postings
    assert (posting.exchange, posting.routing_key) == ("", "news")


def test_a_retry_for_no_reason_is_its_own(bench: Bench) -> None:
    @bench.app.task(name="retries", bind=True)
    def retries(self: Any) -> None:
        raise self.retry(countdown=60)

    outcome = bench.run("retries")

    assert outcome.state == "RETRY"
    assert stored(outcome)["exc_module"] == "celery.exceptions"
    assert stored(outcome)["exc_type"] == "Retry"


def test_a_retry_that_nobody_made_is_a_failure(bench: Bench) -> None:
    @bench.app.task(name="retries")
    def retries() -> None:
        raise Retry("by hand")

    outcome = bench.run("retries")

    assert (outcome.state, outcome.postings) == ("FAILURE", ())


def test_after_the_last_retry_a_task_fails(bench: Bench) -> None:
    @bench.app.task(name="retries", bind=True, max_retries=2)
    def retries(self: Any) -> None:
        raise self.retry(countdown=60)

    outcome = bench.run("retries", retries=2)

    assert outcome.state == "FAILURE"
    assert stored(outcome)["exc_type"] == "MaxRetriesExceededError"


def test_a_task_is_tried_again_by_itself_after_errors_that_it_names(bench: Bench) -> None:
    @bench.app.task(name="shaky", autoretry_for=(OSError,), dont_autoretry_for=(FileNotFoundError,))
    def shaky(kind: str) -> None:
        raise {"os": OSError, "file": FileNotFoundError, "value": ValueError}[kind]("no")

    outcomes = [bench.run("shaky", kind) for kind in ("os", "file", "value")]
    last = bench.run("shaky", "os", retries=3)

    assert [each.state for each in outcomes] == ["RETRY", "FAILURE", "FAILURE"]
    assert outcomes[0].text == "OSError('no')"
    assert "in shaky" in (outcomes[0].traceback or "")
    assert (last.state, last.text) == ("FAILURE", "OSError('no')")


# -- what follows


def test_callbacks_and_the_rest_of_a_chain_follow_a_success(bench: Bench) -> None:
    bench.app.task(name="add")(lambda first, second: first + second)
    embed = {"callbacks": [signature("told")], "chain": [signature("last"), signature("next", task_id="b")]}

    outcome = bench.run("add", 1, 2, embed=embed)

    requests = [posting.request for posting in outcome.postings]
    assert [request.task for request in requests] == ["told", "next"]
    assert [json.loads(request.body)[0] for request in requests] == [[3], [3]]
    assert [tree.id for tree in outcome.children] == [request.id for request in requests]
    assert requests[1].id == "b"


def test_what_waits_for_the_group_of_a_task_is_told(bench: Bench) -> None:
    bench.app.task(name="add")(lambda first, second: first + second)
    body = signature("sum")

    outcome = bench.run("add", 1, 2, embed={"chord": body})

    assert json.loads(outcome.chord) == body


def test_callbacks_that_cannot_be_sent_are_the_failure_of_their_task(bench: Bench) -> None:
    bench.app.task(name="any")(lambda: None)

    outcome = bench.run("any", embed={"callbacks": [{**signature("c"), "subtask_type": "chord"}]})

    assert (outcome.state, outcome.postings) == ("FAILURE", ())
    assert "chord" in outcome.text


def test_errbacks_follow_a_failure_and_its_chain_fails_with_it(bench: Bench) -> None:
    @bench.app.task(name="fails")
    def fails() -> None:
        raise ValueError

    embed = {
        "callbacks": [signature("never")],
        "errbacks": [signature("mourn")],
        "chain": [signature("next", task_id="b")],
        "chord": signature("sum"),
    }

    outcome = bench.run("fails", embed=embed)

    (posting,) = outcome.postings
    assert posting.request.task == "mourn"
    assert json.loads(posting.request.body)[0] == ["the-id"]
    assert outcome.also_failed == ("b",)
    assert outcome.chord


def test_errbacks_that_want_the_error_are_called_in_place(bench: Bench) -> None:
    seen: list[Any] = []

    @bench.app.task(name="mourn")
    def mourn(request: Any, error: BaseException, trace: str) -> None:
        seen.append((request.id, str(error), "in fails" in trace))

    @bench.app.task(name="fails")
    def fails() -> None:
        raise ValueError("no")

    outcome = bench.run("fails", embed={"errbacks": [signature("mourn")]})

    assert seen == [("the-id", "no", True)]
    assert outcome.postings == ()


def test_errbacks_that_make_no_sense_leave_the_failure_as_it_is(bench: Bench) -> None:
    @bench.app.task(name="fails")
    def fails() -> None:
        raise ValueError("no")

    outcome = bench.run("fails", embed={"errbacks": [{**signature("c"), "subtask_type": "chord"}]})

    assert (outcome.state, outcome.text) == ("FAILURE", "ValueError('no')")


# -- jobs that the pool ended


def test_a_lost_job_fails_and_its_errbacks_follow(bench: Bench) -> None:
    given = bench.job("any", embed={"errbacks": [signature("mourn")], "chord": signature("sum")})

    outcome = bench.executor.fail(given, WorkerLost("it died"), cause="lost", runtime=1.5)

    assert (outcome.state, outcome.cause, outcome.runtime) == ("FAILURE", "lost", 1.5)
    assert [posting.request.task for posting in outcome.postings] == ["mourn"]
    assert outcome.chord


def test_errbacks_of_a_lost_job_keep_nobody_waiting(bench: Bench) -> None:
    gate, threads = Event(), []
    is_done = Event()

    @bench.app.task(name="mourn")
    def mourn(request: Any, error: BaseException, trace: str | None) -> None:
        gate.wait()
        threads.append((current_thread().name, request.id, str(error), trace))
        is_done.set()

    given = bench.job("any", embed={"errbacks": [signature("mourn")]})

    outcome = bench.executor.fail(given, WorkerLost("it died"), cause="lost", runtime=1.5)

    assert (outcome.postings, threads) == ((), [])
    gate.set()
    assert is_done.wait(60)
    assert threads == [("celeriac-errback", "the-id", "it died", None)]


def test_no_errbacks_follow_a_job_that_was_terminated(bench: Bench) -> None:
    given = bench.job("any", embed={"errbacks": [signature("mourn")]})

    outcome = bench.executor.fail(given, WorkerLost("ended"), cause="terminated", runtime=1.5)

    assert (outcome.postings, outcome.cause) == ((), "terminated")


def test_a_lost_job_whose_body_cannot_be_read_fails_all_the_same(bench: Bench) -> None:
    outcome = bench.executor.fail(bench.job("any", body=b"?"), WorkerLost("it died"), cause="lost")

    assert outcome.state == "FAILURE"
