"""What a rank does in a factorisation: communication and meetings, its part in the steps, the solution and the report.

    solve, backward     a solve from its start to the solution. Start reading here
    started             processes that are started while an operation goes on
    member, holdings    one rank in the steps, and what it has
    method              what differs there in factorisations
    protected           the loop of any operation that goes on when a rank dies
    link                messages and meetings
    matrix, report      the matrix that a program gives, and the report that it gets with the solution

Not here: who does what (:mod:`ckpt.abft.decisions`), arithmetic (:mod:`ckpt.abft.numbers`).
"""
