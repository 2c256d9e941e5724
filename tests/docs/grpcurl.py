#!/usr/bin/python3
"""Offers grpcurl's command line with this repository's reflection client.

    grpcurl.py [flags] ADDRESS list [SERVICE]
    grpcurl.py [flags] ADDRESS describe [SYMBOL]
    grpcurl.py [flags] ADDRESS SERVICE/METHOD       or SERVICE.METHOD

It does what grpcurl does with the same arguments, as far as it supports them. The tests run the
documentation's commands with it where grpcurl is not packaged. Flags have one or two dashes and
come before the address. Requests are JSON, given with `-d` ("@" reads standard input). Answers are
in protobuf's JSON form, with 64-bit integers as strings. Errors go to standard error with their
details decoded. The exit codes are 0, 1 (no connection, no such symbol), 2 (usage), and 64 + the
status code of a call that failed.

It does not have protos from files (-proto, -protoset), -format text, and -v.
"""
import json
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "service"))

import grpc  # noqa: E402
import json_client  # noqa: E402
from google.protobuf import descriptor_pb2, json_format  # noqa: E402

# The flags by name, and whether a value follows.
FLAGS = {
    "plaintext": False, "emit-defaults": False, "expand-headers": False, "format-error": False,
    "allow-unknown-fields": False, "help": False,
    "d": True, "H": True, "rpc-header": True, "reflect-header": True, "cacert": True, "cert": True,
    "key": True, "authority": True, "servername": True, "max-time": True, "connect-timeout": True,
    "format": True, "user-agent": True, "max-msg-sz": True, "keepalive-time": True,
}
REPEATED = ("H", "rpc-header", "reflect-header")
FOREVER = 1e8


class Usage(Exception):
    """The command line is wrong."""


class Failure(Exception):
    """The command cannot be carried out."""


def parse(args):
    """Returns the flags and the words after them. Reads flags like Go's flag package."""
    flags = {name: [] for name in REPEATED}
    at = 0
    while at < len(args) and len(args[at]) > 1 and args[at].startswith("-"):
        word = args[at]
        at += 1
        if word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        if name not in FLAGS:
            raise Usage(f"flag provided but not defined: -{name}")
        if not FLAGS[name]:
            if equals and value not in ("true", "false"):
                raise Usage(f'invalid boolean value "{value}" for -{name}')
            flags[name] = value != "false"
            continue
        if not equals:
            if at == len(args):
                raise Usage(f"flag needs an argument: -{name}")
            value = args[at]
            at += 1
        if name in REPEATED:
            flags[name].append(value)
        else:
            flags[name] = value
    return flags, args[at:]


def headers(flags, *names):
    """Returns the metadata of headers that are given as "name: value"."""
    found = []
    for name in names:
        for header in flags[name]:
            if flags.get("expand-headers"):
                header = re.sub(r"\$\{(\w+)\}", lambda m: os.environ[m[1]], header)
            key, _, value = header.partition(":")
            found.append((key.strip().lower(), value.strip()))
    return found


def connect(flags, address):
    """Returns a client whose channel is ready."""
    credentials = None
    if not flags.get("plaintext"):
        def read(name):
            return pathlib.Path(flags[name]).read_bytes() if flags.get(name) else None

        try:
            credentials = grpc.ssl_channel_credentials(read("cacert"), read("key"), read("cert"))
        except OSError as error:
            raise Failure(f"Failed to configure transport credentials: {error}") from None
    options = []
    if flags.get("authority"):
        options.append(("grpc.default_authority", flags["authority"]))
    if flags.get("servername") or flags.get("authority"):
        name = flags.get("servername") or flags["authority"]
        options.append(("grpc.ssl_target_name_override", name))
    if flags.get("user-agent"):
        options.append(("grpc.primary_user_agent", flags["user-agent"]))
    if flags.get("max-msg-sz"):
        options.append(("grpc.max_receive_message_length", int(flags["max-msg-sz"])))
    if flags.get("keepalive-time"):
        millis = int(float(flags["keepalive-time"]) * 1000)
        options.append(("grpc.keepalive_time_ms", millis))
    client = json_client.Client(address, credentials, headers(flags, "H", "rpc-header"),
                                headers(flags, "H", "reflect-header"), options)
    client.emit_defaults = flags.get("emit-defaults", False)
    client.allow_unknown_fields = flags.get("allow-unknown-fields", False)
    try:
        patience = float(flags.get("connect-timeout") or 10)
        grpc.channel_ready_future(client.channel).result(timeout=patience)
    except grpc.FutureTimeoutError:
        client.channel.close()
        raise Failure(f'Failed to dial target host "{address}": context deadline exceeded'
                      ) from None
    return client


# ---- list and describe. ----

def list_symbols(client, service):
    if not service:
        return "\n".join(client.services())
    try:
        return "\n".join(m.replace("/", ".") for m in sorted(client.methods(service)))
    except KeyError:
        raise Failure(f'Failed to list methods for service "{service}": Symbol not found: {service}'
                      ) from None


def describe(client, symbol):
    """Returns the description of a symbol in the syntax of a .proto file."""
    symbols = [symbol.lstrip(".").replace("/", ".")] if symbol else client.services()
    return "\n".join(_describe_one(client, s) for s in symbols)


def _describe_one(client, symbol):
    kinds = (("Service", "a service", _service_text), ("MessageType", "a message", _message_text),
             ("EnumType", "an enum", _enum_text))
    try:
        client.load(symbol)
    except KeyError:
        raise Failure(f'Failed to resolve symbol "{symbol}": Symbol not found: {symbol}') from None
    for kind, what, text in kinds:
        try:
            found = client.find(symbol, kind)
        except KeyError:
            continue
        return f"{symbol} is {what}:\n{text(found, '')}"
    owner, _, short = symbol.rpartition(".")
    try:
        return f"{symbol} is a method:\n{_method_text(client.method(f'{owner}/{short}')[0])}"
    except KeyError:
        pass
    field = client.find(owner, "MessageType").fields_by_name[short]
    return f"{symbol} is a field:\n{_field_text(field)}"


def _proto_of(descriptor, kind):
    proto = kind()
    descriptor.CopyToProto(proto)
    return proto


def _method_text(method):
    proto = _proto_of(method, descriptor_pb2.MethodDescriptorProto)
    sent = "stream " * proto.client_streaming
    answered = "stream " * proto.server_streaming
    return (f"rpc {method.name} ( {sent}.{method.input_type.full_name} ) "
            f"returns ( {answered}.{method.output_type.full_name} );")


def _service_text(service, indent):
    methods = sorted(service.methods, key=lambda m: m.name)
    lines = [f"{indent}  {_method_text(m)}" for m in methods]
    return "\n".join([f"{indent}service {service.name} {{", *lines, f"{indent}}}"])


_SCALARS = {getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{t.upper()}"): t for t in (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes",
    "uint32", "sfixed32", "sfixed64", "sint32", "sint64")}


def _type_text(field):
    if field.type in _SCALARS:
        return _SCALARS[field.type]
    return "." + (field.message_type or field.enum_type).full_name


def _field_text(field):
    proto = _field_proto(field)
    repeated = proto.label == proto.LABEL_REPEATED
    if repeated and field.message_type and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{_type_text(key)}, {_type_text(value)}> {field.name} = {field.number};"
    label = "repeated " if repeated else "optional " if proto.proto3_optional else ""
    return f"{label}{_type_text(field)} {field.name} = {field.number};"


def _field_proto(field):
    owner = _proto_of(field.containing_type, descriptor_pb2.DescriptorProto)
    return next(f for f in owner.field if f.number == field.number)


def _message_text(message, indent):
    lines, oneofs = [f"{indent}message {message.name} {{"], set()
    for field in sorted(message.fields, key=lambda f: f.number):
        oneof = field.containing_oneof
        if oneof is None or _field_proto(field).proto3_optional:
            lines.append(f"{indent}  {_field_text(field)}")
        elif oneof.name not in oneofs:
            oneofs.add(oneof.name)
            members = sorted(oneof.fields, key=lambda f: f.number)
            lines += [f"{indent}  oneof {oneof.name} {{",
                      *(f"{indent}    {_field_text(f)}" for f in members), f"{indent}  }}"]
    for nested in message.nested_types:
        if not nested.GetOptions().map_entry:
            lines.append(_message_text(nested, indent + "  "))
    lines += [_enum_text(nested, indent + "  ") for nested in message.enum_types]
    return "\n".join([*lines, indent + "}"])


def _enum_text(enum, indent):
    values = [f"{indent}  {v.name} = {v.number};" for v in enum.values]
    return "\n".join([f"{indent}enum {enum.name} {{", *values, f"{indent}}}"])


# ---- Calls. ----

def requests_of(text):
    """Returns the JSON documents that follow each other in a text."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return found
        value, at = decoder.raw_decode(text, at)
        found.append(value)


def invoke(client, flags, symbol, timeout):
    text = flags.get("d")
    if text == "@":
        text = sys.stdin.read()
    try:
        client.method(symbol)
    except KeyError as error:
        service = symbol.rpartition("/" if "/" in symbol else ".")[0]
        raise Failure(f'Error invoking method "{symbol}": target server does not expose service '
                      f'"{service}": {error.args[0]}') from None
    try:
        requests = requests_of(text or "")
    except json.JSONDecodeError as error:
        raise Failure(f'Error invoking method "{symbol}": error getting request data: {error}'
                      ) from None
    if not client.method(symbol)[1][0]:
        if len(requests) > 1:
            raise Failure(f'Error invoking method "{symbol}": method takes one request, '
                          f"{len(requests)} given")
        requests = requests or [{}]
    try:
        for answer in client.stream(symbol, requests, timeout):
            print(json.dumps(go_numbers(answer), indent=2, ensure_ascii=False), flush=True)
    except json_format.ParseError as error:
        raise Failure(f'Error invoking method "{symbol}": error getting request data: {error}'
                      ) from None


def go_numbers(value):
    """Converts numbers without a fraction to integers, because Go writes them without a point."""
    if isinstance(value, dict):
        return {k: go_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [go_numbers(v) for v in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    return value


def camel(name):
    """Returns a status code as Go writes it, for example "NotFound" for NOT_FOUND."""
    return "OK" if name == "OK" else "".join(part.capitalize() for part in name.split("_"))


def error_text(error):
    lines = ["ERROR:", f"  Code: {camel(error.code)}", f"  Message: {error.message}"]
    if error.details:
        lines.append("  Details:")
    for number, detail in enumerate(error.details, 1):
        first, *rest = json.dumps(detail, indent=2, ensure_ascii=False).split("\n")
        lines += [f"  {number})\t{first}", *(f"    \t{line}" for line in rest)]
    return "\n".join(lines)


def main(args):
    try:
        flags, words = parse(args)
        if flags.get("help"):
            print(__doc__)
            return 0
        if flags.get("format", "json") != "json":
            raise Usage("-format: only json is known here")
        if flags.get("plaintext") and any(flags.get(f) for f in ("cacert", "cert", "key")):
            raise Usage("The -cacert, -cert and -key options cannot be used with -plaintext.")
        if not words:
            raise Usage("Too few arguments.")
        if len(words) == 1:
            raise Usage("Too few arguments: a verb or a symbol is missing.")
        address, verb, rest = words[0], words[1], words[2:]
        if len(rest) > (1 if verb in ("list", "describe") else 0):
            raise Usage("Too many arguments.")
    except Usage as error:
        print(error, file=sys.stderr)
        return 2
    end = time.monotonic() + float(flags.get("max-time") or FOREVER)
    try:
        with connect(flags, address) as client:
            if verb == "list":
                print(list_symbols(client, rest[0] if rest else ""))
            elif verb == "describe":
                print(describe(client, rest[0] if rest else ""))
            else:
                invoke(client, flags, verb, max(end - time.monotonic(), 0))
    except Failure as error:
        print(error, file=sys.stderr)
        return 1
    except json_client.Error as error:
        if flags.get("format-error"):
            status = {"code": error.number, "message": error.message, "details": error.details}
            print(json.dumps(status, indent=2, ensure_ascii=False), file=sys.stderr)
        elif verb in ("list", "describe"):
            print(f"Failed to {verb}: {error}", file=sys.stderr)
            return 1
        else:
            print(error_text(error), file=sys.stderr)
        return 64 + error.number
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
