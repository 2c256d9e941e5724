"""Proves that proto/ keeps the frozen wire contract, and that the comparison finds each kind of break.

The comparison and --append are tested on a small contract of their own, BASE, which protoc compiles.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import proto_contract
from proto_contract import RULES, describe, from_text, to_text, violations

BASE = """syntax = "proto3";
package shop.v1;
import "google/protobuf/descriptor.proto";
extend google.protobuf.MethodOptions { string http = 50001; }
extend google.protobuf.MessageOptions { string resource = 50002; }
enum Colour {
  reserved 7, 9 to 12;
  reserved "COLOUR_MAUVE";
  COLOUR_UNSPECIFIED = 0;
  COLOUR_RED = 1;
  COLOUR_BLUE = 2;
}
message Price { int64 cents = 1; }
message Order {
  option (resource) = "shop/orders";
  reserved 20 to 29, 31;
  reserved "colour_code";
  string name = 1;
  int64 count = 2;
  repeated int64 sizes = 3;
  optional string note = 4;
  map<string, Price> prices = 5;
  Colour colour = 6;
  oneof payment { string card = 7; string cash = 8; }
  string remark = 9;
  message Line { string text = 1; enum Kind { KIND_UNSPECIFIED = 0; KIND_ITEM = 1; } Kind kind = 2; }
}
message OtherOrder { string name = 1; }
message Unused { string name = 1; }
enum Idle { IDLE_UNSPECIFIED = 0; }
service Shop {
  rpc Buy(Order) returns (Price) { option (http) = "/v1/buy"; }
  rpc Sell(Order) returns (stream Price);
  rpc Give(Order) returns (Price);
}
service Closed {}
"""

# The rule that is broken, the text of BASE that changes, and its replacement. If the text occurs in
# BASE more than once, the first occurrence changes.
BREAKS = (
    ("message removed", "message Unused { string name = 1; }", ""),
    ("message removed", "message Unused", "message Used"),
    ("field removed", "string remark = 9;", ""),
    ("field removed", "string remark = 9;", 'reserved 9; reserved "remark";'),
    ("field name", "string name = 1;\n", "string title = 1;\n"),
    ("field name", "string text = 1;", "string words = 1;"),
    ("field number", "string name = 1;\n", "string name = 15;\n"),
    ("field type", "int64 count = 2;", "int32 count = 2;"),
    ("field type", "Colour colour = 6;", "Price colour = 6;"),
    ("field type", "map<string, Price>", "map<string, OtherOrder>"),
    ("field type", "map<string, Price>", "map<int32, Price>"),
    ("field label", "string remark = 9;", "repeated string remark = 9;"),
    ("field presence", "optional string note", "string note"),
    ("field presence", "string remark", "optional string remark"),
    ("field oneof", "string cash = 8; }\n  string remark = 9;",
     "string cash = 8; string remark = 9; }"),
    ("field oneof", "{ string card = 7; string cash = 8; }", "{ string card = 7; } string cash = 8;"),
    ("field JSON name", "string remark = 9;", 'string remark = 9 [json_name = "note2"];'),
    ("options", "sizes = 3;", "sizes = 3 [packed = false];"),
    ("options", '"/v1/buy"', '"/v1/purchase"'),
    ("options", '{ option (http) = "/v1/buy"; }', ";"),
    ("options", '"shop/orders"', '"shop/order"'),
    ("options", "package shop.v1;", 'package shop.v1; option java_package = "x";'),
    ("enum removed", "enum Idle { IDLE_UNSPECIFIED = 0; }", ""),
    ("value removed", "  COLOUR_BLUE = 2;\n", ""),
    ("value removed", "  COLOUR_BLUE = 2;\n", '  reserved 2; reserved "COLOUR_BLUE";\n'),
    ("value name", "COLOUR_BLUE = 2", "COLOUR_GREEN = 2"),
    ("value name", "KIND_ITEM = 1", "KIND_THING = 1"),
    ("value number", "COLOUR_BLUE = 2", "COLOUR_BLUE = 3"),
    ("service removed", "service Closed {}", ""),
    ("method removed", "  rpc Give(Order) returns (Price);\n", ""),
    ("method removed", "rpc Give", "rpc Donate"),
    ("method request", "Give(Order)", "Give(OtherOrder)"),
    ("method response", "Give(Order) returns (Price)", "Give(Order) returns (OtherOrder)"),
    ("method streams", "Give(Order)", "Give(stream Order)"),
    ("method streams", "Sell(Order) returns (stream Price)", "Sell(Order) returns (Price)"),
    ("reserved given back", "reserved 20 to 29, 31;", "reserved 20 to 28, 31;"),
    ("reserved given back", 'reserved "colour_code";', ""),
    ("reserved given back", "reserved 7, 9 to 12;", "reserved 9 to 12;"),
    ("reserved given back", 'reserved "COLOUR_MAUVE";', ""),
)

ADDITIONS = (
    ("a message", "service Closed {}", "service Closed {} message New { string name = 1; }"),
    ("a field", "string remark = 9;", "string remark = 9; string more = 10;"),
    ("a field of a oneof", "string cash = 8; }", "string cash = 8; string cheque = 11; }"),
    ("a oneof", "string remark = 9;", "string remark = 9; oneof way { string by_post = 12; }"),
    ("an enum", "service Closed {}", "service Closed {} enum New { NEW_UNSPECIFIED = 0; }"),
    ("a value", "COLOUR_BLUE = 2;", "COLOUR_BLUE = 2; COLOUR_GREEN = 3;"),
    ("a method", "rpc Buy(", "rpc Lend(Order) returns (Price); rpc Buy("),
    ("a service", "service Closed {}", "service Closed {} service Open {}"),
    ("a reserved number", "reserved 20 to 29, 31;", "reserved 20 to 30, 31;"),
    ("deprecation", "string remark = 9;", "string remark = 9 [deprecated = true];"),
    ("deprecation of a method", '{ option (http) = "/v1/buy"; }',
     '{ option (http) = "/v1/buy"; option deprecated = true; }'),
    ("a comment", "message Price", "// In euros.\nmessage Price"),
    ("another order", "  string name = 1;\n  int64 count = 2;\n",
     "  int64 count = 2;\n  string name = 1;\n"),
)


def compiled(**files):
    """Compiles files, given as name=text without ".proto", and returns their descriptors."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / f"{name}.proto").write_text(text)
        return describe(root)


def changed(old, new):
    assert old in BASE, old
    return BASE.replace(old, new, 1)


class Contract(unittest.TestCase):
    def test_nothing_that_was_promised_is_broken(self):
        broken = violations(from_text(proto_contract.FROZEN.read_text()), describe())
        self.assertEqual([str(v) for v in broken], [], "see the head of tests/proto_contract.py")

    def test_the_frozen_text_is_in_its_own_order(self):
        """Otherwise the next --append would also change lines that are not new."""
        text = proto_contract.FROZEN.read_text()
        self.assertEqual(to_text(from_text(text)), text)

    def test_the_frozen_contract_has_every_service_that_clients_call(self):
        services = {s.name for f in from_text(proto_contract.FROZEN.read_text()).file
                    for s in f.service if f.package == "tessera.v1"}
        self.assertLessEqual({"SessionService", "ArrayService", "ProgramService", "OperationService",
                              "ClusterService", "DataService", "AdminService", "WorkerService"},
                             services)


class Comparison(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = compiled(shop=BASE)

    def test_each_break_is_refused_with_its_rule(self):
        for rule, old, new in BREAKS:
            with self.subTest(rule=rule, old=old, new=new):
                broken = violations(self.base, compiled(shop=changed(old, new)))
                self.assertEqual({v.rule for v in broken}, {rule}, "\n".join(map(str, broken)))
                for violation in broken:
                    self.assertIn(RULES[rule], str(violation))
                    self.assertIn("shop", violation.where)

    def test_every_rule_has_a_break(self):
        of_files = {"file syntax", "file moved"}  # Each of the two rules has its own test below.
        self.assertEqual({rule for rule, _, _ in BREAKS} | of_files, set(RULES))

    def test_another_syntax_is_refused(self):
        now = compiled(shop=BASE)
        now.file[0].syntax = "proto2"  # Compiling BASE as proto2 would change more than the syntax.
        self.assertEqual([(v.rule, v.where) for v in violations(self.base, now)],
                         [("file syntax", "shop.proto")])

    def test_what_moves_to_another_file_is_refused(self):
        price = "message Price { int64 cents = 1; }"
        now = compiled(
            shop=BASE.replace(price, "", 1).replace("import", 'import "price.proto";\nimport', 1),
            price=f'syntax = "proto3";\npackage shop.v1;\n{price}\n')
        broken = violations(self.base, now)
        self.assertEqual([(v.rule, v.where) for v in broken], [("file moved", "shop.v1.Price")])

    def test_additions_pass(self):
        self.assertEqual(violations(self.base, self.base), [])
        for what, old, new in ADDITIONS:
            with self.subTest(what):
                broken = violations(self.base, compiled(shop=changed(old, new)))
                self.assertEqual([str(v) for v in broken], [])

    def test_a_break_says_what_it_was_and_what_it_is(self):
        (broken,) = violations(self.base, compiled(shop=changed("int64 count", "bytes count")))
        self.assertEqual(str(broken), "shop.v1.Order.count: its type was int64 and is bytes. "
                         "The rule: a field keeps its type.")


# BASE without its custom options, which the text format cannot name.
PLAIN = "\n".join(line for line in BASE.splitlines() if "option (" not in line) + "\n"


class Append(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.frozen = pathlib.Path(folder.name) / "frozen.textproto"
        self.frozen.write_text(to_text(compiled(shop=PLAIN)))

    def test_what_is_new_is_added_and_the_rest_stays(self):
        before = self.frozen.read_text().splitlines()
        now = compiled(shop=PLAIN.replace("string remark = 9;", "string more = 10; string remark = 9;"))
        self.assertEqual(proto_contract.append(self.frozen, now), [])
        after = self.frozen.read_text().splitlines()
        new = [line for line in after if line not in before]
        self.assertEqual(len(new), 1, new)
        self.assertIn('name: "more"', new[0])
        self.assertEqual(proto_contract.additions(compiled(shop=PLAIN), now), [new[0].strip()])
        self.assertEqual([line for line in after if line not in new], before)
        # The new field is now part of the contract.
        (broken,) = violations(from_text(self.frozen.read_text()), compiled(shop=PLAIN))
        self.assertEqual(broken.rule, "field removed")

    def test_nothing_is_written_while_something_is_broken(self):
        before = self.frozen.read_text()
        now = compiled(shop=PLAIN.replace("string remark = 9;", "string more = 10;"))
        self.assertEqual([v.rule for v in proto_contract.append(self.frozen, now)],
                         ["field removed"])
        self.assertEqual(self.frozen.read_text(), before)

    def test_an_emptied_contract_is_not_filled_anew(self):
        self.frozen.write_text("# nothing\n")
        with self.assertRaisesRegex(ValueError, "holds no contract"):
            proto_contract.append(self.frozen, compiled(shop=PLAIN))

    def test_options_that_text_cannot_name_are_not_lost(self):
        with self.assertRaisesRegex(ValueError, "import their Python module"):
            to_text(compiled(shop=BASE))

    def test_the_command_knows_no_rewrite(self):
        done = subprocess.run([sys.executable, proto_contract.__file__, "--rewrite"],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    unittest.main()
