"""Two processes that write one model path: a reader always finds the whole model of one of them."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import cvgp

WRITER = """
import sys, time
import cvgp
model, end = cvgp.load(sys.argv[1]), time.monotonic() + float(sys.argv[3])
count = 0
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    model.save(sys.argv[2])
    count += 1
print(count)
"""
SECONDS = 1.0


@pytest.mark.slow
def test_one_whole_model_wins_at_every_moment(tmp_path: Path) -> None:
    x = np.linspace(0.0, 6.0, 200)[:, None]
    sources = [tmp_path / "a.cvgp", tmp_path / "b.cvgp"]
    for steps, path in enumerate(sources, start=3):
        cvgp.CVGPRegressor(50, random_state=0, training=cvgp.TrainingOptions(solver="adam", max_iter=steps)).fit(
            x, np.sin(x[:, 0])
        ).save(path)
    possible = {cvgp.load(path).elbo_ for path in sources}
    assert len(possible) == 2
    (tmp_path / "shared").mkdir()
    target = tmp_path / "shared" / "model.cvgp"
    cvgp.load(sources[0]).save(target)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, path, target, str(SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for path in sources
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    found, end = set(), time.monotonic() + SECONDS
    while time.monotonic() < end:
        found.add(cvgp.load(target).elbo_)
    written = [int(writer.communicate()[0]) for writer in writers]
    assert all(count > 0 for count in written)
    assert found <= possible
    assert [path.name for path in target.parent.iterdir()] == ["model.cvgp"]
