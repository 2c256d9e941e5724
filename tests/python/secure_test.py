"""Tests TLS, tokens, roles and tenants with daemons that use the files of `tessera init`."""
import concurrent.futures
import threading

import daemons
import numpy as np
import pytest
import secure_cluster
import stopwatch
import tcp_proxy
import tessera

P = tessera.P
MESH = tessera.Mesh({"x": 4})
VALUE = np.arange(8, dtype=np.float32)


@pytest.fixture(scope="module")
def secure():
    with daemons.Cluster(secure=True) as cluster:
        yield cluster


@pytest.fixture
def admin(secure):
    with tessera.connect(secure.address, ca=secure.ca, token=secure.token, timeout=30) as client:
        yield client


def token_of(admin, name, role, tenant="default"):
    made = admin.call("AdminService/CreateToken", {"name": name, "role": role, "tenant": tenant})
    assert made["token"]["role"] == role
    return made["text"]


def test_everything_goes_over_tls(admin, monkeypatch, secure):
    array = admin.put(VALUE, MESH, P("x"))
    np.testing.assert_array_equal(admin.get(array), VALUE)
    monkeypatch.setenv("TESSERA_ADDRESS", secure.address)
    monkeypatch.setenv("TESSERA_CA_FILE", str(secure.ca))
    monkeypatch.setenv("TESSERA_TOKEN", secure.token)
    with tessera.connect() as client:
        (out,) = client.run(
            "mesh (x=4)\nfunc main(%a: f32[8] P('x')) -> (f32[]) {\n"
            "  %s = reduce_sum(%a) {dimensions=[0]}\n  return %s\n}\n", VALUE)
        assert out == 28


def test_a_client_that_does_one_thing_at_a_time_is_back_soon_after_an_outage(secure):
    """No other call of this client waits on the connection while the coordinator is away."""
    with tcp_proxy.Proxy(secure.address) as proxy, concurrent.futures.ThreadPoolExecutor(1) as pool, \
            tessera.connect(proxy.address, ca=secure.ca, token=secure.token, timeout=60) as client:
        for _ in range(3):
            client.devices()
            proxy.go_away()
            call = pool.submit(client.devices)
            threading.Event().wait(1.5)
            assert not call.done()
            proxy.come_back()
            watch = stopwatch.Stopwatch()
            assert len(call.result(60)) == 4
            assert watch.unhindered() < 5


def test_a_server_that_ends_connections_is_not_taken_for_one_without_tls(secure):
    with tcp_proxy.Proxy(secure.address) as proxy:
        proxy.go_away()
        with pytest.raises(tessera.UnavailableError) as caught:
            tessera.connect(proxy.address, ca=secure.ca, token=secure.token, timeout=2)
        assert caught.value.reason == "UNREACHABLE"


@pytest.mark.parametrize("token, reason", [(None, "TOKEN_MISSING"), ("tsr_stolen", "TOKEN_UNKNOWN")])
def test_without_a_token_that_the_server_knows(secure, token, reason):
    with pytest.raises(tessera.UnauthenticatedError) as caught:
        tessera.connect(secure.address, ca=secure.ca, token=token)
    assert caught.value.reason == reason


def test_plain_text_is_told_how_to_speak(secure):
    with pytest.raises(tessera.FailedPreconditionError, match="set TESSERA_CA_FILE") as caught:
        tessera.connect(secure.address, timeout=3)
    assert caught.value.reason == "TLS_MISMATCH"


def test_another_authority_is_named_as_the_reason(secure, tmp_path):
    secure_cluster.run_tessera("init", f"--dir={tmp_path}/other")
    with pytest.raises(tessera.FailedPreconditionError, match="does not come from") as caught:
        tessera.connect(secure.address, ca=tmp_path / "other/client/ca.pem", timeout=3)
    assert caught.value.reason == "TLS_MISMATCH"


def test_a_viewer_only_looks(secure, admin):
    token = token_of(admin, "eve", "viewer")
    array = admin.put(VALUE, MESH, P("x"))
    with tessera.connect(secure.address, ca=secure.ca, token=token, lease=None) as viewer:
        np.testing.assert_array_equal(viewer.call("ArrayService/ReadArray", {
            "array": str(array.id), "json": True})["json"], VALUE)
        with pytest.raises(tessera.PermissionDeniedError) as caught:
            viewer.put(VALUE, MESH)
        assert caught.value.reason == "ROLE_MISSING"


def test_tenants_do_not_see_one_another(secure, admin):
    array = admin.put(VALUE, MESH)
    token = token_of(admin, "ada", "user", "vision")
    with tessera.connect(secure.address, ca=secure.ca, token=token) as other:
        for act in (lambda: other.array(array.id),
                    lambda: other.call("SessionService/GetSession",
                                       {"session": str(admin.session)})):
            with pytest.raises(tessera.NotFoundError):
                act()
        other.call("ArrayService/DeleteArrays", {"arrays": [str(array.id)]})
        mine = other.put(VALUE, MESH)
        assert [o.id for o in other.operations(all_sessions=True)] == []
        # Administrators can read the arrays of every tenant.
        found = admin.call("ArrayService/GetArray", {"array": str(mine.id)})
        assert found["name"].startswith("tenants/vision/")
    np.testing.assert_array_equal(admin.get(array), VALUE)


def test_a_revoked_token_is_refused_at_once(secure, admin):
    token = token_of(admin, "bob", "user")
    with tessera.connect(secure.address, ca=secure.ca, token=token) as client:
        array = client.put(VALUE, MESH)
        admin.call("AdminService/RevokeToken", {"name": "bob"})
        with pytest.raises(tessera.UnauthenticatedError) as caught:
            client.get(array)
        assert caught.value.reason == "TOKEN_REVOKED"
