"""Spelling: bytes and dicts to records and back. The only room that knows Celery's formats."""
