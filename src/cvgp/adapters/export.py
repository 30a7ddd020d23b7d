"""Fitted estimators for machines without torch: arrays for a predictor that needs NumPy alone, and ONNX graphs.

Both run the same formulas, those of `standalone/cvgp_predictor.py`; for ONNX they are traced.
"""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch import kernels, means
from sklearn.utils.validation import check_is_fitted

from cvgp.adapters.standalone import cvgp_predictor
from cvgp.errors import FileAccessError, InvalidInputError, NotSupportedError
from cvgp.estimators.fitted import FARTHEST, FittedGP, as_array
from cvgp.estimators.frames import schema_of
from cvgp.estimators.predictive import NODES, Predictive, tail_nodes
from cvgp.files import atomic_write, checked_path
from cvgp.gp import likelihoods
from cvgp.gp.kernels import QuasiperiodicKernel, name_of_kernel, stationary_form
from cvgp.gp.noise import upper_tail
from cvgp.tables.columns import Schema, feature_slices
from cvgp.tables.encode import DRAWS, UNKNOWN, new_inputs

STANDALONE = Path(cvgp_predictor.__file__).parent
PARAMETERS = {"poisson": None, "negative_binomial": "size", "gamma": "shape", "beta": "precision", "student_t": ""}
CLASSES = ("bernoulli", "probit", "categorical")


def export_numpy(estimator: Any, path: Any, *, overwrite: bool = False) -> None:
    """Write what `PageMixin.export_numpy` describes."""
    content, target = _content(estimator), checked_path(path)
    if target.suffix != ".npz":
        raise InvalidInputError(f"path must end in .npz, since the file has NumPy arrays; got {target}.")
    files = {target: content}
    names = ["cvgp_predictor.py"] if schema_of(estimator) is None else ["cvgp_predictor.py", "cvgp_table.py"]
    for name in names:
        text, beside = (STANDALONE / name).read_bytes(), target.with_name(name)
        if not beside.is_file() or beside.read_bytes() != text:  # that of another model may be there
            files[beside] = text
    _write(files, overwrite)


def _write(files: dict[Path, bytes], overwrite: bool) -> None:
    """Write all files, none of which may exist."""
    existing = [str(path) for path in files if path.exists()]
    if existing and not overwrite:
        raise FileAccessError(f"{' and '.join(existing)} would be replaced; give overwrite=True, or another name.")
    for path, content in files.items():
        with atomic_write(path) as temporary:
            temporary.write_bytes(content)


def _content(estimator: Any) -> bytes:
    """The .npz file of an estimator."""
    check_is_fitted(estimator)
    gps: list[FittedGP] = getattr(estimator, "_gps", None) or [estimator._gp]
    first = gps[0]
    spec, arrays = _of_scaling(first)
    spec["latents"] = [_latent(f"{i}.", gp, arrays) for i, gp in enumerate(gps)]
    spec |= {"exposure": first.exposure, "transform": first.target.name, "likelihood": None, "parameter": 1.0}
    spec |= {"single_output": bool(getattr(estimator, "_single_output", True)), "outlier_share": 0.0}
    if first.likelihood is None:
        first.need_gaussian("export_numpy", alike=True)
        _add_noise(first, spec, arrays)
    else:
        _add_likelihood(first.likelihood, spec, arrays)
    if hasattr(estimator, "classes_"):
        classes = estimator.classes_
        arrays["classes"] = np.array(classes.tolist()) if classes.dtype == object else classes
        if arrays["classes"].dtype == object:
            raise NotSupportedError("The classes are neither text nor numbers, and a file for NumPy has only these.")
    schema = schema_of(estimator)
    spec["needs_table"] = schema is not None and not schema.is_numeric
    spec["columns"] = [] if schema is None else _add_columns(schema, arrays)
    stream = io.BytesIO()
    np.savez_compressed(stream, spec=np.array(json.dumps(spec)), **arrays)
    return stream.getvalue()


def _of_scaling(gp: FittedGP) -> tuple[dict[str, Any], dict[str, Any]]:
    own, paths = gp.scaling, gp.scaling.warp.paths()
    inverse = np.divide(1.0, own.x_scale, out=np.zeros_like(own.x_scale), where=own.varies)
    arrays = {"x_mean": own.x_mean, "x_inverse_scale": inverse}
    for d, path in paths.items():
        low, high = path.outer_slopes()
        widths = np.diff(path.knots)
        arrays[f"knots{d}"], arrays[f"widths{d}"] = path.knots, np.append(widths, np.inf)
        arrays[f"slopes{d}"] = np.append(np.diff(path.values) / widths, high)[:, None]
        arrays[f"first{d}"] = np.array([path.knots[0], path.values[0], low])
    return {"warped": list(paths), "limit": min(own.x_limit, FARTHEST)}, arrays


def _latent(i: str, gp: FittedGP, arrays: dict[str, Any]) -> dict[str, Any]:
    """One function: adds its arrays, and returns its numbers."""
    model = gp.model
    if type(model.mean) not in (means.ZeroMean, means.ConstantMean):
        raise NotSupportedError(f"The prior mean {type(model.mean).__name__} cannot be exported, but a constant can.")
    D, found = model.X_c.shape[1], {"kernel": _kernel(model.kernel, model.X_c.shape[1]), "neighbors": 0, "metric": None}
    found["mean"] = 0.0 if isinstance(model.mean, means.ZeroMean) else model.mean.constant.item()
    arrays |= {i + "y_mean": gp.scaling.y_mean, i + "y_scale": gp.scaling.y_scale, i + "X_c": as_array(model.X_c)}
    if gp.kept is None:
        factor = gp.process.factor
        arrays[i + "alpha"] = as_array(factor.alpha).reshape(len(model.X_c), -1)
        arrays[i + "T"] = as_array(factor.T)
    else:
        process = gp.kept.process(model)
        form = stationary_form(model.kernel, D)
        found["neighbors"] = min(process.num_neighbors, len(process.data.x))
        found["metric"] = None if form is None else as_array(form.inverse_lengthscale).tolist()
        parts = {"rows": process.data.x, "rows_y": process.data.y, "precision": process.data.precision}
        parts |= {"L_K_inv": process.points.L_K_inv, "u_mean": process.u.mean, "u_root": process.u.root}
        arrays |= {i + name: as_array(values) for name, values in parts.items()}
    found["noise"], found["noise_map"] = (model.noise.item() if gp.likelihood is None else 0.0), None
    if gp.noise is not None:
        own = {name: as_array(values) for name, values in gp.noise._asdict().items()}
        arrays |= {i + "centers": own["centers"], i + "noise_alpha": own["alpha"][:, None]}
        named = ("f_scale", "variance_discount", "f_prior", "level", "lowest", "highest")
        lengthscale = {"kind": "matern32", "inverse_lengthscale": own["inverse_lengthscale"].tolist()}
        found["noise_map"] = lengthscale | {name: own[name].item() for name in named}
    return found


def _kernel(kernel: kernels.Kernel, num_dims: int) -> dict[str, Any]:
    """A kernel as a tree of formulas; columns that it does not see have zeros."""
    kind = type(kernel)
    if kind in (kernels.AdditiveKernel, kernels.ProductKernel, QuasiperiodicKernel) and kernel.active_dims is None:
        parts = [_kernel(part, num_dims) for part in kernel.kernels]
        return {"kind": "sum" if kind is kernels.AdditiveKernel else "product", "parts": parts}
    if kind is kernels.ScaleKernel and kernel.active_dims is None and kernel.outputscale.ndim == 0:
        return {"kind": "scale", "scale": kernel.outputscale.item(), "parts": [_kernel(kernel.base_kernel, num_dims)]}
    seen = range(num_dims) if kernel.active_dims is None else kernel.active_dims.tolist()

    def spread(values: Any) -> list[float]:
        found = np.zeros(num_dims)
        found[list(seen)] = as_array(values).reshape(-1)
        return found.tolist()

    if not kernel.batch_shape:
        if kind is kernels.LinearKernel:
            return {"kind": "linear", "variance": spread(kernel.variance)}
        if kind is kernels.PeriodicKernel:
            weight = spread(2.0 / kernel.lengthscale)
            return {"kind": "periodic", "frequency": spread(math.pi / kernel.period_length), "weight": weight}
        if kind in (kernels.RBFKernel, kernels.RQKernel, kernels.MaternKernel):
            shape = {"shape": kernel.alpha.item()} if kind is kernels.RQKernel else {}
            return {"kind": name_of_kernel(kernel), "inverse_lengthscale": spread(1.0 / kernel.lengthscale), **shape}
    raise NotSupportedError(
        f"The kernel {kind.__name__} cannot be exported; those with a name in cvgp can, their sums and products."
    )


def _add_noise(gp: FittedGP, spec: dict[str, Any], arrays: dict[str, Any]) -> None:
    """What decides the distribution of y around the mean of T(y)."""
    nothing = np.zeros((1, len(gp.scaling.y_mean)))
    shape = Predictive(gp.target, nothing, nothing, nothing, tails=gp.tails, rare_share=gp.rare_share).shape
    if gp.outliers is not None:
        spec["outlier_share"], arrays["outlier_variance"] = float(gp.outliers.share), gp.outliers.variance
    elif shape is not None:
        at, upper = upper_tail(tuple(shape.multipliers.tolist()), tuple(shape.weights.tolist()))
        arrays |= {"tail": -upper, "tail_at": at}
    if gp.calibration is not None:
        arrays |= {"residuals": gp.calibration.residuals, "counts": gp.calibration.weights}
    if gp.target.name != "identity":
        arrays |= {name: value[:, None] for name, value in gp.target._asdict().items() if name != "name" and len(value)}
        if gp.tails is None:
            nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        else:
            nodes, weights = tail_nodes(gp.tails)
        arrays |= {"nodes": nodes, "weights": weights / weights.sum()}


def _add_likelihood(likelihood: Any, spec: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Its name and parameter, and the nodes by which latent values are integrated out."""
    name = spec["likelihood"] = likelihood.name
    if name not in (*PARAMETERS, *CLASSES):
        raise NotSupportedError(f"The likelihood {likelihood!r} cannot be exported; those with a name in cvgp can.")
    if name == "student_t":
        _, _, spread = likelihood.moments(*torch.zeros(2, 1, 1, dtype=torch.float64))
        spec["parameter"] = spread.item()
    elif name in PARAMETERS:
        spec["parameter"] = getattr(likelihood, PARAMETERS[name] or "", 1.0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(likelihoods.NODES)
    if isinstance(likelihood, likelihoods.Softmax):
        C = likelihood.num_classes
        zeros = torch.zeros(C, dtype=torch.float64)
        nodes = as_array(likelihood.draws(zeros[None], zeros[None] + 1.0).squeeze(1).mT)  # [C, S]
        weights = np.ones(nodes.shape[-1])
    arrays |= {"nodes": nodes, "weights": weights / weights.sum()}


def _add_columns(schema: Schema, arrays: dict[str, Any]) -> list[dict[str, Any]]:
    """The columns of a table, with the features of cells that are categories, unknown or missing."""
    columns, found = schema.columns, []
    for j, (column, at) in enumerate(zip(columns, feature_slices(columns), strict=True)):
        own = [*np.arange(len(column.categories)), np.nan, UNKNOWN] if column.is_text else [np.nan]
        cells = np.zeros((len(own), len(columns)))
        cells[:, j] = own
        inputs, _ = new_inputs(columns, cells)
        arrays[f"features{j}"] = inputs.x[:, at]
        for kind, known in (("open", inputs.unknown), ("gap", inputs.gaps)):
            is_it, draws = np.zeros(len(own), dtype=np.bool_), np.zeros((len(own), DRAWS, at.stop - at.start))
            for part in known:
                if part.features == at:
                    is_it[part.rows], draws[part.rows] = True, part.values
            arrays |= {f"{kind}{j}": is_it, f"{kind}_draws{j}": draws}
        kind = "text" if column.is_text else "number" if column.kind in ("numeric", "boolean") else column.kind
        described = {"name": column.name, "kind": kind, "parts": column.parts, "marks_missing": column.marks_missing}
        described |= {"categories": column.categories, "features": [at.start, at.stop], "period": column.period}
        found.append(described)
    return found


FIRST_OPSET = 13  # whose ReduceSum takes axes as an input
OPERATORS = {
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "matmul": "MatMul",
    "greater_equal": "GreaterOrEqual",
}
OPERATORS |= {"maximum": "Max", "minimum": "Min", "absolute": "Abs", "negative": "Neg"}  # others by their own names


def export_onnx(
    estimator: Any, path: Any, *, opset: int = 17, level: float | None = 0.9, overwrite: bool = False
) -> None:
    """Write what `PageMixin.export_onnx` describes."""
    import onnx
    from onnx import helper

    target, last = checked_path(path), onnx.defs.onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, int) or not FIRST_OPSET <= opset <= last:
        raise InvalidInputError(f"opset must be from {FIRST_OPSET} to {last} with this version of onnx; got {opset!r}.")
    if level is not None and not 0.0 < level < 1.0:
        raise InvalidInputError(f"level must be between 0 and 1, or None for no interval; got {level!r}.")
    model = cvgp_predictor.Predictor(io.BytesIO(_content(estimator)))
    spec, graph = model.spec, _Graph(opset)
    is_classifier = "classes" in model.arrays
    reasons: dict[str, bool] = {
        "its neighbors; fit with n_neighbors=0": any(own["neighbors"] for own in spec["latents"]),
        "columns that are not numbers; encode them before the fit": spec["needs_table"],
        f"intervals of {spec['likelihood']}; give level=None for mean and sd": not is_classifier
        and spec["likelihood"] is not None
        and level is not None,
    }
    if refused := [reason for reason, applies in reasons.items() if applies]:
        raise NotSupportedError(f"ONNX has no operators for {', nor for '.join(refused)}. export_numpy may do.")
    names = ["x"] if spec["exposure"] is None else ["x", "exposure"]
    f_mean, f_var, noise = model.latent_at(_Traced(graph, "x"))
    if is_classifier:
        outputs = {"probabilities": model.probabilities(f_mean, f_var)}
    else:
        f_mean = f_mean if len(names) == 1 else f_mean + np.log(_Traced(graph, "exposure"))
        mean, variance = model.moments(f_mean, f_var, noise)
        outputs = {"mean": mean, "sd": np.sqrt(variance)}
        if level is not None:
            for name, half in (("lower", -0.5), ("upper", 0.5)):
                outputs[name] = model.quantile(0.5 + half * level, f_mean, f_var, noise)
        outputs = {name: values[..., 0] if spec["single_output"] else values for name, values in outputs.items()}
    shape: list[Any] = ["n", len(model.arrays["classes"] if is_classifier else model.arrays["0.y_mean"])]
    shape = shape[: 1 if spec["single_output"] and not is_classifier else 2]
    for name, values in outputs.items():
        graph.nodes.append(helper.make_node("Identity", [values.name], [name]))
    double, widths = onnx.TensorProto.DOUBLE, {"x": len(model.arrays["x_mean"]), "exposure": 1}
    made = helper.make_graph(
        graph.nodes,
        "cvgp",
        [helper.make_tensor_value_info(name, double, ["n", widths[name]]) for name in names],
        [helper.make_tensor_value_info(name, double, shape) for name in outputs],
        [onnx.numpy_helper.from_array(values, name) for name, values in graph.constants.values()],
    )
    versions = [helper.make_opsetid("", opset)]
    whole = helper.make_model(
        made, producer_name="cvgp", opset_imports=versions, ir_version=helper.find_min_ir_version_for(versions)
    )
    if is_classifier:
        helper.set_model_props(whole, {"classes": json.dumps(model.arrays["classes"].tolist())})
    onnx.checker.check_model(whole)
    _write({target: whole.SerializeToString()}, overwrite)


class _Graph:
    """The nodes and constants of a computation."""

    def __init__(self, opset: int) -> None:
        self.opset, self.nodes = opset, list[Any]()
        self.constants: dict[Any, tuple[str, Any]] = {}

    def name_of(self, value: Any) -> str:
        """The name of a traced value, or of a constant."""
        if isinstance(value, _Traced):
            return str(value.name)
        array = np.asarray(value)
        array = array if array.dtype in (np.bool_, np.int64) and array.ndim else array.astype(np.float64)
        key = array.dtype.str, array.shape, array.tobytes()
        return self.constants.setdefault(key, (f"c{len(self.constants)}", array))[0]

    def add(self, operator: str, *inputs: Any, **attributes: Any) -> _Traced:
        """The result of an operator."""
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(map(self.name_of, inputs)), [name], **attributes))
        return _Traced(self, name)


class _Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of a computation that NumPy's functions write down."""

    def __init__(self, graph: _Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any) -> _Traced:
        add, name = self.graph.add, ufunc.__name__
        if ufunc is cvgp_predictor.erf:  # which runtimes have in single precision
            return add("Cast", add("Erf", add("Cast", *inputs, to=1)), to=11)
        if name == "power" and inputs[1] == 2:
            return add("Mul", inputs[0], inputs[0])
        if name == "log1p":
            return add("Log", add("Add", inputs[0], 1.0))
        if name == "expm1":
            return add("Sub", add("Exp", *inputs), 1.0)
        return add(OPERATORS.get(name, name.title()), *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> _Traced:
        if function is np.concatenate:
            return self.graph.add("Concat", *args[0], **kwargs)
        assert function is np.where, "the predictor uses no other function"
        return self.graph.add("Where", *args)

    def __getitem__(self, key: Any) -> _Traced:
        add, place, axis = self.graph.add, key[-1], np.array([-1])
        if place is None:
            return add("Unsqueeze", self, axis)
        if isinstance(place, slice):
            return add("Slice", self, np.array([place.start]), np.array([place.stop]), axis)
        return add("Squeeze", add("Gather", self, np.array([place]), axis=-1), axis)

    def sum(self, axis: int, keepdims: bool) -> _Traced:
        """The sum along an axis, which stays."""
        return self.graph.add("ReduceSum", self, np.array([axis]))

    def max(self, axis: int, keepdims: bool) -> _Traced:
        """The largest values along an axis, which stays."""
        if self.graph.opset < 18:
            return self.graph.add("ReduceMax", self, axes=[axis])
        return self.graph.add("ReduceMax", self, np.array([axis]))

    def astype(self, kind: type) -> _Traced:
        """All traced values are in double precision."""
        return self
