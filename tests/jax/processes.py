"""Starts JAX programs in processes of their own, for tests. The programs use the plugin at TESSERA_PJRT_PLUGIN.

    with processes.Program("import jax; print(jax.devices())", TESSERA_EMBEDDED="2") as program:
        program.line("[")        # waits for a line that begins with "[", and returns the rest
        program.end()            # waits for the end, and returns the exit status
"""
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "client/python/tessera_jax"
PLUGIN = os.environ.get("TESSERA_PJRT_PLUGIN") or str(ROOT / "build/dev/lib/pjrt_plugin_tessera.so")
PATIENCE = 100

# Begins a program of a package that is on sys.path and not installed.
REGISTER = f"""
import sys
sys.path.insert(0, {str(PACKAGE)!r})
import tessera_jax
tessera_jax.initialize()
"""


def installed(folder):
    """Returns a PYTHONPATH with which tessera_jax counts as installed, so that JAX finds it by itself."""
    info = pathlib.Path(folder) / "tessera_jax-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tessera-jax\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[jax_plugins]\ntessera = tessera_jax\n")
    return os.pathsep.join([str(folder), str(PACKAGE), os.environ.get("PYTHONPATH", "")])


class Program:
    """A running program. `line` returns its output and its errors in the order in which they are written."""

    def __init__(self, code, **environment):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "JAX_"))}
        env.update({"TESSERA_PJRT_PLUGIN": PLUGIN, "PYTHONUNBUFFERED": "1", **environment})
        self.process = subprocess.Popen([sys.executable, "-c", code], env=env, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = []
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for text in self.process.stdout:
            self._lines.put(text.rstrip("\n"))
        self._lines.put(None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        self.process.stdin.close()
        self.process.stdout.close()

    def _next(self, deadline, what):
        try:
            text = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"{what}; so far:\n" + "\n".join(self.said)) from None
        if text is not None:
            self.said.append(text)
        return text

    def line(self, start, patience=PATIENCE):
        """Waits for a line that begins with `start`, and returns the rest of it."""
        deadline = time.monotonic() + patience
        while True:
            text = self._next(deadline, f"no line '{start}' within {patience} s")
            if text is None:
                raise AssertionError(f"the program ended without a line '{start}':\n" + "\n".join(self.said))
            if text.startswith(start):
                return text[len(start):].strip()

    def end(self, patience=PATIENCE):
        """Waits for the end of the program, and returns its exit status. `text` then has all that it wrote."""
        deadline = time.monotonic() + patience
        while self._next(deadline, f"the program did not end within {patience} s") is not None:
            pass
        return self.process.wait(PATIENCE)

    @property
    def text(self):
        return "\n".join(self.said)

    def send(self, text=""):
        """Gives the program a line of input."""
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def await_blocked(self):
        """Waits until the main thread of the program waits for something, for some time without a break."""
        pid = self.process.pid
        pause, blocked = threading.Event(), 0
        deadline = time.monotonic() + PATIENCE
        while blocked < 10:
            assert time.monotonic() < deadline, "the program does not wait"
            stat = pathlib.Path(f"/proc/{pid}/task/{pid}/stat").read_text()
            blocked = blocked + 1 if stat.rpartition(")")[2].split()[0] == "S" else 0
            pause.wait(0.02)
