"""Objects as they are in memory: looked at without running any code of theirs; sets and persistent ids; the deep C stack."""
