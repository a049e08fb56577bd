"""The worker: steps, pools, and what it does with a task."""
