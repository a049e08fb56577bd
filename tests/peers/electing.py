"""The Celery app of the peers with elections that an arbiter decides, by the two lines that users write.

``PEERS_ELECTION_ACTIONS`` names the tasks that elections may start.
"""

import os

from app import app  # type: ignore[import-not-found]  # the file beside this one, which the workers run in

from celeriac.integrations.celery import install

install(app, election_actions=os.environ["PEERS_ELECTION_ACTIONS"].split(","))
