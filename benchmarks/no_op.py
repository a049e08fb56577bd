"""The app with a task that does nothing: Celery's where its broker is named in the environment, else ours."""

import os

NAME = "benchmarks.no_op"


def no_op() -> None:
    """Do nothing."""


if "CELERY_BROKER_URL" in os.environ:
    from celery import Celery

    app = Celery("benchmarks", set_as_current=False)
    app.conf.update(accept_content=["json"], broker_connection_retry_on_startup=True)
    app.task(name=NAME)(no_op)
else:
    from celeriac import Celeriac

    app = Celeriac()
    app.task(name=NAME)(no_op)
