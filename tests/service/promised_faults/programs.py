"""Faults that programs of clients may cause: odd types, signed zeros, and long compiles."""
import base64
import contextlib
import itertools
import math
import os
import signal
import threading

import daemons
import numpy
from promised_faults.harness import (API, Background, Fault, Watch, children_of, error_of,
                                     processor_time, python_client, read, run, write)


class OddTypes(Fault):
    """Sends ops of rare types. They may be refused, but no executor may die of them."""

    number, name = "6", "programs of odd types"
    TYPES = ("bool", "s8", "s16", "u8", "u16", "u64", "f16", "bf16", "c64", "c128", "f8e4m3fn",
             "f8e5m2")
    BODIES = {
        "iota": "%r = iota() {{dtype={t}, shape=[8], iota_dimension=0}}",
        "convert": "%i = iota() {{dtype=s32, shape=[8], iota_dimension=0}}\n"
                   "  %r = convert(%i) {{dtype={t}}}",
        "add": "%r = add(%a, %a)",
        "maximum": "%r = maximum(%a, %a)",
        "reduce_max": "%r = reduce_max(%a) {{dimensions=[0]}}",
        "reduce_sum": "%r = reduce_sum(%a) {{dimensions=[0]}}",
        "dot_general": "%r = dot_general(%a, %a) {{lhs_batching_dimensions=[], "
                       "rhs_batching_dimensions=[], lhs_contracting_dimensions=[0], "
                       "rhs_contracting_dimensions=[0]}}",
        "sine": "%r = sine(%a)",
    }
    SCALARS = ("reduce_max", "reduce_sum", "dot_general")

    def start(self):
        self.running, self.caller = self.cluster()

    def programs(self):
        for dtype, (op, body), cut in itertools.product(self.TYPES, self.BODIES.items(),
                                                        (False, True)):
            mesh, spec = ("mesh (x=4)\n", " P('x')") if cut else ("", "")
            whole = f"{dtype}[8]{spec}"
            given = "" if op in ("iota", "convert") else f"%a: {whole}"
            out = f"{dtype}[]" if op in self.SCALARS else whole
            yield dtype, op, (f"{mesh}func main({given}) -> ({out}) {{\n"
                              f"  {body.format(t=dtype)}\n  return %r\n}}\n")

    def attempt(self, dtype, text):
        """Compiles the program and runs it with zeros."""
        compiled = self.caller.call(API + "ProgramService/CompileProgram", {"text": text})
        size = {"bool": 1, "c64": 8, "c128": 16, "u64": 8}.get(
            dtype, 1 if "8" in dtype else 2) * 8
        args = [self.caller.call(API + "ArrayService/WriteArray", {
            "spec": spec, "data": base64.b64encode(bytes(size)).decode()})["array"]
            for spec in compiled.get("in", [])]
        ran = self.caller.call(API + "ProgramService/ExecuteProgram",
                               {"executable": compiled["executable"], "args": args})
        self.caller.call(API + "OperationService/WaitOperation",
                         {"operation": ran["operation"], "timeout": "20s"})
        self.caller.call(API + "ArrayService/DeleteArrays", {"arrays": args + ran["outputs"]})

    def round(self, result):
        kept, died, ours = write(self.caller, [7.0] * 8), [], []
        for dtype, op, text in self.programs():
            before = [self.running.executor_pids(w) for w in (0, 1)]
            error = error_of(lambda: self.attempt(dtype, text))
            if error is not None and error.code in ("INTERNAL", "UNKNOWN"):
                ours.append(f"{op} of {dtype}: {error}")
            if [self.running.executor_pids(w) for w in (0, 1)] != before:
                died.append(f"{op} of {dtype}")
                self.running.await_devices(4)
        result.none("programs that kill an executor", died)
        result.none("programs answered with INTERNAL", ours)
        result.holds("another's array is there", not error_of(lambda: read(self.caller, kept)),
                     "it is lost")


class SignedZeros(Fault):
    number, name = "7", "the largest and least of signed zeros"

    def start(self):
        self.running, self.caller = self.cluster()

    @staticmethod
    def reduction(op, size, placed):
        mesh, cut = (f"mesh (x={placed})\n", " P('x')") if placed > 1 else ("", "")
        return (f"{mesh}func main(%a: f32[{size}]{cut}) -> (f32[]) {{\n"
                f"  %r = {op}(%a) {{dimensions=[0]}}\n  return %r\n}}\n")

    @staticmethod
    def collective(op, devices_):
        return (f"mesh (x={devices_})\n"
                f"func main(%a: f32[{devices_}] P('x')) -> (f32[1]) {{\n"
                "  %r = manual_computation(%a) {in_specs=specs[P('x')], out_specs=specs[P()], "
                'manual_axes=["x"], check_vma=true} with\n'
                f"    func body(%b: f32[1]{{V:x}}) -> (f32[1]) mesh (x={devices_}:manual) {{\n"
                f'      %m = {op}(%b) {{axes=["x"]}}\n      return %m\n    }}\n  return %r\n}}\n')

    def round(self, result):
        wrong = []
        for first in (0.0, -0.0):
            pair = [first, -first]
            for kind, sign in (("max", 1.0), ("min", -1.0)):
                cases = [(f"reduce_{kind} of {n} on {d}", self.reduction(f"reduce_{kind}", n, d),
                          pair * (n // 2)) for n in (16, 4096) for d in (1, 2, 4)]
                cases.append((f"reduce_{kind} of 100000 on 1",
                              self.reduction(f"reduce_{kind}", 100_000, 1), pair * 50_000))
                cases += [(f"p{kind} on {d}", self.collective(f"p{kind}", d), pair * (d // 2))
                          for d in (2, 4)]
                for what, text, values in cases:
                    (found,) = run(self.caller, text, values)
                    found = found[0] if isinstance(found, list) else found
                    if found != 0 or math.copysign(1.0, found) != sign:
                        wrong.append(f"{what} of {pair}... is {found}")
        result.none("zeros of the wrong sign", wrong)


class LongCompile(Fault):
    """One client's long compile must not delay another client's small programs."""

    number, name = "8", "a long compile; a burst of restarts"
    LONG_ENOUGH = 4

    def start(self):
        self.running, self.caller = self.cluster()
        self.other = self.client(self.running)
        self.values = numpy.arange(8, dtype=numpy.float32)
        self.serial = 0
        self.steps = 2000  # steps of the long program; more on a fast machine

    def long_program(self):
        """Returns a program of many kernels that all differ. Each call returns a different
        program."""
        self.serial += 1
        lines = ["%v0 = sine(%a)"]
        for i in range(self.steps):
            lines += [
                f"%s{i} = slice(%v{i}) {{start_indices=[0], limit_indices=[{64 - i % 7}], "
                "strides=[1]}",
                f"%t{i} = tanh(%s{i})",
                f"%r{i} = reduce_sum(%t{i}) {{dimensions=[0]}}",
                f"%c{i} = constant() {{value=dense<f32[]: {100_000 * self.serial + i}>}}",
                f"%q{i} = multiply(%r{i}, %c{i})",
                f"%b{i} = broadcast_in_dim(%q{i}) {{shape=[64], broadcast_dimensions=[]}}",
                f"%v{i + 1} = add(%b{i}, %v{i})"]
        body = "\n  ".join(lines)
        return f"func main(%a: f32[64]) -> (f32[64]) {{\n  {body}\n  return %v{self.steps}\n}}\n"

    def small_program(self):
        self.serial += 1
        return ("func main(%a: f32[]) -> (f32[]) {\n"
                f"  %c = constant() {{value=dense<f32[]: {self.serial}>}}\n"
                "  %s = add(%a, %c)\n  %r = multiply(%s, %s)\n  return %r\n}\n")

    def compiling(self):
        """Returns the processor seconds of the executors' children, which compile, by process
        id."""
        return {child: processor_time(child) for worker in (0, 1)
                for pid in self.running.executor_pids(worker) for child in children_of(pid)}

    def beside(self):
        """Compiles a long program and runs small ones meanwhile. Returns the seconds that each
        small one took, and those of the long one."""
        text, long = self.long_program(), {}

        def compile_long():
            watch = Watch()
            long["error"] = error_of(lambda: run(self.caller, text, [0.5] * 64, timeout=60))
            long["after"] = watch.seconds()
        begun = self.compiling()

        def is_compiled():
            return any(t > begun.get(child, 0) + 0.1 for child, t in self.compiling().items())
        thread = threading.Thread(target=compile_long)
        thread.start()
        small = []
        try:
            daemons.eventually(lambda: "after" in long or is_compiled(), 90,
                               "the long one is being compiled")
            while "after" not in long and len(small) < 20:
                watch = Watch()
                run(self.other, self.small_program(), 1.0)
                small.append(watch.seconds())
        finally:
            thread.join()
        # On a busy machine the long compile may exceed its deadline. It still was there to disturb
        # the others.
        if long["error"] and long["error"].code != "DEADLINE_EXCEEDED":
            raise AssertionError(f"the long one failed: {long['error']}")
        return small, long["after"]

    def round(self, result):
        small, long = self.beside()
        # The long compile may have waited for the processor and ended before it was seen.
        while long < self.LONG_ENOUGH or not small:
            self.steps *= 2 if long < self.LONG_ENOUGH else 1
            small, long = self.beside()
        result.took("a small program beside a long compile", 1.5, max(small, default=None))
        self.burst(result)

    def burst(self, result):
        """Clients put and get arrays with tickets while executors are killed."""
        library = python_client()

        def put_and_get(client):
            client.get(client.put(self.values, library.Mesh({"x": 4}), library.P("x")))
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(library.connect(self.running.address, timeout=10))
                       for _ in range(3)]
            working = [stack.enter_context(Background(lambda c=c: put_and_get(c), pause=0))
                       for c in clients]
            for kill in range(6):
                tried = [b.tries() for b in working]
                for pid in daemons.eventually(lambda: self.running.executor_pids(kill % 2)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                # Wait until every client has tried since the kill.
                daemons.eventually(lambda: all(b.tries() > before
                                               for b, before in zip(working, tried)))
            result.took("all devices are ready after the burst", 15,
                        Watch().until(lambda: len(self.running.healthy_devices()) == 4))
        failures = [f for b in working for f in b.failures]
        result.none("PERMISSION_DENIED in a burst of restarts",
                    [f for f in failures if "Permission" in f or "TICKET" in f])
