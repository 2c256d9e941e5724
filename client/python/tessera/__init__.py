"""Runs sharded array programs on a Tessera cluster.

An array lies on a mesh of devices: each device has a block of it (a shard), or all of it. A program
is compiled for such a mesh and runs on all its devices at once. This package connects to the
coordinator of a cluster, moves arrays between this process and the devices, and compiles and runs
programs. A program is a JAX function, a text (docs/programs.md), or a message of the type
`tessera.v1.Program`.

Example:
    import numpy as np
    import tessera

    with tessera.connect("127.0.0.1:8470") as client:
        mesh = tessera.Mesh({"x": 2})  # two devices, along an axis that is named x
        a = client.put(np.arange(8, dtype=np.float32), mesh, tessera.P("x"))  # half on each
        double = client.compile('''
            mesh (x=2)
            func main(%a: f32[8] P('x')) -> (f32[8]) {
              %b = add(%a, %a)
              return %b
            }''')
        (b,) = double(a)  # returns at once; b may be an argument of the next call
        print(client.get(b))  # [ 0.  2.  4.  6.  8. 10. 12. 14.]

- `connect()` opens a session and returns a `Client`, whose methods do everything else.
- `Mesh` and `P` say where an array lies. An `Array` is a handle of an array on devices.
- `Client.compile()` returns an `Executable`, which is called like a function. `Client.jit()` wraps
  a JAX function, and compiles it when it is first called.
- A call of an executable returns before the program has run. An error of the run is raised where
  its results are read, for example by `Client.get()`. `Executable.submit()` returns a `Run`, which
  is an `Operation`: a program can wait for it, watch it and cancel it.
- Every error of a call is an `Error`, with a subclass for each code. An argument that this package
  refuses by itself is a TypeError or a ValueError.

The variables TESSERA_ADDRESS, TESSERA_CA_FILE, TESSERA_TOKEN and TESSERA_RECONNECT of the
environment are the defaults of `connect()`.

Any number of threads may use a client and its handles. All calls wait in the thread that makes
them; there is no asyncio form.

The dtypes of arrays are bool, s8 to s64, u8 to u64, f16, f32, f64, c64 and c128. In NumPy they are
bool, int8 to int64, uint8 to uint64, float16 to float64, complex64 and complex128. The dtypes bf16,
f8e4m3fn and the other floats of 8 and 4 bits, and s4, u4, s2 and u2 are dtypes of the package
ml_dtypes. Putting or getting such arrays needs that package.

In the examples below, `np` is NumPy, and `client` is a client that is connected to a cluster of two
workers with two CPU devices each.
"""

from tessera._array import Array
from tessera._client import Client, Worker, connect
from tessera._executable import Executable, Plan, Run
from tessera._jit import JitFunction
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
