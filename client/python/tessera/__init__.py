"""Tessera's Python client: arrays on the devices of a cluster, and programs over them.

import numpy as np
import tessera

with tessera.connect("127.0.0.1:8470") as client:
    mesh = tessera.Mesh({"x": 2})
    a = client.put(np.arange(8, dtype=np.float32), mesh, tessera.P("x"))
    double = client.compile("mesh (x=2)\\n"
                            "func main(%a: f32[8] P('x')) -> (f32[8]) {\\n"
                            "  %b = add(%a, %a)\\n  return %b\\n}\\n")
    (b,) = double(a)
    print(client.get(b))
"""

from tessera._array import Array
from tessera._client import Client, Worker, connect
from tessera._executable import Executable, Plan, Run
from tessera._jax import JitFunction
from tessera._operation import Operation, OperationStatus, PendingReason
from tessera.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    Error,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from tessera.sharding import ArraySpec, Device, Mesh, P

from tessera.version import __version__

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "Array",
    "ArraySpec",
    "CancelledError",
    "Client",
    "DataLossError",
    "DeadlineExceededError",
    "Device",
    "Error",
    "Executable",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "JitFunction",
    "Mesh",
    "NotFoundError",
    "Operation",
    "OperationStatus",
    "OutOfRangeError",
    "P",
    "PendingReason",
    "PermissionDeniedError",
    "Plan",
    "ResourceExhaustedError",
    "Run",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "Worker",
    "connect",
]
