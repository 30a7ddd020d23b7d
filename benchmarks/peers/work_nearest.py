"""faiss and hnswlib: an index of all rows, and the nearest of them to some rows."""

import time
from collections.abc import Mapping
from importlib.metadata import version

import faiss
import hnswlib
import numpy as np

from benchmarks.peers.protocol import Array, Job, run

LINKS, BUILD_WIDTH, SEARCH_WIDTH = 16, 100, 64
"""Of the graphs: links of a row, and how many candidates are kept while a graph is built and while it is searched."""


def flat(job: Job) -> Mapping[str, float | str]:
    """faiss' exact search by all distances."""
    faiss.omp_set_num_threads(job.settings["threads"])
    x, queries = np.float32(job.x), np.float32(job.data["x_test"])
    begin = time.perf_counter()
    index = faiss.IndexFlatL2(x.shape[1])
    index.add(x)
    built = time.perf_counter() - begin
    begin = time.perf_counter()
    _, near = index.search(queries, job.settings["count"])
    return _done(job, built, time.perf_counter() - begin, near)


def graph_of_faiss(job: Job) -> Mapping[str, float | str]:
    """faiss' graph of near rows."""
    faiss.omp_set_num_threads(job.settings["threads"])
    x, queries = np.float32(job.x), np.float32(job.data["x_test"])
    begin = time.perf_counter()
    index = faiss.IndexHNSWFlat(x.shape[1], LINKS)
    index.hnsw.efConstruction = BUILD_WIDTH
    index.add(x)
    built = time.perf_counter() - begin
    index.hnsw.efSearch = SEARCH_WIDTH
    begin = time.perf_counter()
    _, near = index.search(queries, job.settings["count"])
    return _done(job, built, time.perf_counter() - begin, near)


def graph(job: Job) -> Mapping[str, float | str]:
    """hnswlib's graph of near rows."""
    threads = job.settings["threads"]
    x, queries = np.float32(job.x), np.float32(job.data["x_test"])
    begin = time.perf_counter()
    index = hnswlib.Index(space="l2", dim=x.shape[1])
    index.init_index(max_elements=len(x), ef_construction=BUILD_WIDTH, M=LINKS)
    index.add_items(x, num_threads=threads)
    built = time.perf_counter() - begin
    index.set_ef(SEARCH_WIDTH)
    begin = time.perf_counter()
    near, _ = index.knn_query(queries, k=job.settings["count"], num_threads=threads)
    return _done(job, built, time.perf_counter() - begin, near)


def _done(job: Job, built: float, seconds: float, near: Array) -> Mapping[str, float | str]:
    job.record_arrays(lambda x: {"near": near})
    return {"build_seconds": built, "search_seconds": seconds}


if __name__ == "__main__":
    run(
        {"faiss flat": flat, "faiss graph": graph_of_faiss, "hnswlib graph": graph},
        {"faiss-cpu": version("faiss-cpu"), "hnswlib": version("hnswlib")},
    )
