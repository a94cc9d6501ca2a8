"""Objects as they are in memory, inspected without running any of their code; sets and persistent ids; the deep C stack."""
