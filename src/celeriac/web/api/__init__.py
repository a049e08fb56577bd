"""The API under ``/api/v1``: JSON of the rows that every face shows."""
