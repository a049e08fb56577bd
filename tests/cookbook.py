"""The tables that the examples of the query cookbook, and its notebook, are run with."""

from pathlib import Path

from tests.warehouses import MIDNIGHT, attempt, publish, rollup, task

__all__ = ["MARK", "publish_tables"]

#: An example with it reads tables.
MARK = "CELERIAC_WAREHOUSE_URL"


def publish_tables(root: Path) -> None:
    """Publish two hours of two tasks: eight attempts of ``shop.pay``, two of which failed, and two others."""
    tasks, attempts, failures, hours = [], [], [], []
    for number in range(10):
        name = "shop.pay" if number < 8 else "shop.mail"
        failed = number in (3, 7)
        begin = MIDNIGHT + 3600 * (number % 2) + 60 * number
        wait, run = 0.1 * (number + 1), 0.5 * (number + 1)
        outcome = "FAILURE" if failed else "SUCCESS"
        worker = f"w{number % 2 + 1}@lab"
        tasks.append(task(f"t-{number}", name=name, state=outcome, worker=worker, first_at=begin))
        attempts.append(
            attempt(
                f"t-{number}",
                name=name,
                worker=worker,
                outcome=outcome,
                queue="celery",
                received_at=begin,
                started_at=begin + wait,
                ended_at=begin + wait + run,
                counted_at=begin,
                wait=wait,
                run=run,
            )
        )
        if failed:
            error = "Timeout('card')" if number == 3 else "KeyError('id')"
            failures.append(
                {
                    "uuid": f"t-{number}",
                    "raised_at": begin + wait + run,
                    "outcome": "FAILURE",
                    "worker": worker,
                    "exception": error,
                    "row": number,
                }
            )
    for hour in (0, 1):
        for name in ("shop.mail", "shop.pay"):
            chosen = [
                each
                for each in attempts
                if each["name"] == name and int((each["counted_at"] - MIDNIGHT) // 3600) == hour
            ]
            hours.append(
                rollup(
                    MIDNIGHT + 3600 * hour,
                    name,
                    runs=[each["run"] for each in chosen],
                    waits=[each["wait"] for each in chosen],
                    failed=sum(each["outcome"] == "FAILURE" for each in chosen),
                    worker=f"w{hour + 1}@lab",
                )
            )
    publish(
        root, {"tasks": tasks, "attempts": attempts, "failures": failures, "rollups_hour": hours, "gaps": []}
    )
