"""The Celery app of the peers with Celeriac's detector in its workers, by the two lines that users write."""

from app import app  # type: ignore[import-not-found]  # the file beside this one, which the workers run in

from celeriac.integrations.celery import install

install(app)
