"""caffe's ``Datum``: the protocol buffer with an image file and its label, as databases of images hold it.

Fields of caffe.proto (BVLC/caffe): ``bytes data = 4``, ``int32 label = 5``, ``bool encoded = 7``; the other
fields are for images that are not encoded. PyTorch's environment has no protobuf package.
"""

from __future__ import annotations

from suite.workloads._classification.protobuf import fields

_DATA, _LABEL, _ENCODED = 4, 5, 7
_NUMBER, _BYTES = 0, 2  # wire types


def encoded(label: int, content: bytes) -> bytes:
    """A Datum with the bytes of an image file; ``label`` counts from 0."""
    head = varint(_DATA << 3 | _BYTES) + varint(len(content))
    tail = varint(_LABEL << 3 | _NUMBER) + varint(label) + varint(_ENCODED << 3 | _NUMBER) + varint(1)
    return head + content + tail


def decoded(value: bytes) -> tuple[int, bytes]:
    """Label and file of a Datum; ValueError where it does not hold an encoded image."""
    datum = dict(fields(value))
    label, content = datum.get(_LABEL, 0), datum.get(_DATA)
    if not isinstance(label, int) or not isinstance(content, memoryview) or not datum.get(_ENCODED):
        raise ValueError("expected the data and the label of an encoded image, found another message")
    return label, bytes(content)


def varint(number: int) -> bytes:
    """Seven bits per byte, lowest first; all bytes but the last have the highest bit set."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
