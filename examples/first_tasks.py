"""Print the last tasks of a captured event file."""

import gzip

from celeriac import State

state = State()
with gzip.open("tests/data/celery_amqp.jsonl.gz") as capture:
    for line in capture:
        state.receive(line)

for uuid, task in state.tasks_by_time(limit=10):
    print(f"{uuid:.8}  {task.name or '?':<16} {task.state:<8} attempts {task.attempts}  on {task.host}")
print(f"{state.event_count} events, {len(state.tasks)} tasks, {len(state.workers)} workers")
