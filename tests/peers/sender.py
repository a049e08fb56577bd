"""Sends tasks by Celery's own client. Each line of the input is ``[name, arguments, id, reply_to]``, as JSON.

Says how many it has sent for each empty line.
"""

import json
import os
import sys

from celery import Celery

app = Celery(broker=os.environ["CELERY_BROKER_URL"], backend=os.environ["CELERY_RESULT_BACKEND"])
if os.environ["CELERY_BROKER_URL"].startswith("amqp"):
    app.conf.broker_transport_options = {"confirm_publish": True}
sent = 0
for line in sys.stdin:
    if not line.strip():
        print(sent, flush=True)
        continue
    name, arguments, task_id, reply_to = json.loads(line)
    app.send_task(name, arguments, task_id=task_id, reply_to=reply_to or None)
    sent += 1
