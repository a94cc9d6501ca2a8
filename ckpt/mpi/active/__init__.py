"""Active messages: small handlers that are called by whoever makes progress."""
