"""Which files go back: the patterns of a job, and what a program wants to stay as it is.

:mod:`ckpt.undo.selection.patterns`  what a pattern means; which patterns held since when; pure
:mod:`ckpt.undo.selection.covering`  relative patterns, and symbolic links in them
:mod:`ckpt.undo.selection.kept`      what this process has asked to keep
"""
