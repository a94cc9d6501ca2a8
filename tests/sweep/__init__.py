"""Programs nobody here wrote, stopped at random moments and resumed: every output must be the same, byte for byte.

``catalogue``   which programs, and how each is run so that its output is always the same
``fetch``       gets them from the package index at run time, into a cache outside of the tree; nothing of them is kept here
``host``        an agent and a controller small enough to command, commit and resume the images of one rank
``driver``      one program: its undisturbed output, its images, every one of them resumed in a fresh process
``scenarios``   scripts of a few lines that put library packages to use, and ``stand_in``: what the benchmark programs import
                as ``pyperf``

``python -m tests.sweep --help`` runs any part of it by hand, and what a failure prints is such a command.
"""
