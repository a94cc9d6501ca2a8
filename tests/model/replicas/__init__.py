"""Lines of jobs with replicas, explored exhaustively within small bounds."""
