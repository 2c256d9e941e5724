"""Executables and plans."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tessera import _dtypes, _proto, _values, errors
from tessera._array import Array, put_array
from tessera._channel import Channel
from tessera._operation import Operation, PendingReason
from tessera._rpc import Deadline
from tessera._trees import Trees, to_numpy
from tessera.sharding import ArraySpec

_LOG = logging.getLogger("tessera")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a program: where each value lies, what devices exchange, and what a run needs.

    `Client.explain()`, `Executable.explain()` and `JitFunction.explain()` return plans. `str(plan)`
    is the text. docs/planner.md explains how to read it.

    Attributes:
        text (str): The plan for people.
        json (dict or None): The plan for programs, with the same contents.
        memory_bound_bytes (int): How many bytes of memory each device needs at most.
        devices (tuple of int): Ids of the devices. Empty if the plan is for absent devices.
        pending_reasons (tuple of PendingReason): The reasons why a run would wait if it were
            submitted now. Empty if it would start.

    Example:
        plan = client.explain("func main(%a: f32[4]) -> (f32[4]) { %b = add(%a, %a) return %b }")
        print(plan.text.splitlines()[0])  # plan of main on mesh ()
        print(plan.json["memory"]["result_bytes"])  # 16
    """

    text: str
    json: Any  # the plan in machine-readable form
    memory_bound_bytes: int  # bound on the memory of each device
    devices: tuple[int, ...]
    pending_reasons: tuple[PendingReason, ...]  # why a run would wait now; empty if it would start

    def __str__(self) -> str:
        return self.text

    @staticmethod
    def from_proto(proto: Any) -> Plan:
        """Converts a message to a plan, for programs that use the messages of the service
        themselves.

        Args:
            proto (message): A message `tessera.v1.ExplainProgramResponse`.

        Returns:
            Plan: the plan.
        """
        return Plan(
            text=proto.text,
            json=json.loads(proto.json) if proto.json else None,
            memory_bound_bytes=proto.memory_bound_bytes,
            devices=tuple(proto.devices),
            pending_reasons=tuple(PendingReason.from_proto(r) for r in proto.pending_reasons),
        )


class Compiled(NamedTuple):
    """The result of compiling a program."""

    reply: Any  # a CompileProgramResponse
    explain: Any  # the request of explain()
    # The number of the platform that the program runs on, if the program takes it as its first
    # argument.
    platform: int | None


class Run(Operation):
    """A run that this process has started, with its results.

    `Executable.submit()` returns it.

    Attributes:
        outputs (tuple of Array): The results, which may not be ready yet. For a JAX function they
            are the leaves; `Executable.result()` makes the pytree of them.

    Example:
        add = client.compile(
            "func main(%a: f32[2], %b: f32[2]) -> (f32[2]) { %c = add(%a, %b) return %c }")
        run = add.submit([1, 2], [3, 4])
        print(run.wait().state, client.get(run.outputs[0]))  # DONE [4. 6.]
    """

    def __init__(
        self, channel: Channel, id: int, outputs: tuple[Array, ...], session: int = 0
    ) -> None:
        """Only the client makes runs; see the class."""
        super().__init__(channel, id, session)
        self.outputs = outputs


class Executable:
    """A program, compiled for devices. Calling it runs it.

    `Client.compile()` returns it. An executable of a JAX function takes and returns the same
    pytrees as the function. If the coordinator has dropped the executable, because it keeps only
    those that were used last or was restarted, the next run compiles the program again.

    Attributes:
        id (int): Id of the executable. It changes when the program is compiled again.
        inputs (tuple of ArraySpec): The arguments of the program. For a JAX function they are the
            leaves that the program takes.
        outputs (tuple of ArraySpec): The results of the program. For a JAX function they are the
            leaves.
        memory_bound_bytes (int): How many bytes of memory a run needs at most on each device.

    Example:
        double = client.compile(
            "mesh (x=2) func main(%a: f32[4]) -> (f32[4]) { %b = add(%a, %a) return %b }")
        print([spec.type for spec in double.inputs], len(double.devices))  # ['f32[4]'] 2
    """

    def __init__(
        self,
        channel: Channel,
        name: str,
        compile: Callable[[Deadline], Compiled],
        compiled: Compiled,
        trees: Trees | None = None,
    ) -> None:
        """Only the client makes executables; see the class."""
        self._channel = channel
        self._name = name
        self._compile = compile  # compiles the program again
        self._trees = trees
        self._lock = threading.Lock()
        # The compilation under way of an executable that was lost.
        self._attempt: concurrent.futures.Future[int] | None = None
        self._install(compiled)

    def _install(self, compiled: Compiled) -> None:
        reply = compiled.reply
        self._platform = compiled.platform
        self._explain = compiled.explain
        self.id: int = reply.executable
        # getattr is needed, since the field's name is a Python keyword.
        self.inputs = tuple(ArraySpec.from_proto(s) for s in getattr(reply, "in"))
        self.outputs = tuple(ArraySpec.from_proto(s) for s in reply.out)
        self.memory_bound_bytes: int = reply.memory_bound_bytes

    def _replace(self, lost: int, deadline: Deadline) -> int:
        """Returns the executable that takes the place of `lost`, which the coordinator does not
        know any more. Compiles the program, unless another thread has done so or is doing so."""
        while True:
            with self._lock:
                if self.id != lost:
                    return self.id
                attempt, mine = self._attempt, self._attempt is None
                if attempt is None:
                    attempt = self._attempt = concurrent.futures.Future()
            if mine:
                return self._compile_again(lost, deadline, attempt)
            try:
                return attempt.result(deadline.left)
            except errors.DeadlineExceededError:
                if not deadline.left:  # The other thread gave up; there may be time here.
                    raise
            except concurrent.futures.TimeoutError:
                raise errors.DeadlineExceededError(
                    f"{self._name}: the timeout passed while the program was being compiled again",
                    reason="DEADLINE_EXCEEDED",
                ) from None

    def _compile_again(
        self, lost: int, deadline: Deadline, attempt: concurrent.futures.Future[int]
    ) -> int:
        try:
            compiled = self._compile(deadline)
        except BaseException as error:
            with self._lock:
                self._attempt = None
            attempt.set_exception(error)
            raise
        with self._lock:
            self._install(compiled)
            self._attempt = None
        attempt.set_result(self.id)
        _LOG.debug(
            "%s: executable %d is gone, and its program was compiled again as executable %d",
            self._name,
            lost,
            self.id,
        )
        return self.id

    @property
    def devices(self) -> tuple[int, ...]:
        """The ids of the devices on which the executable runs, in the order of its mesh."""
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

        Args:
            *args (array-like): The arguments, as for `submit()`.
            donate (sequence of int or str): The arguments to delete, as for `submit()`.
            deadline (float): How many seconds the run may take, as for `submit()`.
            timeout (float): Number of seconds that the call may take, as for `submit()`.
            **kwargs (array-like): The arguments of a JAX function that are given by name.

        Returns:
            A tuple of Array or, for a JAX function, the pytree of its result with an Array for each
            leaf.

        Raises:
            Error: The errors of `submit()`. An error of the run itself is raised when a result is
                read.

        Example:
            double = client.compile(
                "func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
            (b,) = double([1, 2])
            (c,) = double(b)  # need not wait for b
            print(client.get(c))  # [4. 8.]
        """
        run = self.submit(*args, donate=donate, deadline=deadline, timeout=timeout, **kwargs)
        return self.result(run.outputs)

    def result(self, outputs: Sequence[Any]) -> Any:
        """Puts the outputs of a run into the form in which a call returns them.

        Args:
            outputs (sequence): The outputs, `Run.outputs`, or the values that were read from them.

        Returns:
            A tuple of the outputs or, for a JAX function, the pytree of its result.
        """
        return tuple(outputs) if self._trees is None else self._trees.result(outputs)

    def submit(
        self,
        *args: Any,
        donate: Sequence[int | str] = (),
        deadline: float | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Run:
        """Starts a run and returns it.

        Args:
            *args (array-like): The arguments. An Array may have any placement. A value that NumPy
                can convert is put first, with the placement that the program wants. An array must
                have the shape and the dtype of the program, and a number or a list takes the dtype.
                The arguments of a JAX function are pytrees of such values and of JAX's arrays.
                Arrays of 64 bits become arrays of 32 bits if the function was exported with 32
                bits, as in JAX.
            donate (sequence of int or str): The arguments to delete when they have been read, by
                number from 0. Arguments of a JAX function may also be given by name.
            deadline (float): How many seconds the run may take. The server then ends it with
                DEADLINE_EXCEEDED. If None, the limit is that of the server (`run_deadline_ms`, by
                default an hour).
            timeout (float): Number of seconds that the call may take, with the uploads of its
                arguments. None means the timeout of `connect()`.
            **kwargs (array-like): The arguments of a JAX function that are given by name.

        Returns:
            Run: the run, as soon as the server has accepted it.

        Raises:
            TypeError: The number of arguments, their pytrees, or the shape or dtype of a value is
                wrong. Do not retry.
            ValueError: `donate` names an argument that does not exist. Do not retry.
            InvalidArgumentError: Reason TYPE_ERROR or VALUE_ERROR: an Array does not fit the
                program. Do not retry.
            FailedPreconditionError: Reason ARRAY_DELETED: an argument was deleted or donated. Do
                not retry.
            NotFoundError: Reason ARRAY_NOT_FOUND: the coordinator does not know an argument. Make
                it again. Reason PROGRAM_NOT_FOUND: the coordinator has dropped the executable, the
                client has compiled the program again, and the coordinator has dropped that one as
                well. Reason SESSION_NOT_FOUND: the lease of the session that had an argument ended
                while this process did not run. Make it again.
            ResourceExhaustedError: Reason LIMIT_EXCEEDED: there are too many arrays. Reason
                OUT_OF_MEMORY: a device is full. Delete arrays first.
            UnavailableError: Reason WORKER_LOST: a value cannot be put, because an executor was
                lost. Retry.
            Error: The errors of `Client.compile()`, if the coordinator has dropped the executable.

        Example:
            double = client.compile(
                "func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
            state = client.put(np.ones(2, np.float32), tessera.Mesh({"x": 1}))
            run = double.submit(state, donate=[0], deadline=60)
            print(client.get(run.outputs[0]))  # [2. 2.]
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
            with self._channel._using(*(a._session for a in arrays)):
                answer = self._execute(request, call_deadline)
        except BaseException:
            self._channel._session.forgotten.extend(request.release)
            raise
        session = request.session
        operation = Operation(self._channel, answer.operation, session)
        outputs = tuple(
            Array(self._channel, id, spec, operation, session)
            for id, spec in zip(answer.outputs, self.outputs)
        )
        return Run(self._channel, answer.operation, outputs, session)

    def _execute(self, request: Any, deadline: Deadline) -> Any:
        """Starts a run. If the coordinator has dropped the executable, compiles the program again,
        once. If another call has compiled it since this one was sent, that does not count. A run
        that was refused has made nothing, so that it does not happen twice."""
        lost = 0
        while True:
            request.executable = self.id
            request.request_id = ""  # A request for another executable is a new request.
            try:
                return self._channel._call_in_session(
                    "ProgramService/ExecuteProgram", request, deadline.left
                )
            except errors.NotFoundError as error:
                if error.reason != "PROGRAM_NOT_FOUND":
                    raise
            if self.id != request.executable:
                continue
            if lost:
                raise errors.NotFoundError(
                    f"{self._name}: executable {lost} was gone and its program was compiled again, "
                    f"and the new executable {request.executable} was gone as well before it could "
                    "run; run fewer programs at a time, or raise the coordinator's executables_max",
                    reason="PROGRAM_NOT_FOUND",
                )
            lost = int(request.executable)
            self._replace(lost, deadline)

    def _put(self, index: int, value: Any, timeout: float) -> Array:
        if isinstance(value, Array):
            return value
        spec = self.inputs[index]
        value = _values.native(value)
        is_typed = hasattr(value, "dtype")
        if _dtypes.is_whole(spec.dtype) and not is_typed and np.asarray(value).dtype.kind in "fc":
            raise TypeError(f"argument {index} is {spec.type} in the program, {value} given")
        if self._trees is not None:
            value = to_numpy(value, _dtypes.to_numpy(spec.dtype))
        # Lists and numbers have no dtype; an array must have the right one.
        typed = isinstance(value, (np.ndarray, np.generic))
        array = np.asarray(value) if typed else np.asarray(value, _dtypes.to_numpy(spec.dtype))
        if _dtypes.from_numpy(array.dtype) != spec.dtype or array.shape != spec.shape:
            found = f"{_dtypes.from_numpy(array.dtype)}[{','.join(map(str, array.shape))}]"
            raise TypeError(f"argument {index} is {spec.type} in the program, {found} given")
        return put_array(self._channel, array, spec, timeout)

    def explain(self, timeout: float | None = None) -> Plan:
        """Returns the plan of the executable, and what a run would wait for now.

        Args:
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            Plan: the plan.

        Raises:
            Error: The errors of `Client.explain()`.
        """
        return Plan.from_proto(
            self._channel._call("ProgramService/ExplainProgram", self._explain, timeout)
        )

    def __repr__(self) -> str:
        takes = ", ".join(s.type for s in self.inputs)
        gives = ", ".join(s.type for s in self.outputs)
        return f"<tessera.Executable {self.id} ({takes}) -> ({gives}) on {list(self.devices)}>"
