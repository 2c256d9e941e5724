"""The forms in which users give a program: text, messages, StableHLO artifacts and JAX objects."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

from tessera import _crc32c, _proto
from tessera._artifact import artifact_of
from tessera._channel import Channel
from tessera._rpc import Deadline
from tessera._trees import Trees

# MLIR's bytecode begins with these bytes; no serialized tessera.v1.Program does.
_ARTIFACT_MAGIC = b"ML\xefR"
# A larger artifact is uploaded once, in chunks, and then named by its hash.
_INLINE_BYTES_MAX = 1 << 20
_CHUNK = 1 << 20

# Called with the number of bytes that have been uploaded and the number of all bytes.
OnProgress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Program:
    """A program in one of its forms."""

    text: str = ""
    message: Any = None  # a tessera.v1.Program
    artifact: bytes = b""
    trees: Trees | None = None  # pytrees of the JAX function that the program comes from

    def set_in(
        self, request: Any, channel: Channel, deadline: Deadline, on_progress: OnProgress | None
    ) -> None:
        """Sets the program of a CompileProgramRequest or an ExplainProgramRequest."""
        if self.text:
            request.text = self.text
        elif self.message is not None:
            request.program.MergeFrom(self.message)
        elif len(self.artifact) <= _INLINE_BYTES_MAX:
            request.stablehlo = self.artifact
        else:
            request.program_sha256 = _upload(channel, self.artifact, deadline, on_progress)


def read_program(method: str, program: Any) -> Program:
    """Finds out which form a program has. Raises TypeError if it has none of the forms."""
    if isinstance(program, str):
        return Program(text=program)
    if isinstance(program, bytes):
        if program.startswith(_ARTIFACT_MAGIC):
            return Program(artifact=program)
        return Program(message=_proto.message("Program").FromString(program))
    if hasattr(program, "SerializeToString"):
        return Program(message=_proto.message("Program").FromString(program.SerializeToString()))
    found = artifact_of(program)
    if found is not None:
        return Program(artifact=found[0], trees=found[1])
    hint = ""
    if callable(program):
        hint = "; client.jit runs a JAX function"
    raise TypeError(
        f"{method}() takes a program as text, as a tessera.v1.Program or the bytes of one, as a "
        "StableHLO artifact's bytes, or as jax.export or jax.jit(f).lower(...) makes it, not "
        f"{type(program).__name__}{hint}"
    )


def _upload(
    channel: Channel, data: bytes, deadline: Deadline, on_progress: OnProgress | None
) -> str:
    """Uploads the bytes that the server does not have yet, and returns the hash of all bytes."""
    request = _proto.message("UploadProgramRequest")(
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        format="PROGRAM_FORMAT_STABLEHLO",
    )
    while True:
        # The first call sends no bytes: it asks how far the upload is.
        answer = channel._call("ProgramService/UploadProgram", request, deadline.left)
        if on_progress is not None:
            on_progress(answer.committed_bytes, len(data))
        if answer.complete:
            return str(request.sha256)
        request.offset = answer.committed_bytes
        request.data = data[request.offset : request.offset + _CHUNK]
        request.crc32c = _crc32c.crc32c(request.data)
