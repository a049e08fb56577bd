"""The project that the document on monitoring names: its camera prints the tasks of each snapshot."""

from celery.events.snapshot import Polaroid


class Camera(Polaroid):
    def on_shutter(self, state):
        for uuid, task in state.tasks_by_time():
            print(f"{task.name}[{uuid}] {task.state}", flush=True)
