"""cvgp runs no code that comes from a file: nothing in the package could."""

import ast
import pickle
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import cvgp
from cvgp.errors import CVGPError
from tests.tables.helpers import read_frame

PACKAGE = Path(cvgp.__file__).parent
FORBIDDEN_IMPORTS = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "runpy"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}
FORBIDDEN_CALLS |= {"torch.load", "torch.jit.load", "torch.hub.load", "pd.read_pickle", "pandas.read_pickle"}


def offences(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_IMPORTS)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in FORBIDDEN_IMPORTS:
            yield node.module
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in FORBIDDEN_CALLS:
                yield name
            if name in ("np.load", "numpy.load") and not _refuses_pickles(node):
                yield f"{name} that may unpickle"


def _refuses_pickles(call: ast.Call) -> bool:
    return any(
        keyword.arg == "allow_pickle" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        for keyword in call.keywords
    )


def test_no_module_unpickles_or_evaluates() -> None:
    found = {path.name: list(offences(ast.parse(path.read_text(encoding="utf-8")))) for path in PACKAGE.rglob("*.py")}
    assert {name: names for name, names in found.items() if names} == {}


def test_an_offence_would_be_found() -> None:
    for code in ("import pickle", "from joblib import load", "eval('1')", "torch.load(p)", "np.load(p)"):
        assert len(list(offences(ast.parse(code)))) == 1


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("ending", [".parquet", ".feather"])
@pytest.mark.parametrize("name", ["arrow.py_extension_type", "pandas.period", "pandas.interval", "arrow.opaque"])
def test_a_pickle_in_the_type_of_a_column_is_not_opened(tmp_path: Path, ending: str, name: str) -> None:
    payload = pickle.dumps(Bomb(tmp_path / "exploded"))
    field = pa.field("a", pa.int64(), metadata={"ARROW:extension:name": name, "ARROW:extension:metadata": payload})
    table = pa.table([pa.array([1, 2])], schema=pa.schema([field]))
    path = tmp_path / f"bomb{ending}"
    pq.write_table(table, path) if ending == ".parquet" else feather.write_feather(table, path)
    with warnings.catch_warnings(), suppress(CVGPError):
        warnings.simplefilter("ignore")
        read_frame(path)
    assert not (tmp_path / "exploded").exists()


def test_the_bomb_of_these_tests_would_explode(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "exploded"))).close()
    assert (tmp_path / "exploded").exists()
