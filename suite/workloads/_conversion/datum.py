"""caffe's ``Datum``: the protocol buffer with an image file and its label, as databases of images hold it.

Fields of caffe.proto (BVLC/caffe): ``int32 channels = 1``, ``height = 2``, ``width = 3``, ``bytes data = 4``,
``int32 label = 5``, ``bool encoded = 7``. Data that are not encoded are the blue, green and red plane, as
convert_imageset writes them. PyTorch's environment has no protobuf package.
"""

from __future__ import annotations

import numpy as np

from suite.workloads._classification.protobuf import fields

_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _ENCODED = 1, 2, 3, 4, 5, 7
_NUMBER, _BYTES = 0, 2  # wire types


def encoded(label: int, content: bytes) -> bytes:
    """A Datum with the bytes of an image file; ``label`` counts from 0."""
    head = varint(_DATA << 3 | _BYTES) + varint(len(content))
    tail = varint(_LABEL << 3 | _NUMBER) + varint(label) + varint(_ENCODED << 3 | _NUMBER) + varint(1)
    return head + content + tail


def raw(label: int, rows: bytes, size: int) -> bytes:
    """A Datum with ``rows`` of RGB of an image of ``size`` x ``size`` pixels."""
    pixels = np.frombuffer(rows, np.uint8).reshape(size, size, 3)
    planes = pixels[:, :, ::-1].transpose(2, 0, 1).tobytes()
    shape = ((_CHANNELS, 3), (_HEIGHT, size), (_WIDTH, size))
    head = b"".join(varint(name << 3 | _NUMBER) + varint(value) for name, value in shape)
    head += varint(_DATA << 3 | _BYTES) + varint(len(planes))
    return head + planes + varint(_LABEL << 3 | _NUMBER) + varint(label)


def decoded(value: bytes) -> tuple[int, bytes]:
    """Label and content of a Datum: a file, or rows of RGB; ValueError for another message."""
    datum = dict(fields(value))
    label, content = datum.get(_LABEL, 0), datum.get(_DATA)
    if not isinstance(label, int) or not isinstance(content, memoryview):
        raise ValueError("expected the data and the label of an image, found another message")
    if datum.get(_ENCODED):
        return label, bytes(content)
    shape = tuple(datum.get(name, 0) for name in (_CHANNELS, _HEIGHT, _WIDTH))
    if shape[0] != 3 or not all(isinstance(one, int) for one in shape):
        raise ValueError(f"expected three channels of pixels, found the shape {shape}")
    planes = np.frombuffer(content, np.uint8).reshape([int(one) for one in shape])
    return label, planes.transpose(1, 2, 0)[:, :, ::-1].tobytes()


def varint(number: int) -> bytes:
    """Seven bits per byte, lowest first; all bytes but the last have the highest bit set."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
