"""The wire contract that was promised, and the ways in which a change of proto/ breaks it.

tests/golden/contract.textproto is the contract as it was promised: a FileDescriptorSet of every file
below proto/, as text in a canonical order. A change may add to the contract. It may not remove or
change anything, since programs that were built or written before still speak the old form: as bytes,
as JSON, and as names in source code. The messages of tessera.jail.v1 are frozen, too, although both
of their sides are one build, so that one rule holds for every file. The rules follow AIP-180 for a
stable version and are the same as the FILE category of buf: nothing is removed, not even if its name
and number are reserved. A change that must break the contract belongs in a new package, tessera.v2.

    proto_contract.py              prints what is broken, and what is new
    proto_contract.py --append     adds what is new to the frozen contract; refuses if anything broke
    proto_contract.py --complete   fails if something is broken, or new and not yet frozen
"""

import argparse
import dataclasses
import difflib
import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2, text_format

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
FROZEN = ROOT / "tests/golden/contract.textproto"
HEADER = """# proto-file: google/protobuf/descriptor.proto
# proto-message: FileDescriptorSet
#
# The wire contract as it was promised. tests/proto_contract.py --append adds what is new, and refuses
# to write anything while a change of proto/ breaks what stands here.
"""
LINE = 140  # A message whose text is at most this long is printed on one line.

# The rules by name. The text of a rule is part of the error for a change that breaks it.
RULES = {
    "file syntax": "a file keeps its syntax, which decides how its fields are encoded",
    "file moved": "a message, an enum and a service stay in their file, since code includes it by name",
    "message removed": "a message is not removed or renamed",
    "field removed": "a field is not removed, even if its number and name are reserved",
    "field name": "a field keeps its name, which JSON and source code use",
    "field number": "a field keeps its number, which is all that the bytes say of it",
    "field type": "a field keeps its type",
    "field label": "a field stays single or repeated",
    "field presence": "a field stays `optional`, or without it: the word decides whether absence is told",
    "field oneof": "a field stays in its oneof, or outside of any",
    "field JSON name": "a field keeps its name in JSON",
    "enum removed": "an enum is not removed or renamed",
    "value removed": "a value of an enum is not removed, even if its number and name are reserved",
    "value name": "a value of an enum keeps its name, which JSON and source code use",
    "value number": "a value of an enum keeps its number",
    "service removed": "a service is not removed or renamed",
    "method removed": "a method is not removed or renamed",
    "method request": "a method keeps the type of its request",
    "method response": "a method keeps the type of its response",
    "method streams": "a method keeps what it streams: requests, responses, both or neither",
    "reserved given back": "a number or a name that is reserved stays reserved, since old bytes use it",
    "options": "options and annotations stay as they are, but for `deprecated`",
}


@dataclasses.dataclass(frozen=True)
class Violation:
    rule: str  # a key of RULES
    where: str  # the full name of the element that changed
    change: str

    def __str__(self):
        return f"{self.where}: {self.change}. The rule: {RULES[self.rule]}."


# ---- The contract as protoc describes it. ----


def describe(root=PROTO, *, comments=False):
    """Returns a FileDescriptorSet of every .proto file below `root`, with comments if `comments`."""
    files = sorted(str(p.relative_to(root)) for p in root.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "all"
        subprocess.run(
            ["protoc", "-I", str(root), *(["--include_source_info"] if comments else []),
             f"--descriptor_set_out={out}", *files],
            check=True, timeout=120)
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def _sort(descriptor):
    """Sorts the declarations in a file, a message, an enum or a service, so that the text does not
    change when declarations change places."""
    for name, key in (("dependency", str), ("message_type", _name), ("nested_type", _name),
                      ("enum_type", _name), ("service", _name), ("field", _number),
                      ("value", _number_and_name), ("method", _name)):
        if not (items := getattr(descriptor, name, None)):
            continue
        ordered = sorted(items, key=key)
        del items[:]
        items.extend(ordered)
        if name not in ("dependency", "field", "value", "method"):
            for item in items:
                _sort(item)


def _name(item):
    return item.name


def _number(item):
    return item.number


def _number_and_name(item):
    return item.number, item.name


def to_text(contract):
    """Returns the text of the frozen file. Raises ValueError if text cannot express the whole contract."""
    ordered = descriptor_pb2.FileDescriptorSet()
    for file in sorted(contract.file, key=_name):
        copy = ordered.file.add()
        copy.CopyFrom(file)
        copy.ClearField("source_code_info")
        # Public and weak imports are listed by index. They are no part of the contract.
        copy.ClearField("public_dependency")
        copy.ClearField("weak_dependency")
        _sort(copy)
    lines = []
    _print(ordered, "", lines)
    text = HEADER + "\n".join(lines) + "\n"
    if from_text(text) != ordered:
        raise ValueError("the contract has options whose extensions are unknown here; import their "
                         "Python module in tests/proto_contract.py, so that text can name them")
    return text


def from_text(text):
    return text_format.Parse(text, descriptor_pb2.FileDescriptorSet())


def _print(message, indent, lines):
    """Appends `message` to `lines` in text format, with each short message on a line of its own."""
    for field, value in message.ListFields():
        for item in value if field.label == field.LABEL_REPEATED else [value]:
            if field.message_type is None:
                lines.append(indent + text_format.MessageToString(
                    _only(message, field, item), as_one_line=True))
                continue
            inside = text_format.MessageToString(item, as_one_line=True)
            if len(inside) <= LINE:
                lines.append(f"{indent}{field.name} {{ {inside} }}")
                continue
            lines.append(f"{indent}{field.name} {{")
            _print(item, indent + "  ", lines)
            lines.append(indent + "}")


def _only(message, field, item):
    """Returns a message of the same type in which only `field` is set, to `item`."""
    only = type(message)()
    if field.label == field.LABEL_REPEATED:
        getattr(only, field.name).append(item)
    else:
        setattr(only, field.name, item)
    return only


# ---- The comparison. ----


class _Index:
    """The messages, enums and services of a contract by full name, each with the name of its file."""

    def __init__(self, contract):
        self.files = {f.name: f for f in contract.file}
        self.messages, self.enums, self.services = {}, {}, {}
        for file in contract.file:
            prefix = f"{file.package}." if file.package else ""
            self._add(file.name, prefix, file.message_type, file.enum_type)
            for service in file.service:
                self.services[prefix + service.name] = file.name, service

    def _add(self, file, prefix, messages, enums):
        for message in messages:
            self.messages[prefix + message.name] = file, message
            self._add(file, f"{prefix}{message.name}.", message.nested_type, message.enum_type)
        for enum in enums:
            self.enums[prefix + enum.name] = file, enum


def violations(frozen, now):
    """Returns each way in which the contract `now` breaks the contract `frozen`."""
    was, has = _Index(frozen), _Index(now)
    out = []
    for name, file in was.files.items():
        other = has.files.get(name)
        if other is not None:  # For a removed file, the loop below reports each declaration in it.
            if file.syntax != other.syntax:
                out.append(Violation("file syntax", name,
                                     f"its syntax was {file.syntax} and is {other.syntax}"))
            out += _options(name, file, other)
    for kind, compare in (("message", _message), ("enum", _enum), ("service", _service)):
        known = getattr(has, kind + "s")
        for name, (file, item) in getattr(was, kind + "s").items():
            if name not in known:
                out.append(Violation(f"{kind} removed", name, "it is gone"))
                continue
            new_file, new = known[name]
            if new_file != file:
                out.append(Violation("file moved", name, f"it stood in {file} and is in {new_file}"))
            out += compare(name, item, new)
    return out


def _changed(rule, where, what, was, now):
    return [] if was == now else [Violation(rule, where, f"{what} was {was} and is {now}")]


def _options(where, was, now):
    kept = []
    for options in (was.options, now.options):
        copy = type(options).FromString(options.SerializeToString())
        if copy.DESCRIPTOR.fields_by_name.get("deprecated"):
            copy.ClearField("deprecated")
        # Options that are unknown here, such as google.api.http, are compared as bytes.
        kept.append((copy.SerializeToString(deterministic=True), str(copy).strip() or "not set"))
    if kept[0][0] == kept[1][0]:
        return []
    return [Violation("options", where, f"its options were {kept[0][1]} and are {kept[1][1]}")]


def _reserved(where, was, now):
    out = []
    # The end of a reserved range is inclusive in an enum and exclusive in a message.
    behind = 0 if isinstance(was, descriptor_pb2.EnumDescriptorProto) else 1
    for r in was.reserved_range:
        if not any(n.start <= r.start and r.end <= n.end for n in now.reserved_range):
            out.append(Violation("reserved given back", where,
                                 f"{r.start} to {r.end - behind} was reserved, and is no longer"))
    for name in was.reserved_name:
        if name not in now.reserved_name:
            out.append(Violation("reserved given back", where, f"the name {name} was reserved, and is no longer"))
    return out


def _message(name, was, now):
    out = _options(name, was, now) + _reserved(name, was, now)
    by_number = {f.number: f for f in now.field}
    by_name = {f.name: f for f in now.field}
    for field in was.field:
        where = f"{name}.{field.name}"
        if field.name in by_name and by_name[field.name].number != field.number:
            out += _changed("field number", where, "its number", field.number,
                            by_name[field.name].number)
        elif field.number not in by_number:
            out.append(Violation("field removed", where, f"the field {field.number} is gone"))
        elif by_number[field.number].name != field.name:
            out.append(Violation("field name", where, f"the field {field.number} is now called "
                                 f"{by_number[field.number].name}"))
        else:
            out += _field(where, field, was, by_number[field.number], now)
    return out


def _field(where, was, was_in, now, now_in):
    out = _changed("field type", where, "its type", _type(was), _type(now))
    out += _changed("field label", where, "it", _label(was), _label(now))
    out += _changed("field presence", where, "it", _presence(was), _presence(now))
    out += _changed("field oneof", where, "its oneof", _oneof(was, was_in), _oneof(now, now_in))
    out += _changed("field JSON name", where, "its JSON name", was.json_name, now.json_name)
    return out + _options(where, was, now)


def _type(field):
    return field.type_name.lstrip(".") or field.Type.Name(field.type)[len("TYPE_"):].lower()


def _label(field):
    return "repeated" if field.label == field.LABEL_REPEATED else "single"


def _presence(field):
    return "optional" if field.proto3_optional else "not optional"


def _oneof(field, message):
    # protoc makes a oneof for each `optional` field. The rule "field presence" covers that one.
    if not field.HasField("oneof_index") or field.proto3_optional:
        return "none"
    return message.oneof_decl[field.oneof_index].name


def _enum(name, was, now):
    out = _options(name, was, now) + _reserved(name, was, now)
    numbers = {v.name: v for v in now.value}
    names = {v.number: v.name for v in now.value}
    for value in was.value:
        where = f"{name}.{value.name}"
        if value.name in numbers:
            out += _changed("value number", where, "its number", value.number,
                            numbers[value.name].number)
            out += _options(where, value, numbers[value.name])
        elif value.number in names:
            out.append(Violation("value name", where, f"the value {value.number} is now called "
                                 f"{names[value.number]}"))
        else:
            out.append(Violation("value removed", where, f"the value {value.number} is gone"))
    return out


def _service(name, was, now):
    out = _options(name, was, now)
    methods = {m.name: m for m in now.method}
    for method in was.method:
        where, new = f"{name}.{method.name}", methods.get(method.name)
        if new is None:
            out.append(Violation("method removed", where, "it is gone"))
            continue
        out += _changed("method request", where, "its request", method.input_type.lstrip("."),
                        new.input_type.lstrip("."))
        out += _changed("method response", where, "its response", method.output_type.lstrip("."),
                        new.output_type.lstrip("."))
        out += _changed("method streams", where, "what it streams", _streams(method), _streams(new))
        out += _options(where, method, new)
    return out


def _streams(method):
    streamed = [what for what, does in (("requests", method.client_streaming),
                                        ("responses", method.server_streaming)) if does]
    return " and ".join(streamed) or "nothing"


# ---- The command. ----


def append(frozen_file, now):
    """Freezes what is new and returns []. If something is broken, returns that and writes nothing."""
    frozen = from_text(frozen_file.read_text())
    if not frozen.file:
        raise ValueError(f"{frozen_file} holds no contract; take it from the history")
    broken = violations(frozen, now)
    if not broken:
        frozen_file.write_text(to_text(now))
    return broken


def additions(frozen, now):
    """Returns the lines that are in the text of `now` and not in the text of `frozen`."""
    lines = difflib.unified_diff(to_text(frozen).splitlines(), to_text(now).splitlines(), n=0,
                                 lineterm="")
    return [line[1:].strip() for line in lines if line.startswith("+") and line != "+++ "]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--append", action="store_true", help="add what is new to the frozen contract")
    parser.add_argument("--complete", action="store_true", help="fail if something is not yet frozen")
    flags = parser.parse_args()
    now = describe()
    if flags.append:
        broken = append(FROZEN, now)
        new = []
    else:
        frozen = from_text(FROZEN.read_text())
        broken = violations(frozen, now)
        new = additions(frozen, now) if not broken else []
    for violation in broken:
        print(violation)
    for line in new:
        print(f"new: {line}")
    if broken:
        print(f"{len(broken)} broken promises; nothing is written. A change that must break the contract "
              "belongs in a package of the next version.")
    elif new:
        print("to freeze what is new: tests/proto_contract.py --append")
    return 1 if broken or (flags.complete and new) else 0


if __name__ == "__main__":
    sys.exit(main())
