"""The receiver of the document on monitoring: prints the type of each event."""

import sys

from celery import Celery

app = Celery(broker=sys.argv[1])


def my_handler(event):
    print(f"Received event: {event['type']}")


with app.connection() as conn:
    recv = app.events.Receiver(conn, handlers={"*": my_handler})
    recv.capture(limit=None)
