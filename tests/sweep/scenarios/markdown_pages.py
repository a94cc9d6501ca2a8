"""One text through four Markdown implementations."""

import hashlib

import commonmark
import markdown
import mistune

TEXT = """
# Title %d

A *paragraph* with `code`, [a link](http://example.com "title") and ![an image](a.png).

> quoted
> text

1. one
2. two
    - nested **bold**
    - list

| a | b |
|---|---|
| 1 | 2 |

```python
def f(x): return x
```

Term[^1]

[^1]: note
"""
for turn in range(8):
    text = (TEXT % turn) * 3
    for name, convert in (
        (
            "markdown",
            lambda t: markdown.markdown(t, extensions=["tables", "footnotes", "fenced_code", "toc"]),
        ),
        ("mistune", mistune.html),
        ("commonmark", commonmark.commonmark),
    ):
        html = convert(text)
        print(turn, name, len(html), hashlib.md5(html.encode()).hexdigest())
