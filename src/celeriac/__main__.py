"""``python -m celeriac``: the same as the command ``celeriac``."""

from celeriac.cli import main

if __name__ == "__main__":
    main()
