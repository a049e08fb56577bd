"""The call of ``evcam`` in the document on monitoring: a snapshot every 10 seconds."""

import sys

from celery import Celery
from celery.events.snapshot import evcam

app = Celery(broker=sys.argv[1])

evcam(camera="my_project.Camera", freq=10.0, app=app)
