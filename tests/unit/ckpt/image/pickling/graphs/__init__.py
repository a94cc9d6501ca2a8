"""Random graphs of objects (`builder`, of the classes in `kinds`), and what they look like from outside (`description`)."""
