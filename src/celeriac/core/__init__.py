"""Rules: pure state machines, without socket, thread, timer, logger or wall clock."""
