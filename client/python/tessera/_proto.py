"""The messages and methods of tessera.v1, made from descriptors when the package is imported.

There is no generated Python code, since the code that one protobuf release generates does not run
with the next one. The build writes `_proto.binpb`, a FileDescriptorSet of /proto with all imports,
in which each file comes after the files that it imports. The set is loaded into a pool of its own,
so that it cannot clash with the google.rpc of another package.
"""

from __future__ import annotations

import difflib
import functools
import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

# A protobuf message, whose class is created at run time.
Message = Any

PACKAGE = "tessera.v1"


def _load() -> tuple[descriptor_pool.DescriptorPool, list[str]]:
    """Returns the descriptor pool and the names of Tessera's files in it."""
    path = pathlib.Path(__file__).with_name("_proto.binpb")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    except FileNotFoundError:
        raise ImportError(
            f"{path} is missing: it is made by `pip install -e client/python` "
            "or by building the target python_client"
        ) from None
    loaded = descriptor_pool.DescriptorPool()
    for file in files.file:
        loaded.AddSerializedFile(file.SerializeToString())
    return loaded, [f.name for f in files.file if f.package == PACKAGE]


pool, _files = _load()

# Before protobuf 4.22 GetMessageClass was a method of a factory. Type stubs have only one of the
# two.
_factory: Any = message_factory
if hasattr(_factory, "GetMessageClass"):
    _class_of = _factory.GetMessageClass
else:
    _class_of = _factory.MessageFactory(pool).GetPrototype


@functools.cache
def message(name: str) -> Any:
    """Returns the class of a message such as "CreateArrayRequest" or "google.rpc.Status"."""
    full = name if "." in name else f"{PACKAGE}.{name}"
    return _class_of(pool.FindMessageTypeByName(full))


class Method(NamedTuple):
    """The path, the messages and the kind of a method, for calling it."""

    path: str  # "/tessera.v1.ArrayService/CreateArray"
    request: Any
    response: Any
    streams: tuple[bool, bool]  # whether requests are streamed, and whether responses are


_methods: dict[str, Method] = {}


def _near(word: str, names: Iterable[str]) -> str:
    """Returns a text such as "; did you mean ListDevices?" if a name is near, and "" if none is."""
    near = difflib.get_close_matches(word.rpartition(".")[2], list(names))
    return f"; did you mean {' or '.join(near)}?" if near else ""


def method(name: str) -> Method:
    """Returns a method by its name, such as "ArrayService/CreateArray". The package may precede the
    name. Raises ValueError if there is no such method."""
    if name not in _methods:
        service, _, short = name.rpartition("/")
        full = service if "." in service else f"{PACKAGE}.{service}"
        try:
            described = pool.FindServiceByName(full)
        except KeyError:
            services = (s for f in _files for s in pool.FindFileByName(f).services_by_name)
            raise ValueError(
                f"{name!r} is not a method: there is no service {service!r}"
                f"{_near(service, services)}; SERVICE/METHOD is expected, as in "
                '"ClusterService/ListDevices"'
            ) from None
        found = described.methods_by_name.get(short)
        if found is None:
            raise ValueError(
                f"{name!r} is not a method: {service} has no method {short!r}"
                f"{_near(short, described.methods_by_name)}"
            )
        proto = descriptor_pb2.MethodDescriptorProto()
        found.CopyToProto(proto)
        _methods[name] = Method(
            f"/{full}/{short}",
            _class_of(found.input_type),
            _class_of(found.output_type),
            (proto.client_streaming, proto.server_streaming),
        )
    return _methods[name]


def state_of(value: Message) -> str:
    """Returns the value of the enum `state` without its prefix: "READY" for WORKER_STATE_READY."""
    state = value.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[value.state]
    return str(state.name.partition("_STATE_")[2])


def to_json(value: Message) -> dict[str, Any]:
    """Converts a message by protobuf's JSON mapping, with Anys decoded."""
    answer: dict[str, Any] = json_format.MessageToDict(value, descriptor_pool=pool)
    return answer


ParseError = json_format.ParseError


def from_json(value: dict[str, Any], into: Message) -> Message:
    """Reads JSON into the message `into`, which it returns. The inverse of to_json. Raises
    ParseError if `value` does not fit."""
    return json_format.ParseDict(value, into, descriptor_pool=pool)


def set_duration(duration: Message, seconds: float) -> None:
    """Sets a google.protobuf.Duration."""
    nanos = round(seconds * 1e9)
    duration.seconds, duration.nanos = divmod(max(nanos, 0), 10**9)
