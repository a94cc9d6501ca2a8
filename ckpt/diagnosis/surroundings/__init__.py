"""What this machine knows by itself of others, without a topology."""
