"""A cluster in a terminal: its workers and tasks on a full screen, by keyboard alone."""
