"""Executables and plans."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tessera import _dtypes, _jax, _proto, _values
from tessera._array import Array, put_array
from tessera._channel import Channel
from tessera._operation import Operation, PendingReason
from tessera.sharding import ArraySpec


@dataclasses.dataclass(frozen=True)
class Plan:
    """A plan. str(plan) is human-readable."""

    text: str
    json: Any  # the plan in machine-readable form
    memory_bound_bytes: int  # bound on the memory of each device
    devices: tuple[int, ...]
    pending_reasons: tuple[PendingReason, ...]  # why a run would wait now; empty if it would start

    def __str__(self) -> str:
        return self.text

    @staticmethod
    def from_proto(proto: Any) -> Plan:
        """Converts the protobuf message to a Plan."""
        return Plan(
            text=proto.text,
            json=json.loads(proto.json) if proto.json else None,
            memory_bound_bytes=proto.memory_bound_bytes,
            devices=tuple(proto.devices),
            pending_reasons=tuple(PendingReason.from_proto(r) for r in proto.pending_reasons),
        )


class Run(Operation):
    """A run that this process has started, with its results."""

    def __init__(self, channel: Channel, id: int, outputs: tuple[Array, ...]) -> None:
        super().__init__(channel, id)
        self.outputs = outputs


class Executable:
    """A program, compiled for devices. Calling it runs it.

    An executable that comes from a JAX function takes and returns the same pytrees as the function.
    """

    def __init__(
        self, channel: Channel, compiled: Any, explain: Any, trees: _jax.Trees | None = None
    ) -> None:
        self._channel = channel
        self._trees = trees
        # The number of the platform, if the program takes that before its other arguments.
        self._platform: int | None = None
        self._explain = explain  # the request of explain()
        self.id: int = compiled.executable
        # getattr is needed, since the field's name is a Python keyword.
        self.inputs = tuple(ArraySpec.from_proto(s) for s in getattr(compiled, "in"))
        self.outputs = tuple(ArraySpec.from_proto(s) for s in compiled.out)
        self.memory_bound_bytes: int = compiled.memory_bound_bytes

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that the executable runs on."""
        specs = self.outputs + self.inputs
        return (specs[0].mesh.devices or ()) if specs else ()

    def __call__(
        self,
        *args: Any,
        donate: Sequence[int | str] = (),
        deadline: float | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Starts a run and returns its results, which may not be ready yet.

        The results are a tuple or, for a JAX function, the pytree of its result. See submit()."""
        run = self.submit(*args, donate=donate, deadline=deadline, timeout=timeout, **kwargs)
        return self.result(run.outputs)

    def result(self, outputs: Sequence[Any]) -> Any:
        """Returns the outputs of a run, or the values read from them, in the form in which a call
        returns them."""
        return tuple(outputs) if self._trees is None else self._trees.result(outputs)

    def submit(
        self,
        *args: Any,
        donate: Sequence[int | str] = (),
        deadline: float | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Run:
        """Starts a run.

        args      Arrays with any placement, or values that NumPy can convert, which are put first.
                  The arguments of a JAX function are pytrees of such values and of JAX's arrays.
        kwargs    The arguments of a JAX function that are given by name.
        donate    The arguments to delete once they have been read, by number. For a JAX function
                  also by name.
        deadline  How many seconds the run may take. If None, there is no limit.
        timeout   The timeout of the call, uploads included.
        """
        values: Sequence[Any] = args
        if self._trees is not None:
            values = self._trees.leaves(args, kwargs)
        elif kwargs:
            raise TypeError(f"the program takes no arguments by name; {', '.join(kwargs)} given")
        return self._submit(values, self._numbers(args, kwargs, donate), deadline, timeout)

    def _numbers(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], donate: Sequence[int | str]
    ) -> Sequence[int]:
        """Returns the numbers of the program's arguments that are donated, given the arguments of a
        call and its `donate`."""
        for name in donate:
            if not (name in kwargs if isinstance(name, str) else 0 <= name < len(args)):
                raise ValueError(
                    f"donate={list(donate)}: there are {len(args)} arguments; numbers from 0 to "
                    f"{len(args) - 1} are expected"
                    + (f", or names of {', '.join(kwargs)}" if kwargs else "")
                )
        if self._trees is not None:
            return self._trees.numbers(args, kwargs, donate)
        return [i for i in donate if isinstance(i, int)]

    def _run_leaves(
        self, leaves: list[Any], donate: Sequence[int], timeout: float | None
    ) -> Any:
        """Runs the program with the leaves of a JAX function's arguments, whose pytrees have been
        checked."""
        assert self._trees is not None
        run = self._submit(self._trees.taken(leaves), donate, None, timeout)
        return self.result(run.outputs)

    def _submit(
        self,
        values: Sequence[Any],
        donate: Sequence[int],
        deadline: float | None,
        timeout: float | None,
    ) -> Run:
        if self._platform is not None:
            values = [self._platform, *values]
            donate = [i + 1 for i in donate]
        if len(values) != len(self.inputs):
            hint = ""
            if self._trees is not None:
                hint = ": jax.jit leaves out unused arguments; jax.export says which"
            raise TypeError(
                f"the program takes {len(self.inputs)} arguments, {len(values)} given{hint}"
            )
        call_deadline = self._channel._deadline(timeout)
        arrays = [self._put(i, a, call_deadline.left) for i, a in enumerate(values)]
        request = _proto.message("ExecuteProgramRequest")(
            executable=self.id,
            args=[a.id for a in arrays],
            release=self._channel._session.take_forgotten(),
        )
        if donate:
            request.donate.extend(i in donate for i in range(len(values)))
        if deadline is not None:
            _proto.set_duration(request.deadline, deadline)
        try:
            answer = self._channel._call_in_session(
                "ProgramService/ExecuteProgram", request, call_deadline.left
            )
        except BaseException:
            self._channel._session.forgotten.extend(request.release)
            raise
        operation = Operation(self._channel, answer.operation)
        outputs = tuple(
            Array(self._channel, id, spec, operation)
            for id, spec in zip(answer.outputs, self.outputs)
        )
        return Run(self._channel, answer.operation, outputs)

    def _put(self, index: int, value: Any, timeout: float) -> Array:
        if isinstance(value, Array):
            return value
        spec = self.inputs[index]
        value = _values.native(value)
        is_typed = hasattr(value, "dtype")
        if _dtypes.is_whole(spec.dtype) and not is_typed and np.asarray(value).dtype.kind in "fc":
            raise TypeError(f"argument {index} is {spec.type} in the program, {value} given")
        if self._trees is not None:
            value = _jax.to_numpy(value, _dtypes.to_numpy(spec.dtype))
        # Lists and numbers have no dtype; an array must have the right one.
        typed = isinstance(value, (np.ndarray, np.generic))
        array = np.asarray(value) if typed else np.asarray(value, _dtypes.to_numpy(spec.dtype))
        if _dtypes.from_numpy(array.dtype) != spec.dtype or array.shape != spec.shape:
            found = f"{_dtypes.from_numpy(array.dtype)}[{','.join(map(str, array.shape))}]"
            raise TypeError(f"argument {index} is {spec.type} in the program, {found} given")
        return put_array(self._channel, array, spec, timeout)

    def explain(self, timeout: float | None = None) -> Plan:
        """Returns the plan: the placements and who decided them, the transfers, and what a run
        would wait for now."""
        return Plan.from_proto(
            self._channel._call("ProgramService/ExplainProgram", self._explain, timeout)
        )

    def __repr__(self) -> str:
        takes = ", ".join(s.type for s in self.inputs)
        gives = ", ".join(s.type for s in self.outputs)
        return f"<tessera.Executable {self.id} ({takes}) -> ({gives}) on {list(self.devices)}>"
