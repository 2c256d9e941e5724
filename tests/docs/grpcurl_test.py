"""Tests the stand-in for grpcurl against real daemons: its flags, output and exit codes."""
import io
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "service"))

import daemons  # noqa: E402
import grpcurl  # noqa: E402

RUN = "tessera.v1.ProgramService/RunProgram"
HALVES = {"text": "func main(%a: f32[2]) -> (f32[2]) {\n  %b = add(%a, %a)\n  return %b\n}",
          "inputs": [[0.5, 0.25]]}


@pytest.fixture(scope="module")
def address():
    with daemons.Cluster(workers=1) as cluster:
        yield cluster.address


@pytest.fixture
def run(capsys):
    """Runs a command line. Returns its exit code, output and errors."""
    def call(*args):
        code = grpcurl.main([str(a) for a in args])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_flags_are_read_as_go_reads_them():
    flags, words = grpcurl.parse(["-plaintext", "--H", "a: b", "-H=c:d", "-d", "{}", "-max-time=5",
                                  "host:1", "-not-a-flag"])
    assert flags["plaintext"] is True and flags["H"] == ["a: b", "c:d"]
    assert flags["d"] == "{}" and flags["max-time"] == "5"
    assert words == ["host:1", "-not-a-flag"]
    assert grpcurl.headers(flags, "H") == [("a", "b"), ("c", "d")]
    assert grpcurl.parse(["-plaintext=false", "--", "-x"])[1] == ["-x"]


def test_headers_take_variables_when_asked(monkeypatch):
    monkeypatch.setenv("SECRET", "s3")
    flags, _ = grpcurl.parse(["-expand-headers", "-H", "authorization: Bearer ${SECRET}"])
    assert grpcurl.headers(flags, "H") == [("authorization", "Bearer s3")]


@pytest.mark.parametrize("args", [
    [], ["-plaintext"], ["-plaintext", "host:1"], ["-nonsense", "host:1", "list"], ["-d"],
    ["-plaintext=maybe", "host:1", "list"], ["host:1", "list", "a", "b"],
    ["-plaintext", "-cacert", "x", "host:1", "list"], ["-format", "text", "host:1", "list"]])
def test_a_wrong_command_line_exits_2(run, args):
    code, out, err = run(*args)
    assert (code, out) == (2, "") and err


def test_nobody_there_exits_1(run):
    code, _, err = run("-plaintext", "-connect-timeout", "0.2", "127.0.0.1:1", "list")
    assert code == 1 and err.startswith('Failed to dial target host "127.0.0.1:1"')


def test_list_and_describe(run, address):
    code, out, _ = run("-plaintext", address, "list")
    assert code == 0 and "tessera.v1.ArrayService" in out.split()
    assert out.split() == sorted(out.split())
    code, out, _ = run("-plaintext", address, "list", "tessera.v1.SessionService")
    assert out.split()[0] == "tessera.v1.SessionService.CreateSession"
    code, out, _ = run("-plaintext", address, "describe", "tessera.v1.UploadedProgram")
    assert "tessera.v1.UploadedProgram is a message:" in out
    assert "  map<string, int64> ops = 7;" in out and "  repeated string params = 5;" in out
    code, out, _ = run("-plaintext", address, "describe", "tessera.v1.ProgramService.ExecuteAndWatch")
    assert "returns ( stream .tessera.v1.ExecuteProgramEvent );" in out
    code, out, _ = run("-plaintext", address, "describe", "tessera.v1.Device.worker")
    assert out == "tessera.v1.Device.worker is a field:\nstring worker = 3;\n"
    for verb in ("list", "describe"):
        assert run("-plaintext", address, verb, "tessera.v1.Nonsense")[0] == 1


@pytest.mark.parametrize("symbol", [RUN, RUN.replace("/", ".")])
def test_requests_come_from_the_flag_or_standard_input(run, address, monkeypatch, symbol):
    expected = {"outputs": [[1, 0.5]], "types": ["f32[2]"]}
    code, out, _ = run("-plaintext", "-d", json.dumps(HALVES), address, symbol)
    # Like Go, it writes a number without a fraction without a point.
    assert code == 0 and json.loads(out) == expected and "1.0" not in out
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(HALVES, indent=1)))
    code, out, _ = run("-plaintext", "-d", "@", address, symbol)
    assert code == 0 and json.loads(out) == expected


def test_integers_of_64_bits_are_texts(run, address):
    code, out, _ = run("-plaintext", address, "tessera.v1.ClusterService/ListDevices")
    devices = json.loads(out)["devices"]
    assert "id" not in devices[0] and devices[1]["id"] == "1"
    _, out, _ = run("-plaintext", "-emit-defaults", address, "tessera.v1.ClusterService/ListDevices")
    assert json.loads(out)["devices"][0]["id"] == "0"


def test_a_call_that_fails_exits_with_its_code(run, address):
    get = ("-plaintext", "-d", '{"array": 987654}', address, "tessera.v1.ArrayService/GetArray")
    code, out, err = run(*get)
    assert (code, out) == (64 + 5, "")
    assert err.startswith("ERROR:\n  Code: NotFound\n  Message: ") and "987654" in err
    assert '"reason": "ARRAY_NOT_FOUND"' in err
    code, _, err = run("-format-error", *get)
    assert code == 69 and json.loads(err)["details"][0]["domain"] == "tessera.dev"


@pytest.mark.parametrize("data", ["{", '{"arrax": 1}', '{"array": "x"}', '{"array": 1} {"array": 2}'])
def test_a_request_that_is_none_exits_1(run, address, data):
    code, _, err = run("-plaintext", "-d", data, address, "tessera.v1.ArrayService/GetArray")
    assert code == 1 and err.startswith("Error invoking method")


def test_an_unknown_method_exits_1(run, address):
    for symbol in ("tessera.v1.ArrayService/Nonsense", "nobody.Service/Call", "word"):
        code, _, err = run("-plaintext", address, symbol)
        assert code == 1 and "does not expose service" in err


def test_time_is_bounded(run, address):
    request = {"spec": {"dtype": "f32", "shape": [1], "placement": {"devices": [0]}}}
    _, out, _ = run("-plaintext", "-d", json.dumps(request), address,
                    "tessera.v1.ArrayService/CreateArray")
    read = json.dumps({"array": json.loads(out)["array"]})
    code, _, err = run("-plaintext", "-max-time", "0.3", "-d", read, address,
                       "tessera.v1.ArrayService/ReadArray")
    assert code == 64 + 4 and "DeadlineExceeded" in err


def test_streams_are_printed_one_behind_the_other(run, address):
    compiled = {"text": HALVES["text"], "name": "halves"}
    _, out, _ = run("-plaintext", "-d", json.dumps(compiled), address,
                    "tessera.v1.ProgramService/CompileProgram")
    program = json.loads(out)
    write = {"spec": program["in"][0], "json": [1, 2]}
    _, out, _ = run("-plaintext", "-d", json.dumps(write), address,
                    "tessera.v1.ArrayService/WriteArray")
    execute = {"executable": program["executable"], "args": [json.loads(out)["array"]]}
    code, out, _ = run("-plaintext", "-d", json.dumps(execute), address,
                       "tessera.v1.ProgramService/ExecuteAndWatch")
    events = grpcurl.requests_of(out)
    assert code == 0 and [list(e) for e in events] == [["accepted"], ["ended"]]
