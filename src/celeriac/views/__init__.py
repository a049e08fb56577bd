"""From records and state to the rows that every face prints."""
