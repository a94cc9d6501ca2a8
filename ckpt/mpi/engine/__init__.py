"""The engine: matching, operations under way, failures of ranks; it carries what communicators ask for."""
