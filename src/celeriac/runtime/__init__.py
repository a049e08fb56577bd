"""Ways of waiting: threads, gevent, eventlet, asyncio."""
