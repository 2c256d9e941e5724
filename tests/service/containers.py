"""A cluster of daemons in containers, like daemons.Cluster, for what a container engine does to
processes.

The image is empty. The containers see the system and the programs of this machine, so nothing is
built or downloaded, and use its network.
"""
import pathlib
import subprocess
import tempfile

import daemons
from promised_faults.harness import Skip

IMAGE = "tessera-empty"
SYSTEM = ("/bin", "/sbin", "/lib", "/lib64", "/usr", "/etc")
PATIENCE = 60


def docker(*words, **more):
    """Runs docker and returns its output. Raises AssertionError if it fails."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=PATIENCE,
                          check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"docker {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def make_image():
    """Makes the image. Raises Skip if no engine runs here."""
    try:
        docker("version")
    except FileNotFoundError:
        raise Skip("there is no docker here") from None
    except (AssertionError, subprocess.TimeoutExpired) as error:
        raise Skip(f"no container engine answers: {error}") from None
    empty = subprocess.run(["tar", "-c", "-T", "/dev/null"], capture_output=True, check=True).stdout
    subprocess.run(["docker", "import", "-", IMAGE], input=empty, capture_output=True, check=True,
                   timeout=PATIENCE)


class Cluster(daemons.Cluster):
    """A cluster whose daemons each run in a container. A worker's executors are in the container of
    its daemon."""

    def __init__(self, *args, **kwargs):
        make_image()
        self._names = []
        super().__init__(*args, **kwargs)

    def container(self, name):
        return f"{self.folder.name}-{name}"

    def _command(self, name, binary, flags):
        self._names.append(name)
        programs, temporary = daemons.bin_dir().resolve().parent, tempfile.gettempdir()
        mounts = [f"{path}:{path}:ro" for path in (*SYSTEM, programs) if pathlib.Path(path).exists()]
        mounts.append(f"{temporary}:{temporary}")
        return ["docker", "run", "--rm", "--name", self.container(name), "--network", "host",
                "--env", "TESSERA_METRICS_LISTEN=off",
                *(word for mount in mounts for word in ("--volume", mount)),
                IMAGE, str(programs / "bin" / binary), *flags]

    def daemon_pid(self, name):
        return int(docker("inspect", "--format", "{{.State.Pid}}", self.container(name)))

    def close(self):
        for name in self._names:
            # A container that has ended is gone, because of --rm.
            subprocess.run(["docker", "rm", "--force", self.container(name)], capture_output=True,
                           timeout=PATIENCE, check=False)
        super().close()
