"""Synthetic sets follow the appendix; UCI sets are found, fetched, checked, or asked for in a sentence."""

import gzip
import hashlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from cvgp.errors import FileFormatError, InvalidInputError, MissingFileError
from cvgp.paper.datasets import REAL, SYNTHETIC_NAMES, check_name, load, truth, uci
from cvgp.paper.datasets.fetch import DownloadError, check_recorded, checksum_path, fetch
from cvgp.paper.datasets.synthetic import NUM_POINTS, SYNTHETIC, generate


@pytest.mark.parametrize("name", SYNTHETIC_NAMES)
def test_a_synthetic_set_has_1000_points_and_is_always_the_same(name: str) -> None:
    first, second = generate(name), generate(name)
    assert first.x.shape == (NUM_POINTS, 1 if name in SYNTHETIC_NAMES[:3] else 2)
    np.testing.assert_array_equal(np.c_[first.x, first.y], np.c_[second.x, second.y])


# Values of the appendix's formulas, worked out by hand at points where their terms are simple.
AT_POINTS = {
    "synthetic1": ([[0.0]], [0.4 * (0 + 0 + 1 + 1 + 0)]),
    "synthetic2": ([[0.0]], [0 + 1 + 0 + 1 + 0]),
    "synthetic3": ([[0.5], [1.0]], [-1.0, 1.0]),
    "synthetic4": ([[0.0, 0.0], [np.pi / 2, 0.0]], [3 + 1.0, 4 + 3 + np.exp(-((np.pi / 2) ** 2))]),
    "synthetic5": ([[0.0, 0.0], [2.0, 0.0]], [1 + 0.5, 1 + np.sin(4.0) + 1 + np.exp(-4.0) / 2]),
}


@pytest.mark.parametrize("name", SYNTHETIC_NAMES)
def test_the_truth_is_the_appendixs(name: str) -> None:
    points, values = AT_POINTS[name]
    np.testing.assert_allclose(truth[name](np.array(points)), values, atol=1e-12)


@pytest.mark.parametrize("name", SYNTHETIC_NAMES)
def test_the_stated_noise_is_a_standard_deviation(name: str) -> None:
    x, y = generate(name, 20_000)
    f = truth[name](x)
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


def test_waves_have_the_size_of_their_name() -> None:
    assert load("waves-30x4").x.shape == (30, 4)
    assert check_name("waves-30x4") == "waves-30x4"


@pytest.mark.parametrize("name", [name for name in uci.UCI if name not in ("slice", "song")])
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
    monkeypatch.setattr(uci, "COLLECTION", server)
    monkeypatch.setitem(uci.UCI, "tiny", uci.UCISet(2, 2, "nobody"))
    monkeypatch.delenv("CVGP_DATA", raising=False)
    monkeypatch.setenv("CVGP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "uci" / "tiny.csv.gz"


def test_a_set_is_downloaded_once_and_its_checksum_recorded(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = uci.load_uci("tiny")
    np.testing.assert_array_equal(np.c_[x, y], [[1, 2, 3], [4, 5, 6]])
    assert checksum_path(tiny).read_text().strip() == hashlib.sha256(TABLE).hexdigest()
    monkeypatch.setattr(uci, "COLLECTION", "http://127.0.0.1:1")
    assert len(uci.load_uci("tiny").y) == 2  # from the cache


def test_a_file_that_changed_in_the_cache_is_noticed(tiny: Path) -> None:
    uci.load_uci("tiny")
    tiny.write_bytes(gzip.compress(b"1,2,3\n4,5,7\n"))
    with pytest.raises(FileFormatError, match="has changed since it was downloaded"):
        uci.load_uci("tiny")


def test_a_known_checksum_must_match(server: str, tmp_path: Path) -> None:
    target = tmp_path / "file.gz"
    with pytest.raises(DownloadError, match="not 00ff"):
        fetch(f"{server}/tiny/data.csv.gz", target, "00ff")
    assert not target.exists()
    assert fetch(f"{server}/tiny/data.csv.gz", target, hashlib.sha256(TABLE).hexdigest())


def test_an_address_without_the_file_leaves_nothing_behind(server: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="404"):
        fetch(f"{server}/nowhere.gz", tmp_path / "file.gz", None)
    assert [p.name for p in tmp_path.iterdir()] == ["served"]


def test_without_internet_the_address_and_the_folder_are_named(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uci, "COLLECTION", "http://127.0.0.1:1")
    with pytest.raises(MissingFileError, match=r"http://127.0.0.1:1/tiny/data.csv.gz .* save it as .*tiny.csv.gz"):
        uci.load_uci("tiny")


def test_the_folder_of_the_environment_comes_first(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine" / "uci" / "tiny.csv.gz"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(gzip.compress(b"7,8,9\n7,8,9\n"))
    monkeypatch.setenv("CVGP_DATA", str(tmp_path / "mine"))
    np.testing.assert_array_equal(uci.load_uci("tiny").y, [9, 9])


def test_a_table_of_another_size_is_refused(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(uci.UCI, "tiny", uci.UCISet(3, 2, "nobody"))
    with pytest.raises(FileFormatError, match="3 rows of 2 inputs"):
        uci.load_uci("tiny")


def test_a_damaged_file_is_refused(tiny: Path) -> None:
    tiny.parent.mkdir(parents=True)
    tiny.write_bytes(b"not compressed")
    with pytest.raises(FileFormatError, match="not a compressed table"):
        uci.load_uci("tiny")


def test_a_file_without_a_recorded_checksum_is_not_questioned(tmp_path: Path) -> None:
    path = tmp_path / "own.csv.gz"
    path.write_bytes(TABLE)
    check_recorded(path)


def test_every_real_set_has_an_address_and_a_citation() -> None:
    assert all(uci.UCI[name].address(name).endswith(f"{name}/data.csv.gz") and uci.UCI[name].citation for name in REAL)
