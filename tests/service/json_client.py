"""A JSON client for any gRPC server, without compiled protos.

The client learns everything that it needs for a call from the server itself, by reflection:

    client = Client("127.0.0.1:8470")
    client.services()      # ["grpc.health.v1.Health", "tessera.v1.ArrayService", ...]
    client.call("tessera.v1.ProgramService/RunProgram", {
        "text": "func main(%0: f32[2]) -> (f32[2]) {\\n  %1 = add(%0, %0)\\n  return %1\\n}\\n",
        "inputs": [[1, 2]],
    })                     # {"outputs": [[2, 4]], "types": ["f32[2]"]}

Messages have the form of protobuf's JSON mapping: dicts, lists and numbers. 64-bit integers and
durations are strings ("7", "1.5s"), and bytes are base64. A call that fails raises Error, which
holds the code, the reason and the details of the failure.

tests/docs/grpcurl.py offers the same in a shell. Debian packages: python3-grpcio, python3-protobuf.
"""
import base64

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

REFLECTION = "grpc.reflection.v1alpha"
CHUNK = 1 << 20


class Error(Exception):
    """A failed call."""

    def __init__(self, code, message, details):
        super().__init__(f"{code.name}: {message}")
        self.number = code.value[0]
        self.code = code.name  # "INVALID_ARGUMENT"
        self.message = message
        self.details = details  # details of the google.rpc.Status, as dicts with "@type"
        info = next((d for d in details if d["@type"].endswith("/google.rpc.ErrorInfo")), {})
        self.reason = info.get("reason")  # "MALFORMED_PROGRAM"
        self.domain = info.get("domain")  # "tessera.dev"
        self.metadata = info.get("metadata", {})


class Client:
    """One channel to one server. Use it as a context manager, or close it.

    credentials  grpc.ChannelCredentials, or None for plain text.
    metadata     Metadata of every call. Calls of reflection send reflection_metadata instead
                 if that is given.
    """

    def __init__(self, address, credentials=None, metadata=(), reflection_metadata=None,
                 options=()):
        options = [("grpc.max_receive_message_length", 64 << 20),
                   ("grpc.max_send_message_length", -1), *options]
        self.channel = (grpc.secure_channel(address, credentials, options=options) if credentials
                        else grpc.insecure_channel(address, options=options))
        self.metadata = tuple(metadata)
        self.reflection_metadata = (self.metadata if reflection_metadata is None
                                    else tuple(reflection_metadata))
        self.emit_defaults = False
        self.allow_unknown_fields = False
        self.pool = descriptor_pool.DescriptorPool()
        self.known = set()  # names of the files in the pool
        self.reflection = descriptor_pool.DescriptorPool()
        self.reflection.AddSerializedFile(_reflection_file().SerializeToString())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def services(self):
        """Returns the full names of the services that the server lists."""
        answer = self._reflect(list_services="*")
        return sorted(s.name for s in answer.list_services_response.service)

    def methods(self, service):
        """Returns the full names of the methods of a service."""
        return [f"{service}/{m.name}" for m in self.find(service, "Service").methods]

    def call(self, method, request=None, timeout=60):
        """Calls "package.Service/Method". A stream is a list of messages."""
        streams = self.method(method)[1]
        answer = self.stream(method, (request or []) if streams[0] else [request or {}], timeout)
        return list(answer) if streams[1] else next(answer)

    def stream(self, method, requests, timeout=60):
        """Calls a method with a list of requests and yields the answers as they come."""
        found, streams = self.method(method)
        sent = [json_format.ParseDict(r, self._class(found.input_type)(),
                                      ignore_unknown_fields=self.allow_unknown_fields,
                                      descriptor_pool=self.pool)
                for r in requests]
        path = f"{found.containing_service.full_name}/{found.name}"
        for data in self.stream_raw(path, [m.SerializeToString() for m in sent], streams, timeout):
            yield self.to_json(found.output_type, data)

    def call_raw(self, method, requests, streaming=(False, False), timeout=60):
        """Calls a method with a list of serialized messages and returns the list of serialized
        answers."""
        return list(self.stream_raw(method, requests, streaming, timeout))

    def stream_raw(self, method, requests, streaming, timeout):
        """Like call_raw, but yields the answers as they come."""
        up, down = streaming
        kind = ("stream" if up else "unary") + "_" + ("stream" if down else "unary")
        stub = getattr(self.channel, kind)("/" + method)
        try:
            answer = stub(iter(requests) if up else requests[0], timeout=timeout,
                          metadata=self.metadata)
            yield from answer if down else [answer]
        except grpc.RpcError as error:
            raise self._error(error) from None

    def encode(self, message, fields):
        """Returns the serialized "package.Message" with these fields."""
        found = self._class(self.find(message, "MessageType"))()
        return json_format.ParseDict(fields, found, descriptor_pool=self.pool).SerializeToString()

    def method(self, name):
        """Returns the descriptor of "package.Service/Method" or "package.Service.Method" and
        whether its requests and its responses are streams."""
        service, _, short = name.rpartition("/" if "/" in name else ".")
        found = self.find(service, "Service").methods_by_name.get(short)
        if found is None:
            raise KeyError(f"{service} has no method {short}")
        proto = descriptor_pb2.MethodDescriptorProto()
        found.CopyToProto(proto)
        return found, (proto.client_streaming, proto.server_streaming)

    def _error(self, error):
        details = []
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                status = self.to_json(self.find("google.rpc.Status", "MessageType"), value)
                details = status.get("details", [])
        return Error(error.code(), error.details(), details)

    def to_json(self, message_type, data):
        """Converts a serialized message to protobuf's JSON form."""
        message = self._class(message_type).FromString(data)
        self._learn(message)
        # Newer versions of protobuf have renamed this option.
        defaults = {}
        if self.emit_defaults:
            code = json_format.MessageToDict.__code__
            name = ("including_default_value_fields"
                    if "including_default_value_fields" in code.co_varnames
                    else "always_print_fields_with_no_presence")
            defaults[name] = True
        return json_format.MessageToDict(message, descriptor_pool=self.pool, **defaults)

    def _learn(self, message):
        """Asks the server for the types of the message's Any fields, because no method mentions
        them."""
        if message.DESCRIPTOR.full_name == "google.protobuf.Any":
            return self.find(message.type_url.split("/")[-1], "MessageType")
        for field, value in message.ListFields():
            if field.message_type and not field.message_type.GetOptions().map_entry:
                repeated = (field.is_repeated if hasattr(field, "is_repeated")
                            else field.label == field.LABEL_REPEATED)
                for part in value if repeated else [value]:
                    self._learn(part)

    def _class(self, message_type):
        if hasattr(message_factory, "GetMessageClass"):
            return message_factory.GetMessageClass(message_type)
        return message_factory.MessageFactory(self.pool).GetPrototype(message_type)

    # ---- Reflection. ----

    def find(self, name, kind):
        """Returns the descriptor of a "Service", "MessageType" or "EnumType". Raises KeyError if
        there is none."""
        find = getattr(self.pool, f"Find{kind}ByName")
        try:
            return find(name)
        except KeyError:
            self.load(name)
            return find(name)

    def load(self, symbol):
        """Asks the server for the file that defines a symbol. Raises KeyError if no file does."""
        answer = self._reflect(file_containing_symbol=symbol)
        files = {}
        for data in answer.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            files[file.name] = file
        for file in list(files.values()):
            self._add(file, files)

    def _add(self, file, files):
        """Adds a file to the pool after the files that it imports."""
        if file.name in self.known:
            return
        self.known.add(file.name)
        for imported in file.dependency:
            if imported not in files and imported not in self.known:
                answer = self._reflect(file_by_filename=imported)
                for data in answer.file_descriptor_response.file_descriptor_proto:
                    found = descriptor_pb2.FileDescriptorProto.FromString(data)
                    files.setdefault(found.name, found)
            if imported in files:
                self._add(files[imported], files)
        self.pool.AddSerializedFile(file.SerializeToString())

    def _reflect(self, **query):
        find = self.reflection.FindMessageTypeByName
        request = self._class(find(REFLECTION + ".ServerReflectionRequest"))(**query)
        response = self._class(find(REFLECTION + ".ServerReflectionResponse"))
        stub = self.channel.stream_stream(
            f"/{REFLECTION}.ServerReflection/ServerReflectionInfo",
            type(request).SerializeToString, response.FromString)
        try:
            answer = next(iter(stub(iter([request]), timeout=60,
                                    metadata=self.reflection_metadata)))
        except grpc.RpcError as error:
            # The types of the details are not known yet, and asking for them would call reflection
            # again.
            raise Error(error.code(), error.details(), []) from None
        if answer.HasField("error_response"):
            raise KeyError(answer.error_response.error_message)
        return answer


def _reflection_file():
    """Returns the part of the public grpc/reflection/v1alpha/reflection.proto that this client
    needs."""
    file = descriptor_pb2.FileDescriptorProto(
        name="grpc/reflection/v1alpha/reflection.proto", package=REFLECTION, syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields):
        added = file.message_type.add(name=name)
        for number, field_name, field_type, repeated in fields:
            f = added.field.add(name=field_name, number=number,
                                label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL)
            if isinstance(field_type, str):
                f.type, f.type_name = field.TYPE_MESSAGE, f".{REFLECTION}.{field_type}"
            else:
                f.type = field_type
        return added

    request = message("ServerReflectionRequest",
                      (3, "file_by_filename", field.TYPE_STRING, False),
                      (4, "file_containing_symbol", field.TYPE_STRING, False),
                      (7, "list_services", field.TYPE_STRING, False))
    request.oneof_decl.add(name="message_request")
    for f in request.field:
        f.oneof_index = 0
    message("ServerReflectionResponse",
            (4, "file_descriptor_response", "FileDescriptorResponse", False),
            (6, "list_services_response", "ListServiceResponse", False),
            (7, "error_response", "ErrorResponse", False))
    message("FileDescriptorResponse", (1, "file_descriptor_proto", field.TYPE_BYTES, True))
    message("ListServiceResponse", (1, "service", "ServiceResponse", True))
    message("ServiceResponse", (1, "name", field.TYPE_STRING, False))
    message("ErrorResponse", (1, "error_code", field.TYPE_INT32, False),
            (2, "error_message", field.TYPE_STRING, False))
    return file


# ---- Bulk data: sent directly between the client and the executors, with tickets. ----

def write_shard(ticket, data):
    """Uploads the bytes of one shard (row-major, little-endian) with a ticket of CreateArray."""
    chunks = []
    for at in range(0, max(len(data), 1), CHUNK):
        part = data[at:at + CHUNK]
        chunks.append({"offset": str(at), "data": base64.b64encode(part).decode(),
                       "crc32c": crc32c(part)})
    chunks[0]["ticket"] = ticket["ticket"]
    with Client(ticket["endpoint"]) as executor:
        return executor.call("tessera.v1.DataService/Write", chunks)


def read_shard(ticket):
    """Downloads the bytes of one shard with a ticket of CreateReadTickets."""
    with Client(ticket["endpoint"]) as executor:
        chunks = executor.call("tessera.v1.DataService/Read", {"ticket": ticket["ticket"]})
    data = b""
    for chunk in chunks:
        part = base64.b64decode(chunk.get("data", ""))
        if int(chunk.get("offset", 0)) != len(data) or chunk.get("crc32c", 0) != crc32c(part):
            raise ValueError("the chunks do not fit together; read the shard again")
        data += part
    return data


def crc32c(data):
    """Returns the CRC-32C (Castagnoli). It works bit by bit and is meant for small data."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
