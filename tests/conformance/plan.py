"""Which of mpi4py's own tests are run, by area, and which make no sense here, with the reason."""

from __future__ import annotations

AREAS: dict[str, tuple[str, ...]] = {
    "point-to-point": [
        "test_p2p_buf",
        "test_p2p_obj",
        "test_p2p_buf_matched",
        "test_p2p_obj_matched",
        "test_msgspec",
        "test_msgzero",
        "test_status",
    ],
    "requests": ["test_request", "test_grequest", "test_p2p_buf_part"],
    "collectives": ["test_cco_buf", "test_cco_obj", "test_cco_vec"],
    "nonblocking": ["test_cco_nb_buf", "test_cco_nb_vec"],
    "persistent": ["test_cco_pr_buf", "test_cco_pr_vec"],
    "communicators": [
        "test_comm",
        "test_group",
        "test_attributes",
        "test_info",
        "test_session",
        "test_subclass",
    ],
    "intercommunicators": [
        "test_comm_inter",
        "test_cco_buf_inter",
        "test_cco_obj_inter",
        "test_cco_vec_inter",
    ],
    "topologies": ["test_comm_topo", "test_cco_ngh_buf", "test_cco_ngh_obj", "test_cco_pr_ngh_buf"],
    "datatypes": ["test_datatype", "test_pack", "test_address", "test_util_dtlib"],
    "operations": ["test_op"],
    "errors": ["test_exceptions", "test_errhandler", "test_errorcode"],
    "failures": ["test_ulfm"],
    "memory and pickling": ["test_buffer", "test_mpimem", "test_pickle", "test_util_pkl5"],
    "one-sided": ["test_rma", "test_rma_nb", "test_win"],
    "parallel files": ["test_file", "test_io"],
    "environment": [
        "test_environ",
        "test_toplevel",
        "test_objmodel",
        "test_handle",
        "test_doc",
        "test_threads",
        "test_package",
    ],
    "pools": ["test_util_pool"],
    "synchronization": ["test_util_sync"],
    "processes": ["test_spawn"],
}  # type: ignore[assignment]

SPAWNING = {"test_spawn", "test_util_pool"}
"""Modules that start processes."""

MODULES_LEFT_OUT = {
    "test_dynproc": "jobs do not connect to each other",
    "test_cffi": "there is no C library behind the handles",
    "test_ctypes": "there is no C library behind the handles",
    "test_mpiapi": "there is no C library behind the handles",
    "test_mpiabi": "there is no C library behind the handles",
}

MODULES_LEFT_OUT_OF_REPLICAS = {
    "test_spawn": "processes started later are refused under --redundancy",
    "test_util_pool": "processes started later are refused under --redundancy",
    "test_util_dtlib": "sends nothing, and computes for minutes in each of the processes",
}
"""Not run with replicas."""

TESTS_LEFT_OUT_OF_REPLICAS = (
    ("test_win.TestWinCreateWorld.testSharedQuery", "sends addresses, which are others in each replica"),
    ("test_win.TestWinAllocateWorld.testSharedQuery", "sends addresses, which are others in each replica"),
)

TESTS_LEFT_OUT = (
    ("test_msgspec.*DLPack*", "DLPack buffers are not offered"),
    ("test_msgspec.*CAIBuf*", "CUDA buffers are not offered"),
    ("test_msgspec.*CuPy*", "CUDA buffers are not offered"),
    ("test_msgspec.*Numba*", "CUDA buffers are not offered"),
    ("test_msgspec.TestMessageVectorW.testMessageCAIBuf", "CUDA buffers are not offered"),
    ("test_package.*", "about the installed package's files"),
    ("test_toplevel.TestConfig.*", "about the installed package's files"),
    (
        "test_op.TestOp.testCreateMany",
        "a handle's number leads to the very object here, which can be pickled",
    ),
    ("test_status.TestStatus.testToMemory", "there is no C structure behind a status"),
    ("test_doc.*", "about the docstrings' form"),
    (
        "test_objmodel.TestObjModel.testConstants",
        "wants memoryview(BOTTOM): before Python 3.12 only classes written in C give buffers",
    ),
    ("test_p2p_obj.*.testCommLock", "about locks inside the original"),
    ("test_toplevel.TestProfile.*", "there is no MPI library to profile"),
)

ARRAYS_LEFT_OUT = ("DLPack", "FakeGPU", "CuPy", "FakeCuPy", "Numba", "FakeNumba")
"""Prefixes of the classes of arrays that mpi4py's tests do not loop over here: DLPack and CUDA buffers."""
