"""The pages of the dashboard. Each shows what the API tells, as it is now or as of an instant."""
