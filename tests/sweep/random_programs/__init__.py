"""Random programs of ordinary Python: `ordinary` has what they use, `templates` the lines they consist of, `generator`
puts them together."""
