"""A server whose services of tessera.v1 are Python functions. It can fail in ways that real daemons
seldom do.

    with FakeServer({"ArrayService/GetArray": answer}) as server:
        ... server.address ...

A function gets the request (for a stream, an iterator of requests) and the context of grpc. It
returns a response, or yields responses for a stream.
"""
import concurrent.futures

import grpc
from tessera import _proto


class FakeServer:
    def __init__(self, handlers, credentials=None, address="127.0.0.1:0"):
        self.pool = concurrent.futures.ThreadPoolExecutor(8, thread_name_prefix="fake")
        self.server = grpc.server(self.pool, options=[("grpc.so_reuseport", 0)])
        self.handlers = handlers
        self.seen = []  # (method, metadata) of each call
        self.server.add_generic_rpc_handlers([self])
        if credentials:
            port = self.server.add_secure_port(address, credentials)
        else:
            port = self.server.add_insecure_port(address)
        self.address = f"{address.rpartition(':')[0]}:{port}"
        self.server.start()

    def service(self, details):  # overrides grpc.GenericRpcHandler
        name = details.method.rpartition(".")[2]
        if name not in self.handlers:
            return None
        self.seen.append((name, dict(details.invocation_metadata)))
        method = _proto.method(name)
        kind = "_".join("stream" if s else "unary" for s in method.streams)
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(self.handlers[name], method.request.FromString,
                    method.response.SerializeToString)

    def calls(self, name):
        return sum(1 for seen, _ in self.seen if seen == name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(0).wait(10)
        self.pool.shutdown()


def fail(context, code, message="no", reason="", metadata=(), retry_delay=None):
    """Ends a call with an error in the form that the daemons send."""
    status = _proto.message("google.rpc.Status")(code=code.value[0], message=message)
    if reason:
        info = _proto.message("google.rpc.ErrorInfo")(
            reason=reason, domain="tessera.dev", metadata=dict(metadata))
        status.details.add().Pack(info)
    if retry_delay is not None:
        retry = _proto.message("google.rpc.RetryInfo")()
        _proto.set_duration(retry.retry_delay, retry_delay)
        status.details.add().Pack(retry)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)
