"""cvgp runs no code that comes from a file: nothing in the package could."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import cvgp

PACKAGE = Path(cvgp.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
FORBIDDEN_IMPORTS = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "code",
    "runpy",
}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "torch.load",
    "torch.jit.load",
    "torch.hub.load",
    "pd.read_pickle",
    "pandas.read_pickle",
    "os.system",
    "os.popen",
}


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


@pytest.mark.parametrize("path", MODULES, ids=[path.relative_to(PACKAGE).as_posix() for path in MODULES])
def test_no_module_unpickles_or_evaluates(path: Path) -> None:
    assert list(offences(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from joblib import load",
        "eval('1')",
        "torch.load(p)",
        "np.load(p)",
        "np.load(p, allow_pickle=x)",
    ],
)
def test_an_offence_would_be_found(code: str) -> None:
    assert len(list(offences(ast.parse(code)))) == 1
