"""Tests the search for commands in Markdown, and the comparison of output with what the page
shows."""
import commands
import pytest

PAGE = """# Page

```sh
cd somewhere
grpcurl -plaintext localhost:8470 list
id=$(grpcurl -plaintext localhost:8470 a.B/C | jq -r .id)
grpcurl -plaintext -d @ localhost:8470 \\
    a.B/D <<'EOF'
{"x":
 1}
EOF
echo grpcurl is not the first word
both=$(grpcurl -plaintext -d @ localhost:8470 a.B/G <<'EOF' | jq .x
{}
EOF
)
grpcurl -plaintext localhost:8470 a.B/H
```

```json
{"x": "..."}
```

Words.

```sh
grpcurl -plaintext localhost:8470 a.B/E
```

Words between: no output of it.

```json
{}
```

    grpcurl indented is prose

1. In a list:
   ```sh
   grpcurl -plaintext localhost:8470 a.B/F
   ```
   ```text
   ERROR: ...
   ```
"""


def test_commands_are_found_with_what_they_print():
    found = commands.commands_of(PAGE)
    assert [c.line for c in found] == [5, 6, 7, 13, 17, 27, 40]
    assert [c.variable for c in found] == ["", "id", "", "both", "", "", ""]
    assert found[2].text.endswith("a.B/D <<'EOF'\n{\"x\":\n 1}\nEOF")
    assert [c.expected for c in found] == [
        None, None, None, None, '{"x": "..."}', None, "ERROR: ..."]
    assert found[3].text.endswith("| jq .x\n{}\nEOF\n)")
    assert found[6].text == "grpcurl -plaintext localhost:8470 a.B/F"
    assert found[6].kind == "text"


@pytest.mark.parametrize("block", ["```sh\ngrpcurl x list\n", "```sh\ngrpcurl <<E\n{}\n```\n"])
def test_what_does_not_end_is_an_error(block):
    with pytest.raises(AssertionError, match="does not end"):
        commands.commands_of(block)


SHOWN = {"a": [1, {"b": "..."}, "..."], "c": "x...z"}


@pytest.mark.parametrize("actual", [
    {"a": [1, {"b": 2}], "c": "xyz"},
    {"a": [1, {"b": {"d": []}}, 5, 6], "c": "xz"},
])
def test_ellipses_stand_for_anything(actual):
    assert commands.mismatch(SHOWN, actual) == ""


@pytest.mark.parametrize("actual, where", [
    ({"a": [1], "c": "xz"}, "$.a"),
    ({"a": [2, {"b": 2}], "c": "xz"}, "$.a[0]"),
    ({"a": [True, {"b": 2}], "c": "xz"}, "$.a[0]"),
    ({"a": [1, {}], "c": "xz"}, "$.a[1]"),
    ({"a": [1, {"b": 2}], "c": "xy"}, "$.c"),
    ({"a": [1, {"b": 2}], "c": "xz", "d": 1}, "$ has 'd'"),
    ({"a": [1, {"b": 2}]}, "$ has no 'c'"),
    ([], "$"),
])
def test_what_differs_is_named(actual, where):
    assert commands.mismatch(SHOWN, actual).startswith(where)


def test_other_fields_may_be_left_out():
    assert commands.mismatch({"a": 1, "...": "..."}, {"a": 1, "b": 2}) == ""
    assert commands.mismatch({"a": 1, "...": "..."}, {"b": 2})


def test_texts_compare_by_lines():
    assert commands.text_mismatch("ERROR:\n  Code: ...\nx", "ERROR:\nCode: NotFound\n  x\n") == ""
    assert commands.text_mismatch("a\nb", "a\nc")
