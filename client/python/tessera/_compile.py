"""Compiles programs for devices, for Client.compile() and for JitFunction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera import _proto
from tessera._channel import Channel
from tessera._executable import Executable
from tessera._programs import Program
from tessera.sharding import Mesh


def compile_program(
    channel: Channel,
    program: Program,
    *,
    mesh: Mesh | str | None = None,
    name: str = "",
    timeout: float | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Executable:
    """Compiles a program and returns the executable. Client.compile() explains the arguments."""
    deadline = channel._deadline(timeout)
    request = _proto.message("CompileProgramRequest")(name=name)
    explain = _proto.message("ExplainProgramRequest")()
    for target in (request, explain):
        program.set_in(target, channel, deadline, on_progress)
        set_mesh(target, mesh)
    compiled = channel._call("ProgramService/CompileProgram", request, deadline.left)
    executable = Executable(channel, compiled, explain, program.trees)
    if program.trees is not None and len(program.trees.platforms) > 1:
        # All devices of a program are of one kind.
        devices = channel._pages("ClusterService/ListDevices", "devices", deadline.left)
        found = {d.kind for d in devices if d.id in executable.devices}
        executable._platform = program.trees.platform_on(next(iter(found), "cpu"))
    if not explain.mesh:
        del explain.devices[:]
        explain.devices.extend(executable.devices)
    return executable


def set_mesh(request: Any, mesh: Mesh | str | None) -> None:
    """Sets the devices of a CompileProgramRequest or an ExplainProgramRequest."""
    if isinstance(mesh, str):
        request.mesh = mesh
    elif mesh is not None:
        request.devices.extend(mesh.devices or ())
