"""The table of the libraries that ckpt knows: the name of a module, and the path of the class that serves it.

Not here: how classes are found by it (:mod:`ckpt.image.interface.registry`).
"""

from __future__ import annotations

from typing import Final

from ckpt.compat import accelerators

__all__ = ["BUILT_IN"]

_STANDARD = "ckpt.image.stdlib.standard"
_IPC = "ckpt.image.ipc.library"
_REGISTERED = "ckpt.image.stdlib.registered"
_HANDLES = "ckpt.image.handles"
_LOOPS = "ckpt.image.loops.library"
_POOLS = "ckpt.image.pools"
_DATA = "ckpt.image.libraries"
_PYTORCH = "ckpt.image.pytorch"
_JOBLIB = "ckpt.image.joblib"
_COMPILED = "ckpt.image.compiled"
_TOOLS = "ckpt.image.tools"
_FRAMEWORKS = "ckpt.image.frameworks"

BUILT_IN: Final = {
    # the standard library: by the names of the modules in C, which may be imported without those in Python
    **dict.fromkeys(accelerators.DIGESTS, f"{_STANDARD}:Digests"),
    **dict.fromkeys(accelerators.COMPRESSION, f"{_STANDARD}:Compression"),
    **dict.fromkeys(accelerators.PLAIN_SOCKETS, f"{_IPC}:Sockets"),
    **dict.fromkeys(accelerators.TLS, f"{_IPC}:Tls"),
    "asyncio.sslproto": f"{_IPC}:TlsOfAsyncio",
    accelerators.SELECT: f"{_IPC}:Selectors",
    **dict.fromkeys(("subprocess", "multiprocessing", "multiprocess"), f"{_STANDARD}:Processes"),
    accelerators.ELEMENT_TREE: f"{_HANDLES}.xml_parsers:ElementTree",
    accelerators.MULTIBYTE: f"{_HANDLES}.codec_states:MultibyteCodecs",
    accelerators.PROFILER: f"{_STANDARD}:Profiles",
    accelerators.TOKENIZER: f"{_STANDARD}:Tokenizer",
    "asyncio": f"{_LOOPS}:AsyncIO",
    "logging": f"{_STANDARD}:Logging",
    "mmap": f"{_HANDLES}.file_maps:FileMaps",
    "ctypes": f"{_HANDLES}.ctypes_library:Ctypes",
    "multiprocessing.shared_memory": f"{_HANDLES}.shared_memory:SharedMemory",
    "multiprocessing.heap": f"{_HANDLES}.shared_heap:SharedHeap",
    "multiprocessing.synchronize": f"{_HANDLES}.semaphores:Semaphores",
    "multiprocessing.resource_tracker": f"{_HANDLES}.semaphores:ResourceTrackers",
    "multiprocessing.sharedctypes": f"{_HANDLES}.semaphores:SynchronizedTypes",
    "multiprocessing.connection": f"{_POOLS}.plumbing:Connections",
    "multiprocessing.queues": f"{_POOLS}.plumbing:Queues",
    "multiprocessing.context": f"{_POOLS}.plumbing:Contexts",
    "multiprocessing.forkserver": f"{_POOLS}.plumbing:ForkServers",
    "multiprocessing.spawn": f"{_POOLS}.plumbing:Spawned",
    "multiprocessing.managers": f"{_POOLS}.managers:Managers",
    "multiprocessing.pool": f"{_POOLS}.process_pools:ProcessPools",
    "concurrent.futures.process": f"{_POOLS}.executors:Executors",
    "posix": f"{_HANDLES}.directories:Directories",
    "types": f"{_STANDARD}:Awaitables",
    **dict.fromkeys(accelerators.EXPAT, f"{_HANDLES}.xml_parsers:Expat"),
    "threading": f"{_STANDARD}:Threading",
    "sqlite3": f"{_STANDARD}:Sqlite",
    "sqlite3.dbapi2": f"{_HANDLES}.cursors:Cursors",
    # those with settings, in the order in which these are put back
    "copyreg": f"{_REGISTERED}:CopyReg",
    "abc": f"{_REGISTERED}:VirtualSubclasses",
    "xml.etree.ElementTree": f"{_REGISTERED}:Namespaces",
    "locale": f"{_STANDARD}:Locale",
    "csv": f"{_REGISTERED}:Csv",
    "decimal": f"{_STANDARD}:Decimal",
    accelerators.RANDOM: f"{_STANDARD}:Random",
    # installed
    "numpy": f"{_DATA}.numpy:NumPy",
    "pandas": f"{_DATA}.pandas:Pandas",
    "matplotlib": f"{_DATA}.matplotlib:Matplotlib",
    "numba": f"{_DATA}.numba:Numba",
    "numba.cuda.cudadrv.devicearray": f"{_PYTORCH}.gpu_arrays:NumbaCuda",
    "cupy": f"{_PYTORCH}.gpu_arrays:Cupy",
    "jax": f"{_PYTORCH}.jax_state:Jax",
    "triton.runtime.jit": f"{_PYTORCH}.triton:Triton",
    "torch": f"{_PYTORCH}.library:Torch",
    "torch.cuda": f"{_PYTORCH}.cuda:Cuda",
    "torch.utils.data.dataloader": f"{_PYTORCH}.loaders:Loaders",
    "torch.distributed.distributed_c10d": f"{_PYTORCH}.distributed:Distributed",
    "h5py": f"{_DATA}.h5py:H5py",
    "netCDF4": f"{_DATA}.netCDF4:NetCDF4",
    "PIL": f"{_DATA}.pillow:Pillow",
    "fsspec": f"{_DATA}.fsspec:Fsspec",
    "gmpy2": f"{_DATA}.gmpy2:Gmpy2",
    "numexpr": f"{_COMPILED}.numexpr:NumExpr",
    "lightgbm": f"{_COMPILED}.lightgbm:LightGBM",
    "lxml": f"{_COMPILED}.lxml:Lxml",
    "cryptography": f"{_COMPILED}.cryptography:Cryptography",
    "aiohttp": f"{_COMPILED}.aio_libs:Aiohttp",
    "frozenlist": f"{_COMPILED}.aio_libs:Frozenlist",
    "multidict": f"{_COMPILED}.aio_libs:Multidict",
    "rdkit": f"{_COMPILED}.rdkit:RDKit",
    "spacy": f"{_COMPILED}.spacy:Spacy",
    "wrapt": f"{_COMPILED}.wrapt:Wrapt",
    "pyarrow": f"{_COMPILED}.pyarrow:PyArrow",
    "tables": f"{_COMPILED}.tables:Tables",
    "scipy": f"{_COMPILED}.scipy:SciPy",
    **dict.fromkeys(("scipy.integrate", "scipy.optimize"), f"{_COMPILED}.scipy:Solvers"),
    "xgboost": f"{_COMPILED}.xgboost:XGBoost",
    "cython_runtime": f"{_TOOLS}.cython:Cython",
    "Bio": f"{_TOOLS}.science:Biopython",
    "statsmodels": f"{_TOOLS}.science:Statsmodels",
    "astropy": f"{_TOOLS}.science:Astropy",
    "gymnasium": f"{_TOOLS}.science:Gymnasium",
    "sqlalchemy": f"{_FRAMEWORKS}.sqlalchemy:Sqlalchemy",
    "dask": f"{_FRAMEWORKS}.dask:Dask",
    "distributed": f"{_FRAMEWORKS}.dask:Distributed",
    "absl": f"{_FRAMEWORKS}.absl:Absl",
    "structlog": f"{_FRAMEWORKS}.structlog:Structlog",
    "igraph": f"{_FRAMEWORKS}.igraph:Igraph",
    "polars": f"{_FRAMEWORKS}.polars:Polars",
    "shapely": f"{_FRAMEWORKS}.shapely:Shapely",
    "MDAnalysis": f"{_FRAMEWORKS}.mdanalysis:MDAnalysis",
    "psygnal": f"{_FRAMEWORKS}.psygnal:Psygnal",
    "traits": f"{_FRAMEWORKS}.traits:Traits",
    "traitlets": f"{_FRAMEWORKS}.traits:Traitlets",
    "zope.interface.declarations": f"{_FRAMEWORKS}.zope_interface:ZopeInterface",
    "msgspec": f"{_FRAMEWORKS}.msgspec:Msgspec",
    "pydantic_core": f"{_FRAMEWORKS}.pydantic_core:PydanticCore",
    "diskcache": f"{_TOOLS}.diskcache:Diskcache",
    "pyfakefs": f"{_TOOLS}.pyfakefs:PyFakeFs",
    "regex": f"{_COMPILED}.regex:Regex",
    "filelock": f"{_TOOLS}.filelock:FileLock",
    "fastrlock": f"{_COMPILED}.fastrlock:FastRLock",
    "loguru": f"{_TOOLS}.loguru:Loguru",
    "tqdm": f"{_TOOLS}.tqdm:Tqdm",
    "uvloop": f"{_TOOLS}.uvloop:Uvloop",
    **dict.fromkeys(
        ("joblib.externals.loky.process_executor", "loky.process_executor"), f"{_JOBLIB}.loky:Loky"
    ),
    "joblib.executor": f"{_JOBLIB}.loky:Joblib",
    "zmq": f"{_TOOLS}.zmq:Zmq",
    **dict.fromkeys(("pytest", "_pytest", "pluggy"), f"{_TOOLS}.pytest:Pytest"),
    "coverage": f"{_TOOLS}.coverage:Coverage",
    "django": f"{_TOOLS}.django:Django",
    "blinker": f"{_TOOLS}.id_tables:Blinker",
    "lark": f"{_TOOLS}.id_tables:Lark",
    "parsimonious": f"{_TOOLS}.id_tables:Parsimonious",
    "pubsub": f"{_TOOLS}.id_tables:Pubsub",
    "pulp": f"{_TOOLS}.id_tables:Pulp",
    "pydispatch": f"{_TOOLS}.id_tables:Pydispatch",
    "sqlglot": f"{_TOOLS}.id_tables:Sqlglot",
    "statemachine": f"{_TOOLS}.id_tables:Statemachine",
    "transitions": f"{_TOOLS}.id_tables:Transitions",
    "gevent": f"{_TOOLS}.gevent:Gevent",
    "greenlet": f"{_TOOLS}.greenlet:Greenlet",
    "pony.orm.core": f"{_FRAMEWORKS}.pony:Pony",
    "warnings": f"{_STANDARD}:Warnings",  # last: warnings of the other classes must not meet the program's filters
}
