"""A cluster with the files of `tessera init`, and clients of every role and tenant. It is for tests
in Python; see daemons.py.

    with SecureCluster() as cluster:
        with cluster.client("user", "team-a") as client:
            client.call("tessera.v1.ClusterService/ListDevices")
"""
import subprocess

import daemons
import grpc
import json_client

ADMIN = "tessera.v1.AdminService"
# the host name that every worker's certificate contains, whatever the worker's address
WORKER_NAME = "worker.tessera"


def run_tessera(*args, **kwargs):
    """Runs `tessera` and returns its output. Raises AssertionError with its error output if it
    fails."""
    done = subprocess.run([daemons.bin_dir() / "tessera", *args], capture_output=True, text=True,
                          timeout=60, **kwargs)
    if done.returncode != 0:
        raise AssertionError(f"tessera {' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


class SecureCluster(daemons.Cluster):
    def __init__(self, workers=2, devices=2, coordinator_flags=(), worker_flags=()):
        self.tokens = {}  # token text by (role, tenant)
        super().__init__(workers, devices, coordinator_flags, worker_flags, secure=True)

    @property
    def state(self):
        """Returns the folder that `tessera init` has made."""
        return self.ca.parent.parent

    def credentials(self, **certificate):
        return grpc.ssl_channel_credentials(self.ca.read_bytes(), **certificate)

    def client_with(self, token, address=None, credentials=None, options=()):
        """Returns a client that sends this token, or no token if it is empty."""
        metadata = [("authorization", f"Bearer {token}")] if token else []
        return json_client.Client(address or self.address, credentials or self.credentials(),
                                  metadata, options=options)

    def make_token(self, role, tenant="default", **more):
        """Makes a new token and returns its text."""
        request = {"name": f"{role}-{tenant}-{len(self.tokens)}", "role": role, **more}
        if role != "worker":
            request["tenant"] = tenant
        with self.connect() as admin:
            return admin.call(f"{ADMIN}/CreateToken", request)["text"]

    def token_of(self, role, tenant="default"):
        """Returns the token of a role and tenant, which is made on first use."""
        if (role, tenant) not in self.tokens:
            self.tokens[role, tenant] = self.make_token(role, tenant)
        return self.tokens[role, tenant]

    def client(self, role, tenant="default", **kwargs):
        return self.client_with(self.token_of(role, tenant), **kwargs)

    def data_client(self, endpoint, **kwargs):
        """Returns a client of a worker's data port. The client sends no token, because a ticket is the
        credential there."""
        return self.client_with(None, endpoint,
                                options=[("grpc.ssl_target_name_override", WORKER_NAME)], **kwargs)
