"""Synthetic sets follow the appendix; UCI sets are found, fetched, checked, or asked for in a sentence."""

import gzip
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from cvgp.errors import FileFormatError, InvalidInputError, MissingFileError
from experiments import data
from experiments.data import NUM_POINTS, SYNTHETIC, UCI, UCISet, check_name, generate, load, load_uci
from experiments.peers.environments import PeerError


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_synthetic_set_has_1000_points_and_is_always_the_same(name: str) -> None:
    first, second = generate(name), generate(name)
    assert first.x.shape == (NUM_POINTS, 1 if name in tuple(SYNTHETIC)[:3] else 2)
    np.testing.assert_array_equal(np.c_[first.x, first.y], np.c_[second.x, second.y])


# Values of the appendix's formulas, worked out by hand at points where their terms are simple.
AT_POINTS = {
    "synthetic1": ([[0.0]], [0.4 * (0 + 0 + 1 + 1 + 0)]),
    "synthetic2": ([[0.0]], [0 + 1 + 0 + 1 + 0]),
    "synthetic3": ([[0.5], [1.0]], [-1.0, 1.0]),
    "synthetic4": ([[0.0, 0.0], [np.pi / 2, 0.0]], [3 + 1.0, 4 + 3 + np.exp(-((np.pi / 2) ** 2))]),
    "synthetic5": ([[0.0, 0.0], [2.0, 0.0]], [1 + 0.5, 1 + np.sin(4.0) + 1 + np.exp(-4.0) / 2]),
}


@pytest.mark.parametrize("name", SYNTHETIC)
def test_the_truth_is_the_appendixs(name: str) -> None:
    points, values = AT_POINTS[name]
    np.testing.assert_allclose(SYNTHETIC[name].truth(np.array(points)), values, atol=1e-12)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_the_stated_noise_is_a_standard_deviation(name: str) -> None:
    x, y = generate(name, 20_000)
    f = SYNTHETIC[name].truth(x)
    sd = np.abs(SYNTHETIC[name].noise_sd(x, f))
    kept = sd > 1e-3
    assert np.std((y - f)[kept] / sd[kept]) == pytest.approx(1.0, abs=0.03)


def test_synthetic_inputs_fill_the_stated_ranges() -> None:
    for name, low, high in (("synthetic1", -4, 4), ("synthetic2", -4, 4), ("synthetic3", 0, 2)):
        x = generate(name).x
        assert low <= x.min() < low + 0.05
        assert high - 0.05 < x.max() <= high


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"synthetic1, .*song"):
        check_name("boston")


@pytest.mark.parametrize("name", [name for name in UCI if name not in ("slice", "song")])
def test_a_uci_set_has_the_catalogues_size(name: str, uci: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> None:
    x, y = uci(name)
    found = load(name)
    np.testing.assert_array_equal(found.x, x)
    np.testing.assert_array_equal(found.y, y)


# Downloads, from a server of our own


TABLE = gzip.compress(b"1,2,3\n4,5,6\n", mtime=0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "served" / "tiny"
    folder.mkdir(parents=True)
    (folder / "data.csv.gz").write_bytes(TABLE)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    handler = partial(Quiet, directory=str(folder.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture
def tiny(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set that only the server has; returns where the cache will keep it."""
    monkeypatch.setattr(data, "COLLECTION", server)
    monkeypatch.setitem(UCI, "tiny", UCISet(2, 2, "nobody"))
    monkeypatch.delenv("CVGP_DATA", raising=False)
    monkeypatch.setenv("CVGP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "uci" / "tiny.csv.gz"


def test_a_set_is_downloaded_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = load_uci("tiny")
    np.testing.assert_array_equal(np.c_[x, y], [[1, 2, 3], [4, 5, 6]])
    assert tiny.exists()
    monkeypatch.setattr(data, "COLLECTION", "http://127.0.0.1:1")
    assert len(load_uci("tiny").y) == 2  # from the cache


def test_without_internet_the_address_and_the_folder_are_named(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "COLLECTION", "http://127.0.0.1:1")
    with pytest.raises(MissingFileError, match=r"http://127.0.0.1:1/tiny/data.csv.gz .* save it as .*tiny.csv.gz"):
        load_uci("tiny")


def test_the_folder_of_the_environment_comes_first(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine" / "uci" / "tiny.csv.gz"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(gzip.compress(b"7,8,9\n7,8,9\n"))
    monkeypatch.setenv("CVGP_DATA", str(tmp_path / "mine"))
    np.testing.assert_array_equal(load_uci("tiny").y, [9, 9])


def test_a_table_of_another_size_is_refused(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(UCI, "tiny", UCISet(3, 2, "nobody"))
    with pytest.raises(FileFormatError, match="3 rows of 2 inputs"):
        load_uci("tiny")


def test_a_damaged_file_is_refused(tiny: Path) -> None:
    tiny.parent.mkdir(parents=True)
    tiny.write_bytes(b"not compressed")
    with pytest.raises(FileFormatError, match="not a compressed table"):
        load_uci("tiny")


# Files that packages carry


def test_a_file_that_a_package_does_not_carry_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "interpreter", lambda environment: sys.executable)
    with pytest.raises(PeerError, match="no such table"):
        data.exported(tmp_path / "new" / "table.csv", "made up", "-c", "raise SystemExit('no such table')")
    write = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('a')"
    assert data.exported(tmp_path / "new" / "table.csv", "made up", "-c", write).read_text() == "a"
