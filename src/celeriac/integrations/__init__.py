"""Parts that plug into programs of others. Nothing here is imported unless it is asked for."""
