"""A cluster as `tessera init` makes it, with clients of every role and tenant. For tests in Python;
see daemons.py.

    with SecureCluster() as cluster:
        with cluster.client("user", "team-a") as client:
            client.call("tessera.v1.ClusterService/ListDevices")
"""
import subprocess

import daemons
import grpc
import json_client

ADMIN = "tessera.v1.AdminService"
# What every worker's certificate names, whatever its address.
WORKER_NAME = "worker.tessera"


def run_tessera(*args, **kwargs):
    """The command line's output; AssertionError with its errors when it fails."""
    done = subprocess.run([daemons.bin_dir() / "tessera", *args], capture_output=True, text=True,
                          timeout=60, **kwargs)
    if done.returncode != 0:
        raise AssertionError(f"tessera {' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


class SecureCluster(daemons.Cluster):
    def __init__(self, workers=2, devices=2, coordinator_flags=()):
        self.tokens = {}  # (role, tenant) -> text
        super().__init__(workers, devices, coordinator_flags, secure=True)

    @property
    def state(self):
        """The folder that `tessera init` made."""
        return self.ca.parent.parent

    def credentials(self, **certificate):
        return grpc.ssl_channel_credentials(self.ca.read_bytes(), **certificate)

    def client_with(self, token, address=None, credentials=None, options=()):
        """A client with this token, or none."""
        metadata = [("authorization", f"Bearer {token}")] if token else []
        return json_client.Client(address or self.address, credentials or self.credentials(),
                                  metadata, options=options)

    def make_token(self, role, tenant="default", **more):
        """A new one."""
        request = {"name": f"{role}-{tenant}-{len(self.tokens)}", "role": role, **more}
        if role != "worker":
            request["tenant"] = tenant
        with self.connect() as admin:
            return admin.call(f"{ADMIN}/CreateToken", request)["text"]

    def token_of(self, role, tenant="default"):
        """Of a role, made on first use."""
        if (role, tenant) not in self.tokens:
            self.tokens[role, tenant] = self.make_token(role, tenant)
        return self.tokens[role, tenant]

    def client(self, role, tenant="default", **kwargs):
        return self.client_with(self.token_of(role, tenant), **kwargs)

    def data_client(self, endpoint, **kwargs):
        """Of a worker's data port; its credential is the ticket."""
        return self.client_with(None, endpoint,
                                options=[("grpc.ssl_target_name_override", WORKER_NAME)], **kwargs)
