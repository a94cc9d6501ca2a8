"""Public programs on mpi4py, unmodified: the same output under `ckpt run` as under a real MPI, also with two kills.

``catalogue``   which programs, on how many ranks, and what of their output is a time and hence nobody's to compare
``fetch``       gets them, their packages and MPICH from the package index at run time; nothing of theirs is kept here
``driver``      one program three ways: under `mpiexec`, under `ckpt run`, and under `ckpt run` with kill -9 of random ranks
``scenarios``   where a package is a library: a few lines that use it as its documentation says; and two that call a program
                with smaller sizes, or several times

``python -m tests.programs`` runs all and prints a table.
"""
