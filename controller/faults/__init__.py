"""Which host, cable or device has cost a job a rank: one diagnosis at a time, from what all hosts say of each other."""
