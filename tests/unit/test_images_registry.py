"""Reading an image registry, against a server on this machine that misbehaves in many ways."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator

import pytest

from suite.containers.images import image_registry as registry_module
from suite.containers.images.image_registry import (
    ImageRegistry,
    ImageRegistryProblem,
    ImageRegistryUnreachable,
)
from tests.unit.fake_registry import (
    DOCKER_IMAGE,
    OCI_IMAGE,
    OCI_INDEX,
    TOKEN,
    Image,
    digest_of,
    make_image,
    make_index,
    serving,
)
from tests.unit.fake_registry import Registry as Fake

TAG = "26.08-py3"


@pytest.fixture
def image() -> Image:
    return make_image()


@pytest.fixture
def fake(image: Image) -> Iterator[Fake]:
    with serving(Fake()) as held:
        held.put(TAG, image)
        yield held


def reader(fake: Fake) -> ImageRegistry:
    return ImageRegistry(f"{fake.host}/nvidia/pytorch", timeout_s=5)


def test_digest_and_type_are_computed_from_the_bytes(fake: Fake, image: Image) -> None:
    top = reader(fake).manifest(TAG)
    assert (top.is_index, top.digest) == (True, digest_of(make_index(image)))
    child = reader(fake).manifest(digest_of(image.manifest))
    assert (child.is_index, child.digest) == (False, digest_of(image.manifest))
    assert reader(fake).config(digest_of(image.config))["architecture"] == "amd64"


def test_docker_manifest_is_read_like_an_oci_manifest(fake: Fake) -> None:
    docker = make_image(media_type=DOCKER_IMAGE)
    fake.put("old", docker, index=False)
    assert not reader(fake).manifest("old").is_index


def test_anonymous_token_is_requested_for_pull_only(fake: Fake) -> None:
    fake.authentication = True
    reader(fake).manifest(TAG)
    assert fake.scopes == ["repository:nvidia/pytorch:pull"], (
        "no more than pull, whatever the challenge names"
    )
    assert fake.asked[-1][1] == f"Bearer {TOKEN}"


def test_token_is_not_sent_to_redirect_targets(fake: Fake, image: Image) -> None:
    fake.authentication = True
    with serving(Fake(blobs=dict(fake.blobs))) as elsewhere:
        fake.blobs_elsewhere = f"http://{elsewhere.host}"
        client = reader(fake)
        client.manifest(TAG)
        assert client.config(digest_of(image.config))
        assert elsewhere.asked == [(f"/elsewhere/{digest_of(image.config)}", None)]


@pytest.mark.parametrize("location", ["header", "body", "config"])
def test_altered_content_is_refused(fake: Fake, image: Image, location: str) -> None:
    config, digest = digest_of(image.config), digest_of(image.manifest)
    if location == "header":
        fake.stated[TAG] = "sha256:" + "0" * 64
    elif location == "body":
        fake.manifests[digest] = image.manifest + b" "
    else:
        fake.blobs[config] = image.config + b" "
    client = reader(fake)
    read: dict[str, Callable[[], object]] = {
        "header": lambda: client.manifest(TAG),
        "body": lambda: client.manifest(digest),
        "config": lambda: client.config(config),
    }
    with pytest.raises(
        ImageRegistryProblem, match=r"expected content with digest .*alters content"
    ) as caught:
        read[location]()
    assert not isinstance(caught.value, ImageRegistryUnreachable)
    assert fake.host in str(caught.value)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"[1]", OCI_IMAGE, "expected a JSON object, found list"),
        (b"<html>", OCI_IMAGE, "expected a JSON object"),
        (b"[" * 100_000, OCI_IMAGE, "expected a JSON object"),
        (b'{"manifests": [], "layers": [], "config": {}}', OCI_INDEX, "expected the fields of"),
        (b'{"layers": []}', OCI_IMAGE, "expected the fields of"),
        (b'{"manifests": []}', OCI_IMAGE, "expected the fields of"),
        (json.dumps({"mediaType": OCI_INDEX, "manifests": []}).encode(), OCI_IMAGE, "schema 2"),
        (
            b'{"schemaVersion": 1, "fsLayers": []}',
            "application/vnd.docker.distribution.manifest.v1+prettyjws",
            "take a newer tag",
        ),
    ],
)
def test_invalid_manifest_is_refused(fake: Fake, body: bytes, kind: str, message: str) -> None:
    fake.manifests[TAG], fake.types[TAG] = body, kind
    with pytest.raises(ImageRegistryProblem, match=message):
        reader(fake).manifest(TAG)


def test_answer_above_the_size_limit_is_refused(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_MANIFEST_CAP", 100)
    with pytest.raises(ImageRegistryProblem, match="expected at most 100 bytes, found more"):
        reader(fake).manifest(TAG)


def test_broken_connection_is_reported_as_unreachable(fake: Fake) -> None:
    fake.cut = 20
    with pytest.raises(ImageRegistryUnreachable, match=r"IncompleteRead\(20 bytes read"):
        reader(fake).manifest(TAG)


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (404, ImageRegistryProblem, "Check repository and tag"),
        (403, ImageRegistryProblem, "needs a login"),
        (429, ImageRegistryUnreachable, "Try again later"),
        (503, ImageRegistryUnreachable, "Try again later"),
        (418, ImageRegistryProblem, "status 418"),
    ],
)
def test_each_http_status_has_its_fix(fake: Fake, status: int, kind: type[Exception], message: str) -> None:
    fake.status = status
    with pytest.raises(ImageRegistryProblem, match=message) as caught:
        reader(fake).manifest(TAG)
    assert type(caught.value) is kind


def test_closed_port_is_reported_as_unreachable() -> None:
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))  # bound, never listening
        with pytest.raises(ImageRegistryUnreachable, match="Check the network, HTTPS_PROXY"):
            ImageRegistry(f"127.0.0.1:{bound_socket.getsockname()[1]}/a/b").manifest("c")


@pytest.mark.parametrize(
    "challenge",
    [
        'Basic realm="fake"',
        'Bearer realm="http://203.0.113.7/token"',  # the token would travel in the clear
        'Bearer realm="file:///etc/passwd"',
        'Bearer realm="https://["',
        "Bearer",
        "",
    ],
)
def test_challenge_to_an_unsafe_address_is_refused(fake: Fake, challenge: str) -> None:
    fake.authentication, fake.challenge = True, challenge or " "
    with pytest.raises(ImageRegistryProblem, match="that anybody may read"):
        reader(fake).manifest(TAG)
    assert len(fake.asked) == 1


@pytest.mark.parametrize("token", ["", "two parts", "line\nbreak", "another"])
def test_token_that_is_refused_is_reported(fake: Fake, token: str) -> None:
    fake.authentication, fake.token = True, token
    with pytest.raises(ImageRegistryProblem, match="that anybody may read"):
        reader(fake).manifest(TAG)
    assert len(fake.asked) <= 3, "a second refusal is final"


@pytest.mark.parametrize("target", ["http://203.0.113.7", "ftp://127.0.0.1", "file:///etc"])
def test_redirect_to_plain_http_is_refused(fake: Fake, image: Image, target: str) -> None:
    fake.blobs_elsewhere = target
    with pytest.raises(ImageRegistryProblem, match=r"redirect|307"):
        reader(fake).config(digest_of(image.config))


def test_only_loopback_is_read_without_tls() -> None:
    assert ImageRegistry("nvcr.io/nvidia/pytorch")._root == "https://nvcr.io/v2/nvidia/pytorch"
    assert ImageRegistry("localhost.example.org:5000/a")._root.startswith("https://")
    assert ImageRegistry("[::1]:5000/a")._root.startswith("http://")
    assert ImageRegistry("docker.io/library/debian")._root == "https://registry-1.docker.io/v2/library/debian"


def test_image_registry_on_loopback_is_read_without_proxy(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert reader(fake).manifest(TAG).is_index


def test_remote_image_registry_is_read_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        proxy.settimeout(5)
        client = ImageRegistry("registry.invalid/a/b", timeout_s=0.5)
        with pytest.raises(ImageRegistryUnreachable):
            client.manifest("c")
        connection, _ = proxy.accept()
        with connection:
            assert connection.recv(200).startswith(b"CONNECT registry.invalid:443")


def test_missing_certificate_bundle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    with pytest.raises(ImageRegistryProblem, match="REQUESTS_CA_BUNDLE: expected certificates"):
        ImageRegistry("nvcr.io/nvidia/pytorch")
