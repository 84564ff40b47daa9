"""PostgreSQL as a part of the program:

a private server over a folder, or one shared by an account's processes.
"""

from fencerow.errors import ServerError

from .binaries import Binaries, find_binaries
from .cluster import Cluster
from .embedded import Embedded, Status, bin_psql, embedded, start, status, stop, url

__all__ = [
    "Binaries",
    "Cluster",
    "Embedded",
    "ServerError",
    "Status",
    "bin_psql",
    "embedded",
    "find_binaries",
    "start",
    "status",
    "stop",
    "url",
]
