"""Serve a model over HTTP with NumPy and the standard library, and measure how many requests are answered per second.

The model is exported by `export_numpy`. The server knows nothing of cvgp: it imports the predictor beside the model.

Run it with ``python examples/serve_over_http.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import http.client
import http.server
import importlib.util
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor

SIZES, SECONDS = (1, 10, 100, 1000), 0.3


def load_predictor(folder: Path) -> Any:
    """The model in a folder, by the predictor beside it; a service writes `from cvgp_predictor import Predictor`."""
    spec = importlib.util.spec_from_file_location("cvgp_predictor", folder / "cvgp_predictor.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Predictor(folder / "model.npz")


def make_server(model: Any) -> http.server.ThreadingHTTPServer:
    """A server that answers rows with means and intervals; port 0 is any free one."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections open
        disable_nagle_algorithm = True
        wbufsize = -1  # so that an answer is one packet

        def do_POST(self) -> None:
            try:
                rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                low, high = model.predict_interval(rows, level=0.9).T
                found = {"mean": model.predict(rows).tolist(), "low": low.tolist(), "high": high.tolist()}
                status = 200
            except (TypeError, ValueError) as error:
                status, found = 400, {"error": str(error)}
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Write no line for each request."""

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def ask(connection: http.client.HTTPConnection, rows: Any) -> Any:
    """The answer of the server."""
    connection.request("POST", "/", json.dumps(rows))
    return json.loads(connection.getresponse().read())


def main(folder: Path) -> None:
    """Fit, export, serve, measure and draw."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (300, 2))
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1] + 0.2 * rng.normal(size=300)
    fitted = CVGPRegressor(n_coreset=50, n_neighbors=0, random_state=0).fit(X, y)
    folder.mkdir(parents=True, exist_ok=True)
    fitted.export_numpy(folder / "model.npz", overwrite=True)

    server = make_server(load_predictor(folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
    rates = []
    try:
        far = max(np.abs(np.array(ask(connection, X.tolist())["mean"]) - fitted.predict(X)))
        print(f"the answers differ from those of the estimator by at most {far:.0e}")
        print(f"a bad request: {ask(connection, [[1.0, None]])['error']}")
        for size in SIZES:
            rows, count, begin = rng.uniform(0, 6, (size, 2)).tolist(), 0, time.perf_counter()
            while (seconds := time.perf_counter() - begin) < SECONDS:
                ask(connection, rows)
                count += 1
            rates.append(count / seconds)
            print(f"{size} rows per request: {rates[-1]:.0f} requests and {size * rates[-1]:.0f} rows per second")
    finally:
        connection.close()
        server.shutdown()
        server.server_close()
        thread.join()

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    requests, rows_served = figure.subplots(1, 2)
    requests.plot(SIZES, rates, "o-")
    rows_served.plot(SIZES, np.array(SIZES) * rates, "o-", color="tab:orange")
    requests.set(title="requests per second", xlabel="rows per request", xscale="log", yscale="log")
    rows_served.set(title="rows per second", xlabel="rows per request", xscale="log", yscale="log")
    figure.savefig(folder / "serve_over_http.png", dpi=100)
    print(f"picture: {folder / 'serve_over_http.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
