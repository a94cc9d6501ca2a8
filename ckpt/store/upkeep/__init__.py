"""Looking after a job directory: verify, inspect, prune."""
