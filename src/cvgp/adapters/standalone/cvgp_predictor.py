"""Predictions of a model that cvgp has exported: this file and NumPy are all that they need.

>>> Predictor("model.npz").predict_interval([[1.0, 2.0]], level=0.9)  # doctest: +SKIP

Rows are a matrix, or a dictionary of columns by name, with None for missing cells, if the model was fitted to a table.
"""

import json
import math
from importlib import import_module
from statistics import NormalDist
from typing import Any

import numpy as np

erf = np.frompyfunc(math.erf, 1, 1)


def _normal_cdf(z: Any) -> Any:
    return 0.5 + 0.5 * erf(z / math.sqrt(2.0)).astype(float)


def kernel(node: dict[str, Any], x: Any, z: Any | None = None) -> Any:
    """The kernel between rows x [n, D] and points z [M, D], as [n, M]; without z, the prior variances [n, 1]."""
    kind, parts = node["kind"], [kernel(part, x, z) for part in node.get("parts", ())]
    if kind in ("sum", "product"):
        return sum(parts[1:], parts[0]) if kind == "sum" else math.prod(parts[1:], start=parts[0])
    if kind == "scale":
        return node["scale"] * parts[0]
    if kind == "linear":
        return x**2 @ np.array(node["variance"])[:, None] if z is None else x @ (z * node["variance"]).T
    if z is None:
        return x[:, 0:1] * 0.0 + 1.0
    if kind == "periodic":
        waves = zip(node["frequency"], node["weight"], z.T, strict=True)
        return np.exp(sum(np.sin(w * (x[:, d : d + 1] - c)) ** 2 * -a for d, (w, a, c) in enumerate(waves)))
    scale, center = np.array(node["inverse_lengthscale"]), z.mean(axis=0)
    a, b = (x - center) * scale, (z - center) * scale
    squares = np.maximum((a**2).sum(axis=1, keepdims=True) + (b**2).sum(axis=1) - 2.0 * (a @ b.T), 0.0)
    if kind in ("rbf", "rq"):
        return np.exp(-0.5 * squares if kind == "rbf" else -node["shape"] * np.log1p(squares / (2.0 * node["shape"])))
    u = math.sqrt(int(kind[-2])) * np.sqrt(squares)  # of matern12, matern32 and matern52
    return (1.0 + u * (kind != "matern12") + u**2 / 3.0 * (kind == "matern52")) * np.exp(-u)


class Predictor:
    """A model from the file that `export_numpy` has written; the methods are those of the estimator of cvgp."""

    def __init__(self, path: Any) -> None:
        with np.load(path, allow_pickle=False) as file:
            self.arrays = dict(file)
        self.spec = json.loads(str(self.arrays.pop("spec")))
        self._own = (slice(None), 0) if self.spec["single_output"] else slice(None)

    def predict(self, X: Any, return_std: bool = False, exposure: Any = None) -> Any:
        """The mean of y [n] or [n, Q], with its standard deviation on request; of a classifier, the classes [n]."""
        if "classes" in self.arrays:
            return self.arrays["classes"][self.predict_proba(X).argmax(axis=1)]
        mean, variance = self.moments(*self._latent(X, exposure))
        return (mean[self._own], np.sqrt(variance)[self._own]) if return_std else mean[self._own]

    def predict_interval(self, X: Any, level: float = 0.9, exposure: Any = None) -> Any:
        """Central intervals of a new y [n, 2] or [n, Q, 2]."""
        found = self._latent(X, exposure)
        return np.stack([self.quantile(0.5 + s * level, *found)[self._own] for s in (-0.5, 0.5)], axis=-1)

    def predict_proba(self, X: Any) -> Any:
        """The probabilities of the classes [n, C], in the order of `arrays["classes"]`."""
        return self.probabilities(*self._latent(X, None)[:2])

    def _latent(self, X: Any, exposure: Any) -> tuple[Any, Any, Any]:
        if (exposure is None) != (self.spec["exposure"] is None):
            raise ValueError("Give exposure if, and only if, the model was fitted to counts with exposures.")
        if isinstance(X, dict) and self.spec["columns"]:
            mean, f_var, noise = import_module("cvgp_table").latent(self, X)
        else:
            x, D = np.array(X, dtype=object if self.spec["needs_table"] else float), len(self.arrays["x_mean"])
            if self.spec["needs_table"] or x.ndim != 2 or x.shape[1] != D or not np.isfinite(x).all():
                raise ValueError(f"Give rows of {D} finite numbers, or a dictionary of columns; got shape {x.shape}.")
            mean, f_var, noise = self.latent_at(x)
        return mean if exposure is None else mean + np.log(exposure).reshape(-1, 1), f_var, noise

    def latent_at(self, x: Any) -> Any:
        """Mean and variance of f and the noise [n, Q], in the units of T(y), at features x [n, D]."""
        a, limit = self.arrays, self.spec["limit"]
        if self.spec["warped"]:
            columns = [x[:, d : d + 1] for d in range(len(a["x_mean"]))]
            for d in self.spec["warped"]:  # piecewise linear, `first` is a knot, its value and the slope below it
                steps = np.minimum(np.maximum(columns[d] - a[f"knots{d}"], 0.0), a[f"widths{d}"])
                knot, value, slope = a[f"first{d}"]
                columns[d] = steps @ a[f"slopes{d}"] + np.minimum(columns[d] - knot, 0.0) * slope + value
            x = np.concatenate(columns, axis=1)
        x = np.minimum(np.maximum((x - a["x_mean"]) * a["x_inverse_scale"], -limit), limit)
        found = [self._one_latent(f"{i}.", own, x) for i, own in enumerate(self.spec["latents"])]
        return found[0] if len(found) == 1 else [np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)]

    def _one_latent(self, i: str, own: dict[str, Any], x: Any) -> tuple[Any, Any, Any]:
        a, noise, scale, n = self.arrays, own["noise"], self.arrays[i + "y_scale"], own["noise_map"]
        if own["neighbors"]:
            f_mean, f_var = self._given_neighbors(i, own, x)
        else:
            K = kernel(own["kernel"], x, a[i + "X_c"])
            explained = ((K @ a[i + "T"].T) ** 2).sum(axis=1, keepdims=True)
            f_mean, f_var = K @ a[i + "alpha"], np.maximum(kernel(own["kernel"], x) - explained, 0.0)  # [n, Q], [n, 1]
        if n is not None:
            known = n["f_scale"] * f_var / np.maximum(f_var + n["variance_discount"], 1e-300)
            f_var = f_var * (known + max(1.0 - n["f_scale"], 0.0) * (f_var / n["f_prior"]) ** 2)
            log_noise = kernel(n, x, a[i + "centers"]) @ a[i + "noise_alpha"] + n["level"]
            noise = np.exp(np.minimum(np.maximum(log_noise, n["lowest"]), n["highest"]))
        return (f_mean + own["mean"]) * scale + a[i + "y_mean"], f_var * scale**2, (noise + 0.0 * f_var) * scale**2

    def _given_neighbors(self, i: str, own: dict[str, Any], x: Any) -> tuple[Any, Any]:
        """Mean [n, Q] and variance [n, 1] of f given the coreset and the nearest rows, found among all of them."""
        node, a, f_mean, f_var = own["kernel"], self.arrays, [], []
        rows, whiten = a[i + "rows"], a[i + "L_K_inv"].T
        for here in x[:, None]:
            if own["metric"] is None:
                far = -(kernel(node, here, rows)[0] ** 2) / np.maximum(kernel(node, rows)[:, 0], 1e-300)
            else:
                far = (((rows - here) * own["metric"]) ** 2).sum(axis=1)
            near = np.argpartition(far, own["neighbors"] - 1)[: own["neighbors"]]
            z = np.concatenate([rows[near], here])
            psi = kernel(node, z, a[i + "X_c"]) @ whiten  # [k + 1, M]
            K, r = kernel(node, z, z) - psi @ psi.T, np.sqrt(a[i + "precision"][near])
            eta = r * np.linalg.solve(r[:, None] * K[:-1, :-1] * r + np.eye(len(r)), r * K[:-1, -1])
            phi = psi[-1] - eta @ psi[:-1]
            f_mean.append(eta @ a[i + "rows_y"][near] + phi @ a[i + "u_mean"])
            f_var.append([max(K[-1, -1] - eta @ K[:-1, -1], 0.0) + ((phi @ a[i + "u_root"]) ** 2).sum()])
        return np.array(f_mean), np.array(f_var)

    def moments(self, mean: Any, f_var: Any, noise: Any) -> tuple[Any, Any]:
        """Mean and variance of y [n, Q]."""
        name, own = self.spec["likelihood"], self.spec["parameter"]
        if name in ("poisson", "negative_binomial", "gamma"):  # with the mean exp(f)
            mean = np.exp(np.minimum(mean + 0.5 * f_var, 300.0))
            spread = mean**2 * np.expm1(np.minimum(f_var, 300.0))
            square = (mean**2 + spread) / own
            return mean, spread + {"poisson": mean, "negative_binomial": mean + square, "gamma": square}[name]
        if name == "student_t" or (name is None and self.spec["transform"] == "identity"):
            return mean, f_var + (noise if name is None else own)
        points = mean[..., None] + np.sqrt(f_var + noise)[..., None] * self.arrays["nodes"]  # [n, Q, S]
        if name == "beta":
            y = (own / (1.0 + np.exp(-points)) + 1e-6) / (own + 2e-6)
            within = (y * (1.0 - y) / (own + 1.0 + 2e-6)) @ self.arrays["weights"]
        else:
            y, within = self._inverted(points), 0.0
        mean = y @ self.arrays["weights"]
        return mean, ((y - mean[..., None]) ** 2) @ self.arrays["weights"] + within

    def quantile(self, level: float, mean: Any, f_var: Any, noise: Any) -> Any:
        """One quantile of y [n, Q]; it is calibrated if the model is."""
        a, z, sd, share = self.arrays, NormalDist().inv_cdf(level), np.sqrt(f_var + noise), self.spec["outlier_share"]
        if self.spec["likelihood"] is not None:
            raise ValueError(f"There are no intervals of {self.spec['likelihood']} in this file, but mean and sd.")
        if "tail" in a:
            z = math.copysign(np.interp(-math.log(min(level, 1.0 - level)), a["tail"], a["tail_at"]), z)
        error = sd * z
        if share:  # by bisection between the quantiles of the two normal components
            wide = np.sqrt(sd**2 + a["outlier_variance"])
            low, high = np.minimum(error, wide * z), np.maximum(error, wide * z)
            for _ in range(60):
                error = 0.5 * (low + high)
                below = (1.0 - share) * _normal_cdf(error / sd) + share * _normal_cdf(error / wide)
                low, high = np.where(below < level, error, low), np.where(below < level, high, error)
        if "residuals" in a:
            error = sd * self._calibrated(level, error / sd)
        return self._inverted((mean + error)[..., None])[..., 0]

    def _inverted(self, t: Any) -> Any:
        a, name = self.arrays, self.spec["transform"]
        if name == "identity":
            return t
        t = np.minimum(np.maximum(t, a["low"]), a["high"])  # [n, Q, S]
        if name == "log":
            return np.exp(t)
        power = np.where(t >= 0.0, a["power"], 2.0 - a["power"])
        grown = np.log1p(power * np.abs(t)) / np.maximum(power, 1e-12)
        return a["centre"] + a["unit"] * np.sign(t) * np.expm1(np.where(power < 1e-12, np.abs(t), grown))

    def probabilities(self, mean: Any, f_var: Any) -> Any:
        """Probabilities of the classes [n, C], with the latent values [n, L] integrated out."""
        f, weights = mean[..., None] + np.sqrt(f_var)[..., None] * self.arrays["nodes"], self.arrays["weights"]
        if self.spec["likelihood"] == "categorical":
            p = np.exp(f - f.max(axis=1, keepdims=True))
            return (p / p.sum(axis=1, keepdims=True)) @ weights
        p = (_normal_cdf(f) if self.spec["likelihood"] == "probit" else 1.0 / (1.0 + np.exp(-f))) @ weights
        return np.concatenate([1.0 - p, p], axis=1)

    def _calibrated(self, level: float, own: Any) -> Any:
        """A conformal quantile [n, Q], from sorted residuals [m, Q], mirrored for levels below one half."""
        sign, level, found = 1 if level > 0.5 else -1, max(level, 1.0 - level), []
        for r, weights in zip(self.arrays["residuals"].T[:, ::sign], self.arrays["counts"].T[:, ::sign], strict=True):
            below, root = np.cumsum(weights), math.sqrt(level * (1.0 - level))
            wanted = np.array([level, level + root / math.sqrt(below[-1])]) * (below[-1] + 1.0) * (1.0 - 1e-12)
            found.append([*np.append(sign * r, np.inf)[np.searchsorted(below, wanted)], sign * r[-1]])
        exact, eased, most = np.array(found).T
        inner = np.maximum(exact, np.minimum(sign * own, eased))
        return sign * np.where(np.isinf(exact), np.maximum(sign * own, most), inner)
