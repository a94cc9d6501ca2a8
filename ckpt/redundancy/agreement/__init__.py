"""What the replicas of a rank do alike, since one of them decides: answers that depend on time, the order of requests.

    choices      what the engine asks: :class:`ckpt.layer.Choices` of one replica
    order        who leads, which choices are known, what is forgotten. Pure
    matcher      receives from ANY_SOURCE that wait for a choice
    turns        requests to windows and parallel files: whose is next. Pure
    meets        changes of files
    requests     these requests are handled; `Request.Cancel`

Not here: changes of files (:mod:`ckpt.redundancy.files`).
"""
