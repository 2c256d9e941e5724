"""Compiles programs for devices, for Client.compile() and for JitFunction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera import _proto
from tessera._channel import Channel
from tessera._executable import Compiled, Executable
from tessera._programs import Program
from tessera._rpc import Deadline
from tessera.sharding import ArraySpec, Mesh


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

    def compile(deadline: Deadline) -> Compiled:
        return _compile(channel, program, mesh, name, deadline, None)

    deadline = channel._deadline(timeout)
    compiled = _compile(channel, program, mesh, name, deadline, on_progress)
    return Executable(channel, name or "the program", compile, compiled, program.trees)


def _compile(
    channel: Channel,
    program: Program,
    mesh: Mesh | str | None,
    name: str,
    deadline: Deadline,
    on_progress: Callable[[int, int], None] | None,
) -> Compiled:
    request = _proto.message("CompileProgramRequest")(name=name)
    explain = _proto.message("ExplainProgramRequest")()
    for target in (request, explain):
        program.set_in(target, channel, deadline, on_progress)
        set_mesh(target, mesh)
    reply = channel._call("ProgramService/CompileProgram", request, deadline.left)
    # getattr is needed, since the field's name is a Python keyword.
    specs = [ArraySpec.from_proto(s) for s in (*reply.out, *getattr(reply, "in"))]
    devices = (specs[0].mesh.devices or ()) if specs else ()
    platform = None
    if program.trees is not None and len(program.trees.platforms) > 1:
        # All devices of a program are of one kind.
        known = channel._pages("ClusterService/ListDevices", "devices", deadline.left)
        found = {d.kind for d in known if d.id in devices}
        platform = program.trees.platform_on(next(iter(found), "cpu"))
    if not explain.mesh:
        del explain.devices[:]
        explain.devices.extend(devices)
    return Compiled(reply, explain, platform)


def set_mesh(request: Any, mesh: Mesh | str | None) -> None:
    """Sets the devices of a CompileProgramRequest or an ExplainProgramRequest."""
    if isinstance(mesh, str):
        request.mesh = mesh
    elif mesh is not None:
        request.devices.extend(mesh.devices or ())
