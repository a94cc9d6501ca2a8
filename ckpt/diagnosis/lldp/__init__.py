"""Where cables end, from what machines hear of their neighbours (LLDP), beside what the file of the topology says."""
