"""The shipped test kit.

For tests that need no broker, :class:`celeriac.MemoryBroker` is in the package itself. Here are

- ``brokers``: real Redis, Valkey and RabbitMQ servers on free ports, that end with the test;
- ``postgres``: a real PostgreSQL server, likewise;
- ``peers``: real Celery workers, run by any interpreter that has Celery;
- ``sample``: a small Celery app, and a load for it;
- ``histories``: events of tasks as a cluster could produce them, to test monitors with.

Nothing is imported until asked for: what needs Redis or kombu loads them by itself.
"""
