"""A process that contends for a lease and prints what it believes: a line of JSON for each look.

A line holds its term, its token, and the monotonic clock before and after the look; the term is 0 while it
does not lead. The argument is JSON: the broker, how long the lease lasts, and settings.
"""

import json
import os
import sys
from time import monotonic, sleep

from celeriac import Celeriac
from celeriac.errors import NetworkError

#: How often it looks.
EVERY = 0.02


def main() -> None:
    """Contend until killed."""
    told = json.loads(sys.argv[1])
    app = Celeriac(told["url"], environ={}, **told["settings"])
    leader = app.leadership("report", ttl=told["ttl"])
    number = 0
    while True:
        try:
            number += leader.elect(timeout=0)
        except NetworkError:
            sleep(EVERY)
        leads = True
        while leads:
            before = monotonic()
            leads = leader.is_leader()
            after = monotonic()
            # A term has one leader, and each process counts its own.
            term = os.getpid() * 1_000_000 + number if leads else 0
            print(json.dumps([term, leader.token, before, after]), flush=True)
            sleep(EVERY)
        leader.resign()


if __name__ == "__main__":
    main()
