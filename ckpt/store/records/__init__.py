"""What is written in a job directory, as records: job, manifest, control file, with their MACs."""
