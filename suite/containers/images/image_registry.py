"""Read manifests and image configurations of an image registry by HTTP; every digest is computed here.

Source: the OCI distribution specification 1.1 (pull), and Docker's registry token authentication. This module
hashes every body and compares the digests that the image registry states. Reading is anonymous: no credential
is used or kept, and the token goes to the image registry alone, never to the target of a redirect.

Proxies come from the usual variables (``HTTPS_PROXY``, ``NO_PROXY``), certificates from ``SSL_CERT_FILE``,
``REQUESTS_CA_BUNDLE`` or the system. Plain http is allowed for image registries on this machine only.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.utils import get_environ_proxies

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
IMAGE_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_MANIFEST_CAP = 4 << 20  # the specification's limit
_CONFIG_CAP = 8 << 20
_TOKEN_CAP = 1 << 20
_TIMEOUT_S = 30.0  # of one read
_DEADLINE_S = 120.0  # of one answer, however slowly its bytes arrive
_BLOCK = 1 << 16
_REDIRECTS = 5
_AGENT = "deep-learning-benchmark-suite"


class ImageRegistryProblem(Exception):
    """An image registry's answer that cannot be used: where, what was expected, what was found, the fix."""

    def __init__(self, where: str, expected: str, found: str, fix: str) -> None:
        super().__init__(f"{where}: expected {expected}, found {found}. {fix}")
        self.where, self.expected, self.found, self.fix = where, expected, found, fix


class ImageRegistryUnreachable(ImageRegistryProblem):
    """The image registry did not answer, or broke off: nothing is known about the image."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """An index or an image manifest whose digest was computed from the bytes received."""

    digest: str
    is_index: bool
    body: Mapping[str, Any]


class ImageRegistry:
    """One repository ("host/path") of an image registry, read anonymously."""

    def __init__(self, repository: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        host, _, self.path = repository.partition("/")
        self.repository = repository
        self._local = _is_loopback(host)
        host = {"docker.io": "registry-1.docker.io"}.get(host, host)
        self._root = f"{'http' if self._local else 'https'}://{host}/v2/{self.path}"
        self._timeout_s = timeout_s
        self._token: str | None = None
        self._session = requests.Session()
        self._session.trust_env = False  # no password of .netrc
        self._session.verify = _certificates()

    def manifest(self, reference: str) -> Manifest:
        """The manifest of a tag or digest. Raises ImageRegistryProblem, ImageRegistryUnreachable."""
        where = self._location(reference)
        accept = ", ".join((*INDEX_TYPES, *IMAGE_TYPES))
        data, headers = self._get(f"{self._root}/manifests/{reference}", where, _MANIFEST_CAP, accept)
        found = _digest(data)
        stated = headers.get("Docker-Content-Digest") or found
        wanted = reference if reference.startswith("sha256:") else stated
        for digest in (wanted, stated):
            if digest != found:
                raise _altered(where, digest, found)
        body = _object(data, where)
        content_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return Manifest(found, _is_index(body, content_type, where), body)

    def config(self, digest: str) -> Mapping[str, Any]:
        """The image configuration of that digest. Raises ImageRegistryProblem, ImageRegistryUnreachable."""
        where = self._location(digest)
        data, _ = self._get(f"{self._root}/blobs/{digest}", where, _CONFIG_CAP, "*/*")
        if _digest(data) != digest:
            raise _altered(where, digest, _digest(data))
        return _object(data, where)

    def _location(self, reference: str) -> str:
        return f"{self.repository}{'@' if reference.startswith('sha256:') else ':'}{reference}"

    # HTTP

    def _get(self, url: str, where: str, cap: int, accept: str) -> tuple[bytes, Mapping[str, str]]:
        try:
            return self._read(url, where, cap, accept)
        except _Unauthorised as error:
            challenge = error.challenge
        # One token is valid for all requests of an entry; a second refusal is final.
        self._token = self._authorise(challenge, where)
        try:
            return self._read(url, where, cap, accept)
        except _Unauthorised:
            raise _refused(where, "401 with a token for anonymous reading") from None

    def _read(
        self, url: str, where: str, cap: int, accept: str, query: Mapping[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        try:
            with self._open(url, accept, query) as response:
                if response.status_code != 200:
                    raise _of_status(response, where)
                return _body(response, where, cap), response.headers
        except (OSError, ValueError) as error:  # all of requests' errors are OSErrors
            raise _unreachable(where, error) from error

    def _open(self, url: str, accept: str, query: Mapping[str, str] | None) -> requests.Response:
        """The answer after at most five redirects: none to plain http, and none with the token."""
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": _AGENT}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        for _ in range(_REDIRECTS + 1):
            response = self._session.get(
                url,
                params=query,
                headers=headers,
                timeout=self._timeout_s,
                # As the container engines do: no proxy for an image registry on this machine.
                proxies={} if self._local else get_environ_proxies(url),
                allow_redirects=False,
                stream=True,
            )
            if not response.is_redirect:
                return response
            response.close()
            url, query = urljoin(url, response.headers["Location"]), None
            headers.pop("Authorization", None)
            if not _may_open(url, self._local):
                raise ValueError(f"a redirect to {url[:200]!a}, which is not https")
        raise ValueError(f"more than {_REDIRECTS} redirects")

    def _authorise(self, challenge: str, where: str) -> str:
        """An anonymous token to read this repository, from the token server that ``challenge`` names."""
        scheme, _, rest = challenge.partition(" ")
        fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = fields.get("realm", "")
        if scheme.lower() != "bearer" or not _may_open(realm, self._local):
            raise _refused(where, f"the challenge {challenge[:200]!a}")
        query = {"service": fields.get("service", ""), "scope": f"repository:{self.path}:pull"}
        self._token = None
        try:
            data, _ = self._read(realm, f"{where}, token", _TOKEN_CAP, "application/json", query)
        except _Unauthorised:
            raise _refused(where, "401 from the token server") from None
        answer = _object(data, f"{where}, token")
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise _refused(where, "an answer of the token server without a token")
        return token


class _Unauthorised(Exception):
    def __init__(self, challenge: str) -> None:
        super().__init__(challenge)
        self.challenge = challenge


def _is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _may_open(url: str, local: bool) -> bool:
    """Allow https anywhere; http only on this machine, and only for an image registry on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    plain = local and parts.scheme == "http" and _is_loopback(parts.netloc)
    return bool(host) and (parts.scheme == "https" or plain)


def _certificates() -> str | bool:
    """The file or folder of trusted certificates; True for the certificates of requests."""
    bundle = os.environ.get("REQUESTS_CA_BUNDLE")
    if bundle and not os.environ.get("SSL_CERT_FILE"):
        if not Path(bundle).exists():
            fix = "Point it at a PEM file of certificates, or unset it."
            raise ImageRegistryProblem("REQUESTS_CA_BUNDLE", "certificates", f"nothing at {bundle}", fix)
        return bundle
    system = ssl.get_default_verify_paths()  # SSL_CERT_FILE and SSL_CERT_DIR count here
    return system.cafile or system.capath or True


def _body(response: requests.Response, where: str, cap: int) -> bytes:
    deadline = time.monotonic() + _DEADLINE_S
    data = bytearray()
    for block in response.iter_content(min(_BLOCK, cap + 1)):
        data += block
        if len(data) > cap:
            fix = "This is no image metadata; check what the image registry serves."
            raise ImageRegistryProblem(where, f"at most {cap} bytes", "more", fix)
        if time.monotonic() > deadline:
            raise TimeoutError(f"no end of the answer after {_DEADLINE_S:.0f} s")
    return bytes(data)


# Checks of an answer


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _object(data: bytes, where: str) -> dict[str, Any]:
    fix = "The image registry, or a proxy on the way, serves something else."
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImageRegistryProblem(where, "a JSON object", f"{error} in {data[:60]!a}", fix) from None
    if not isinstance(found, dict):
        raise ImageRegistryProblem(where, "a JSON object", type(found).__name__, fix)
    return found


def _is_index(body: Mapping[str, Any], header: str, where: str) -> bool:
    """Whether the manifest is an index; header, body and fields must agree on its type."""
    stated = body.get("mediaType", header)
    known = (*INDEX_TYPES, *IMAGE_TYPES)
    fix = "Only OCI and Docker schema 2 images have the digests that a lock needs; take a newer tag."
    if stated != header or stated not in known:
        raise ImageRegistryProblem(where, f"one of {', '.join(known)}", f"{header!a} and {stated!a:.80}", fix)
    index = stated in INDEX_TYPES
    # A document that can be read as both types is an attack (CVE-2021-41190).
    if index != ("manifests" in body) or index == ("layers" in body and "config" in body):
        raise ImageRegistryProblem(where, f"the fields of {stated}", f"{', '.join(sorted(body))!a:.120}", fix)
    return index


def _altered(where: str, expected: str, found: str) -> ImageRegistryProblem:
    fix = (
        "A proxy or mirror between this machine and the image registry alters content: do not use this image."
    )
    return ImageRegistryProblem(where, f"content with digest {expected[:100]!a}", found, fix)


def _refused(where: str, found: str) -> ImageRegistryProblem:
    fix = "Check the name; an image that needs a login or an accepted licence cannot be locked."
    return ImageRegistryProblem(where, "an image that anybody may read", found, fix)


def _of_status(response: requests.Response, where: str) -> Exception:
    code = response.status_code
    if code == 401:
        return _Unauthorised(response.headers.get("WWW-Authenticate", ""))
    if code == 404:
        return ImageRegistryProblem(where, "an image", "404 Not Found", "Check repository and tag.")
    if code == 403:
        return _refused(where, "403 Forbidden")
    if code == 429 or code >= 500:
        return ImageRegistryUnreachable(where, "an answer", f"status {code}", "Try again later.")
    return ImageRegistryProblem(where, "an answer", f"status {code}", "Check repository and tag.")


def _unreachable(where: str, error: Exception) -> ImageRegistryUnreachable:
    cause = error.args[0] if error.args and isinstance(error.args[0], Exception) else error
    reason = getattr(cause, "reason", None) or cause
    if isinstance(error, requests.exceptions.SSLError):
        fix = "Behind a proxy that inspects TLS, give its certificates: SSL_CERT_FILE=/path/ca.pem."
    else:
        fix = "Check the network, HTTPS_PROXY and NO_PROXY, and try again."
    return ImageRegistryUnreachable(where, "an answer", (str(reason) or type(reason).__name__)[:300], fix)
