"""Comparison of device names: spellings that a reader takes for one name compare as equal."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

# Letters of other scripts that look like Latin ones (a selection of Unicode's confusables.txt). They are
# replaced after lower-casing, so capitals that look alike (Cyrillic Н, Greek Η) are replaced before.
_CAPITALS = str.maketrans("АВЕЅІЈКМНОРСТУХԚԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABESIJKMHOPCTYXQWABEZHIKMNOPTYX")
_SMALL = str.maketrans("аеіјорсухѕԛԝɑɡοιℓ", "aeijopcyxsqwagoil")


@lru_cache(maxsize=4096)
def folded(name: str) -> str:
    """``name`` in lower-case Latin letters and digits, without spaces, punctuation and look-alikes."""
    plain = unicodedata.normalize("NFKD", name).translate(_CAPITALS).lower().translate(_SMALL)
    return "".join(one for one in plain if one.isalnum())
