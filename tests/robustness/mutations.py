"""Ways to spoil a file: at random, and on purpose.

Every function draws its choices from a `random.Random`, so that a case can be told by a number and repeated.
"""

import json
import struct
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.files import read_state, split_state, state_bytes

ArrayDict = dict[str, NDArray[Any]]

EXTREMES = (0, 1, 0x7F, 0xFF, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1)
DTYPES = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "U8", "BOOL", "C64", "X", "", "F4")
GONE = object()
"""In place of a value: the field is left out."""
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
NUMBERS = (-1, 0, 2**63, 10**400, -1.0, 0.0, 5e-324, 1e-200, 1e200, -1.7e308, float("nan"), float("inf"))
TEXTS = ("", "\ud800", "\x1b[2J\u202e", "long" * 5000, "os.system", "../../x", "RFFKernel")
VALUES: tuple[Any, ...] = (GONE, None, True, *NUMBERS, *TEXTS, [], [10**400], [None], DEEP, {}, {"": DEEP})
"""Wrong values of every kind."""


def damage(random: Random, content: bytes) -> bytes:
    """A few bits, bytes or blocks changed, cut out, repeated or added."""
    spoilt = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 5))):
        if not spoilt:
            break
        at = random.randrange(len(spoilt))
        length = random.choice((1, 4, 8, 64, 1000))
        kind = random.randrange(8)
        if kind == 0:
            spoilt[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            spoilt[at : at + length] = random.randbytes(length)
        elif kind == 2:
            spoilt[at : at + 8] = struct.pack("<Q", random.choice(EXTREMES))
        elif kind == 3:
            del spoilt[at : at + length]
        elif kind == 4:
            spoilt[at:at] = spoilt[at : at + length]
        elif kind == 5:
            spoilt[at:at] = random.randbytes(length)
        elif kind == 6:
            del spoilt[at:]
        else:
            spoilt[at : at + length] = bytes(min(length, len(spoilt) - at))
    return bytes(spoilt)


def forge_header(random: Random, content: bytes) -> bytes:
    """A safetensors file whose header lies about sizes, places, types and names."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    for _ in range(random.choice((1, 1, 3))):
        name = random.choice([name for name in header if name != "__metadata__"])
        entry = header[name]
        kind = random.randrange(6)
        if kind == 0:
            entry["shape"] = [random.choice(EXTREMES) for _ in range(random.randrange(4))]
        elif kind == 1:
            entry["data_offsets"] = [random.choice(EXTREMES), random.choice(EXTREMES)]
        elif kind == 2:
            entry["data_offsets"] = header[random.choice([n for n in header if n != "__metadata__"])]["data_offsets"]
        elif kind == 3:
            entry["dtype"] = random.choice(DTYPES)
        elif kind == 4:
            header[random.choice(TEXTS)] = {"dtype": "F64", "shape": [0, 2**62], "data_offsets": [0, 0]}
        else:
            entry[random.choice(("shape", "data_offsets", "dtype"))] = forge_json(random, None)
    text = json.dumps(header).encode()
    declared = len(text) if random.random() < 0.8 else random.choice(EXTREMES)
    return struct.pack("<Q", declared) + text + data


def forge_json(random: Random, value: Any) -> Any:
    """A JSON value with another value at one of its places."""
    paths = places(value)
    return replaced(value, random.choice(paths), random.choice(VALUES)) if paths else random.choice(VALUES[1:])


def forge_arrays(random: Random, arrays: ArrayDict) -> ArrayDict:
    """Arrays of which one has other values, another shape or type, or is missing."""
    name = random.choice(list(arrays))
    others = {other: array for other, array in arrays.items() if other != name}
    return others if random.random() < 0.1 else others | {name: random.choice(list(changed(arrays[name]).values()))}


def forge_text(random: Random) -> str:
    """JSON that is deep, long, large or not JSON at all."""
    many = random.choice((100, 5_000, 200_000))
    return random.choice(
        (
            "[" * many,
            '{"a":' * many,
            "[" * many + "]" * many,
            "1" * many,
            "-" + "9" * many + "e" + "9" * 10,
            '{"version": ' + "1" * many + "}",
            "NaN",
            '{"a": 1e999, "a": NaN}',
            '"' + "\\ud800" * 10 + '"',
            "nul",
            "",
            '{"format": "cvgp model", "version": 1}',
        )
    )


def tensor_file(arrays: ArrayDict, text: str) -> bytes:
    """The bytes of a file with any text in the place of its metadata, and the checksum that goes with it."""
    return state_bytes({name: np.asarray(array, order="C") for name, array in arrays.items()}, text)


def read_parts(path: Path) -> tuple[ArrayDict, Any]:
    """The arrays of a file, and the rest."""
    arrays, text = split_state(read_state(path))
    return arrays, json.loads(text)


def places(value: Any, *above: Any) -> list[tuple[Any, ...]]:
    """The paths to everything in a JSON value; of lists, to the first two items and the last."""
    items: Any = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        items = [(i, value[i]) for i in sorted({0, 1, len(value) - 1} & set(range(len(value))))]
    return [path for key, inner in items for path in [(*above, key), *places(inner, *above, key)]]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a JSON value with another one at a path, or without it if that is `GONE`."""
    forged = deepcopy(value)
    *above, last = path
    at = forged
    for key in above:
        at = at[key]
    if new is GONE:
        del at[last]
    else:
        at[last] = new
    return forged


def changed(array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Other values, shapes and types in the place of an array, by what is done to it."""
    flat = array.reshape(-1)
    extremes = [float("nan"), float("inf"), -1.0, 0.0, 5e-324, 1e-200, 1e15, 1e200, -1.7e308]
    found: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        for value in extremes if array.dtype.kind == "f" else np.array([-1, 0, 1, 2**62, -(2**63)]).astype(array.dtype):
            found[f"all {value}"] = np.full_like(array, value)
            if array.size > 1:
                one = flat.copy()
                one[-1] = value
                found[f"one {value}"] = one.reshape(array.shape)
        for dtype in ("float16", "float32", "float64", "int64", "uint8", "bool"):
            if array.dtype != dtype:
                found[dtype] = array.astype(dtype)
    found |= {
        "empty": np.zeros((0, *array.shape[1:]), array.dtype),
        "flat": flat if array.ndim != 1 else array[:, None],
        "shorter": flat[:-1],
        "twice": np.concatenate([array, array]) if array.ndim else np.stack([array, array]),
        "reversed": flat[::-1].reshape(array.shape),
        "huge and empty": np.zeros((0, 10**6), array.dtype),
    }
    return {
        name: value for name, value in found.items() if value.dtype != array.dtype or not np.array_equal(value, array)
    }
