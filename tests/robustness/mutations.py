"""Ways to spoil a file: at random, and on purpose.

Every function draws its choices from a `random.Random`, so that a case can be told by a number and repeated.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.files import read_state, split_state, state_bytes

ArrayDict = dict[str, NDArray[Any]]

EXTREMES = (0, 1, 0x7F, 0xFF, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1)
NAMES = ("os.system", "eval", "__reduce__", "../../x", "ScaleKernel", "RFFKernel", "x" * 5000, "\0", "é")
DTYPES = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "U8", "BOOL", "C64", "X", "", "F4")


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
            header[random.choice(NAMES)] = {"dtype": "F64", "shape": [0, 2**62], "data_offsets": [0, 0]}
        else:
            entry[random.choice(("shape", "data_offsets", "dtype"))] = forge_json(random, None)
    text = json.dumps(header).encode()
    declared = len(text) if random.random() < 0.8 else random.choice(EXTREMES)
    return struct.pack("<Q", declared) + text + data


def forge_json(random: Random, value: Any) -> Any:
    """A JSON value with one thing in it replaced; of None, any value."""
    paths = places(value)
    if not paths:
        return _any_value(random, depth=0)
    *parents, last = random.choice(paths)
    at = value
    for key in parents:
        at = at[key]
    kind = random.randrange(4)
    if kind == 0 and isinstance(at, dict):
        del at[last]
    elif kind == 1 and isinstance(at, dict):
        at[random.choice(NAMES)] = at[last]
    elif kind == 2 and isinstance(at, dict):
        at[last] = at[random.choice(list(at))]
    else:
        at[last] = _any_value(random, depth=0)
    return value


def forge_arrays(random: Random, arrays: ArrayDict) -> ArrayDict:
    """Arrays of which one has other values, another shape or type, is missing, or is one too many."""
    forged = dict(arrays)
    name = random.choice(list(forged))
    array = forged[name]
    flat = array.reshape(-1)
    changes: tuple[Callable[[], NDArray[Any]], ...] = (
        lambda: np.where(np.arange(flat.size) == random.randrange(max(flat.size, 1)), _extreme(random), flat).reshape(
            array.shape
        ),
        lambda: np.full_like(array, random.choice((0, 1))),
        lambda: flat,
        lambda: flat[:-1],
        lambda: np.zeros((0, *array.shape[1:]), array.dtype),
        lambda: np.concatenate([flat, flat]),
        lambda: array.astype(random.choice(("float16", "float32", "int64", "uint8", "bool"))),
        lambda: np.sort(flat)[::-1].reshape(array.shape),
    )
    if random.random() < 0.1:
        del forged[name]
    elif random.random() < 0.1:
        forged[random.choice(NAMES[:-1])] = array
    else:
        with np.errstate(all="ignore"):
            forged[name] = random.choice(changes)()
    return forged


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
    """The paths to everything in a JSON value; of lists, to the first two items."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    return [path for key, inner in items for path in [(*above, key), *places(inner, *above, key)]]


def _any_value(random: Random, depth: int) -> Any:
    simple = (None, True, False, -1, 0, 1, 3, 10**400, -(2**63), 1e308, -0.0, 5e-324, float("nan"), float("inf"), "")
    kind = random.randrange(6 if depth < 3 else 4)
    if kind < 3:
        return random.choice(simple)
    if kind == 3:
        return random.choice(NAMES)
    inner = [_any_value(random, depth + 1) for _ in range(random.randrange(4))]
    return inner if kind == 4 else {random.choice(NAMES): value for value in inner}


def _extreme(random: Random) -> float:
    return random.choice((0.0, -1.0, 1e300, -1e300, 1e-300, 1e30, float("inf"), float("nan")))
