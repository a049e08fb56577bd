"""The parts of a worker that start and stop with it."""
