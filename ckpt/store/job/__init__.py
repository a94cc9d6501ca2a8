"""The job directory: its creation, its lock and the record of its controller, the commit of lines, its event log."""
