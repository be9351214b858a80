"""Reading a container registry: manifests and image configurations by plain HTTP, nothing believed unchecked.

Source: the OCI distribution specification 1.1 (pull), and Docker's registry token authentication. Every body
is hashed here; what the registry says about it is only compared. Reading is anonymous: no credential is used
or kept, and the token it hands out goes to the registry alone, never to where a blob redirects.

Proxies come from the usual variables (``HTTPS_PROXY``, ``NO_PROXY``), certificates from ``SSL_CERT_FILE``,
``REQUESTS_CA_BUNDLE`` or the system. Plain http is for registries on this machine only.
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
_MANIFEST_CAP = 4 << 20  # the specification's own limit
_CONFIG_CAP = 8 << 20
_TOKEN_CAP = 1 << 20
_TIMEOUT_S = 30.0  # of one read
_DEADLINE_S = 120.0  # of one answer: a registry that drips bytes does not hold us for ever
_BLOCK = 1 << 16
_REDIRECTS = 5
_AGENT = "deep-learning-benchmark-suite"


class RegistryProblem(Exception):
    """A registry's answer that cannot be used; the message says where, what was expected, found, the fix."""

    def __init__(self, place: str, expected: str, found: str, fix: str) -> None:
        super().__init__(f"{place}: expected {expected}, found {found}. {fix}")
        self.place, self.expected, self.found, self.fix = place, expected, found, fix


class Unreachable(RegistryProblem):
    """The registry did not answer, or broke off: it says nothing about the image."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """An index or an image manifest whose digest was computed from the bytes received."""

    digest: str
    is_index: bool
    body: Mapping[str, Any]


class ImageRegistry:
    """One repository ("registry/path") of a registry, read anonymously."""

    def __init__(self, repository: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        host, _, self.path = repository.partition("/")
        self.repository = repository
        self._local = _is_loopback(host)
        host = {"docker.io": "registry-1.docker.io"}.get(host, host)
        self._root = f"{'http' if self._local else 'https'}://{host}/v2/{self.path}"
        self._timeout_s = timeout_s
        self._token: str | None = None
        self._session = requests.Session()
        self._session.trust_env = False  # above all no password of .netrc
        self._session.verify = _certificates()

    def manifest(self, reference: str) -> Manifest:
        """The manifest of a tag or digest. Raises RegistryProblem, Unreachable."""
        place = self._place(reference)
        accept = ", ".join((*INDEX_TYPES, *IMAGE_TYPES))
        data, headers = self._get(f"{self._root}/manifests/{reference}", place, _MANIFEST_CAP, accept)
        found = _digest(data)
        stated = headers.get("Docker-Content-Digest") or found
        wanted = reference if reference.startswith("sha256:") else stated
        for word in (wanted, stated):
            if word != found:
                raise _altered(place, word, found)
        body = _object(data, place)
        return Manifest(
            found,
            _is_index(body, headers.get("Content-Type", "").partition(";")[0].strip().lower(), place),
            body,
        )

    def config(self, digest: str) -> Mapping[str, Any]:
        """The image configuration of that digest. Raises RegistryProblem, Unreachable."""
        place = self._place(digest)
        data, _ = self._get(f"{self._root}/blobs/{digest}", place, _CONFIG_CAP, "*/*")
        if _digest(data) != digest:
            raise _altered(place, digest, _digest(data))
        return _object(data, place)

    def _place(self, reference: str) -> str:
        return f"{self.repository}{'@' if reference.startswith('sha256:') else ':'}{reference}"

    # HTTP

    def _get(self, url: str, place: str, cap: int, accept: str) -> tuple[bytes, Mapping[str, str]]:
        try:
            return self._read(url, place, cap, accept)
        except _Unauthorised as error:
            challenge = error.challenge
        # One token lasts for the few requests of an entry; a second refusal is final.
        self._token = self._authorise(challenge, place)
        try:
            return self._read(url, place, cap, accept)
        except _Unauthorised:
            raise _refused(place, "401 with a token for anonymous reading") from None

    def _read(
        self, url: str, place: str, cap: int, accept: str, query: Mapping[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        try:
            with self._open(url, accept, query) as response:
                if response.status_code != 200:
                    raise _of_status(response, place)
                return _body(response, place, cap), response.headers
        except (OSError, ValueError) as error:  # all of requests' errors are OSErrors
            raise _unreachable(place, error) from error

    def _open(self, url: str, accept: str, query: Mapping[str, str] | None) -> requests.Response:
        """The answer behind at most five redirects: none to plain http, and none with the token."""
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": _AGENT}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        for _ in range(_REDIRECTS + 1):
            response = self._session.get(
                url,
                params=query,
                headers=headers,
                timeout=self._timeout_s,
                # As the container engines do: a proxy is never asked for a registry on this machine.
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

    def _authorise(self, challenge: str, place: str) -> str:
        """An anonymous token to read this repository, from where the registry's challenge says."""
        scheme, _, rest = challenge.partition(" ")
        fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = fields.get("realm", "")
        if scheme.lower() != "bearer" or not _may_open(realm, self._local):
            raise _refused(place, f"the challenge {challenge[:200]!a}")
        query = {"service": fields.get("service", ""), "scope": f"repository:{self.path}:pull"}
        self._token = None
        try:
            data, _ = self._read(realm, f"{place}, token", _TOKEN_CAP, "application/json", query)
        except _Unauthorised:
            raise _refused(place, "401 from the token server") from None
        answer = _object(data, f"{place}, token")
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise _refused(place, "an answer of the token server without a token")
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
    """Allow https anywhere; http only on this machine, and only for a registry on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    plain = local and parts.scheme == "http" and _is_loopback(parts.netloc)
    return bool(host) and (parts.scheme == "https" or plain)


def _certificates() -> str | bool:
    """The file or folder of trusted certificates; True for those that come with requests."""
    bundle = os.environ.get("REQUESTS_CA_BUNDLE")
    if bundle and not os.environ.get("SSL_CERT_FILE"):
        if not Path(bundle).exists():
            fix = "Point it at a PEM file of certificates, or unset it."
            raise RegistryProblem("REQUESTS_CA_BUNDLE", "certificates", f"nothing at {bundle}", fix)
        return bundle
    system = ssl.get_default_verify_paths()  # SSL_CERT_FILE and SSL_CERT_DIR count here
    return system.cafile or system.capath or True


def _body(response: requests.Response, place: str, cap: int) -> bytes:
    deadline = time.monotonic() + _DEADLINE_S
    data = bytearray()
    for block in response.iter_content(min(_BLOCK, cap + 1)):
        data += block
        if len(data) > cap:
            fix = "This is not an image's metadata; look at what the registry serves."
            raise RegistryProblem(place, f"at most {cap} bytes", "more", fix)
        if time.monotonic() > deadline:
            raise TimeoutError(f"no end of the answer after {_DEADLINE_S:.0f} s")
    return bytes(data)


# What an answer means


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _object(data: bytes, place: str) -> dict[str, Any]:
    fix = "The registry, or a proxy on the way, does not serve what it should."
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RegistryProblem(place, "a JSON object", f"{error} in {data[:60]!a}", fix) from None
    if not isinstance(found, dict):
        raise RegistryProblem(place, "a JSON object", type(found).__name__, fix)
    return found


def _is_index(body: Mapping[str, Any], header: str, place: str) -> bool:
    """Whether the manifest is an index; one type only, in the header, the body and the fields."""
    stated = body.get("mediaType", header)
    known = (*INDEX_TYPES, *IMAGE_TYPES)
    fix = "Only OCI and Docker schema 2 images have the digests that a lock needs; take a newer tag."
    if stated != header or stated not in known:
        raise RegistryProblem(place, f"one of {', '.join(known)}", f"{header!a} and {stated!a:.80}", fix)
    index = stated in INDEX_TYPES
    # One document that reads as both is an attack (CVE-2021-41190).
    if index != ("manifests" in body) or index == ("layers" in body and "config" in body):
        raise RegistryProblem(place, f"the fields of {stated}", f"{', '.join(sorted(body))!a:.120}", fix)
    return index


def _altered(place: str, expected: str, found: str) -> RegistryProblem:
    fix = "Something between here and the registry alters content: do not use this image."
    return RegistryProblem(place, f"content with digest {expected[:100]!a}", found, fix)


def _refused(place: str, found: str) -> RegistryProblem:
    fix = "Check the name; an image that needs a login or an accepted licence cannot be locked."
    return RegistryProblem(place, "an image that anybody may read", found, fix)


def _of_status(response: requests.Response, place: str) -> Exception:
    code = response.status_code
    if code == 401:
        return _Unauthorised(response.headers.get("WWW-Authenticate", ""))
    if code == 404:
        return RegistryProblem(place, "an image", "404 Not Found", "Check repository and tag.")
    if code == 403:
        return _refused(place, "403 Forbidden")
    if code == 429 or code >= 500:
        return Unreachable(place, "an answer", f"status {code}", "Try again later.")
    return RegistryProblem(place, "an answer", f"status {code}", "Check repository and tag.")


def _unreachable(place: str, error: Exception) -> Unreachable:
    cause = error.args[0] if error.args and isinstance(error.args[0], Exception) else error
    reason = getattr(cause, "reason", None) or cause
    if isinstance(error, requests.exceptions.SSLError):
        fix = "Behind a proxy that opens TLS, give its certificates: SSL_CERT_FILE=/path/ca.pem."
    else:
        fix = "Check the network, HTTPS_PROXY and NO_PROXY, and try again."
    return Unreachable(place, "an answer", (str(reason) or type(reason).__name__)[:300], fix)
