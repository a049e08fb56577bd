"""The Celery app of the peers with elections that an arbiter decides, by the two lines that users write."""

from app import app  # type: ignore[import-not-found]  # the file beside this one, which the workers run in

from celeriac.integrations.celery import install

install(app, election_actions=["*"])
