"""The dispatcher of the document on monitoring: sends one event."""

import sys

from celery import Celery
from celery.events.dispatcher import EventDispatcher

app = Celery(broker=sys.argv[1])

with app.connection() as connection:
    with EventDispatcher(connection, enabled=True) as dispatcher:
        dispatcher.send("worker-online", custom_field="value")
