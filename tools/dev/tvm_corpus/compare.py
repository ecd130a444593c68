# SPDX-License-Identifier: Apache-2.0
"""Runs imported functions with quern, and compares with TVM's results.

The checked build runs first: what it stops at, such as an index out of bounds, is undefined in
the test itself, and the function is listed apart. TVM's arrays are those of reference.py.
"""

from __future__ import annotations

import collections
import json
import pathlib
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

#: Tolerance: relative to the element, and to the root mean square of the array. TVM adds in
#: another order, and its functions have other bounds. It adds f16 in f16: a sum of 1280 products
#: in its tests is wrong by 2.7 % of the size of the array.
TOLERANCES = {
    "float64": (1e-9, 1e-11), "float32": (2e-4, 2e-5), "float16": (2e-2, 3e-2),
    "bfloat16": (5e-2, 5e-2), "float8_e4m3fn": (0.13, 0.13), "float8_e5m2": (0.26, 0.26),
}  # fmt: skip
TIMEOUT_S = 120
#: Seconds on the first target where a second one takes the functions that run longer.
SHORT_TIMEOUT_S = 3


def load(path: pathlib.Path, dtype: str) -> np.ndarray:
    """Returns a saved array; bf16 and the 8-bit floats are saved as their bits."""
    array = np.load(path)
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    if dtype == "float8_e5m2":
        return (array.astype(np.uint16) << 8).view(np.float16)
    if dtype == "float8_e4m3fn":
        return np.array([_e4m3(int(bits)) for bits in array.ravel()]).reshape(array.shape)
    return array


def _e4m3(bits: int) -> float:
    sign, exponent, fraction = (-1.0 if bits & 128 else 1.0), bits >> 3 & 15, bits & 7
    if exponent == 15 and fraction == 7:
        return float("nan")
    return sign * (fraction * 2.0**-9 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10))


def difference(ours: np.ndarray, theirs: np.ndarray, again: np.ndarray, dtype: str) -> str | None:
    """Returns how two arrays differ beyond the tolerance, or None.

    Elements that TVM's two runs left different were not written, and do not count.
    """
    if ours.shape != theirs.shape:
        return f"shapes {ours.shape} and {theirs.shape}"
    if dtype not in TOLERANCES:
        wrong = ours != theirs
    else:
        relative, of_size = TOLERANCES[dtype]
        wide = (ours.astype(np.float64), theirs.astype(np.float64))
        finite = wide[1][np.isfinite(wide[1])]
        size = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
        wrong = ~np.isclose(*wide, rtol=relative, atol=of_size * size + 1e-30, equal_nan=True)
    wrong &= (theirs == again) | (theirs != theirs) & (again != again)
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements, {at}: {ours[at]} for {theirs[at]}"


class Runner:
    """Runs ``quern run`` on the arrays of one function."""

    def __init__(self, quern: str, target: str, timeout_s: float = TIMEOUT_S) -> None:
        self.quern = quern
        self.target = target
        self.timeout_s = timeout_s

    def run(
        self, folder: pathlib.Path, meta: dict[str, Any], extra: list[str]
    ) -> tuple[str, list[str]]:
        """Returns an error, or "" and the differences from TVM's arrays."""
        with tempfile.TemporaryDirectory() as scratch:
            command = [self.quern, "run", str(folder / "module.qn"), "--func", meta["function"],
                       "--target", self.target, "--tier", "fast", *extra]  # fmt: skip
            for entry in meta["arguments"]:
                name = entry["name"]
                value = entry.get("value", folder / f"{name}.before.npy")
                command += ["--arg", f"{name}={value}"]
                if name in meta["outputs"]:
                    command += ["--out", f"{name}={scratch}/{name}.npy"]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=self.timeout_s
                )
            except subprocess.TimeoutExpired:
                return "timeout", []
            if done.returncode != 0:
                return done.stderr.strip()[:600] or f"exit code {done.returncode}", []
            differences = []
            for entry in meta["arguments"]:
                name, dtype = entry["name"], entry["dtype"]
                if name not in meta["outputs"]:
                    continue
                ours = load(pathlib.Path(scratch) / f"{name}.npy", dtype)
                theirs = load(folder / f"{name}.after.npy", dtype)
                again = load(folder / f"{name}.again.npy", dtype)
                wrong = difference(ours, theirs, again, dtype)
                if wrong:
                    differences.append(f"{name}: {wrong}")
            return "", differences


def verify(quern: str, folders: list[pathlib.Path]) -> dict[str, str]:
    """Returns the diagnostics of texts that the verifier refuses, by folder name."""
    refused = {}
    for begin in range(0, len(folders), 100):
        files = [str(folder / "module.qn") for folder in folders[begin : begin + 100]]
        done = subprocess.run([quern, "check", "--json", *files], capture_output=True, text=True)
        for entry in json.loads(done.stdout)["files"]:
            if not entry["is_ok"]:
                first = entry["diagnostics"][0]
                name = pathlib.Path(entry["file"]).parent.name
                refused[name] = f"{first['code']} {first['message']}"
    return refused


def judge(runner: Runner, folder: pathlib.Path, meta: dict[str, Any]) -> tuple[str, str]:
    """Returns the outcome for one function: a word and its explanation."""
    error, differences = runner.run(folder, meta, ["--checked"])
    if any(word in error for word in ("out of bounds", "division by zero")):
        return "undefined", error.splitlines()[0]
    if not error and not runner.target.startswith("interp"):  # Its code is the same.
        error, differences = runner.run(folder, meta, [])
    if error:
        return "error", error
    return ("differ", "; ".join(differences)) if differences else ("agree", "")


def compare(
    quern: str, target: str, root: pathlib.Path, jobs: int, names: set[str], slow: str | None = None
) -> dict[str, Any]:
    """Returns the outcome of the functions ``names`` under ``root``, by folder name.

    ``slow`` is the target for those that run longer than SHORT_TIMEOUT_S on ``target``.
    """
    metas = {name: json.loads((root / name / "meta.json").read_text()) for name in sorted(names)}
    texts = [root / name for name in metas if (root / name / "module.qn").exists()]
    invalid = verify(quern, texts)
    runner = Runner(quern, target, SHORT_TIMEOUT_S if slow else TIMEOUT_S)

    def one(name: str) -> tuple[str, str]:
        meta = metas[name]
        if "refused" in meta:
            return "refused", f"{meta['refused']}: {meta['detail']}" if meta["detail"] else meta[
                "refused"
            ]
        if "failed" in meta:
            return "failed", meta["failed"]
        if name in invalid:
            return "invalid", invalid[name]
        if "arguments" not in meta:
            return "imported", meta.get("no_reference", "")
        found = judge(runner, root / name, meta)
        if slow and found == ("error", "timeout"):
            return judge(Runner(quern, slow), root / name, meta)
        return found

    with ThreadPoolExecutor(jobs) as pool:
        outcomes = dict(zip(metas, pool.map(one, metas)))
    return {
        name: {
            "outcome": outcome,
            "why": why,
            "test": metas[name].get("test", ""),
            "is_worth_another_try": outcome == "undefined"
            or outcome == "imported"
            and why.startswith("TVM"),
        }
        for name, (outcome, why) in outcomes.items()
    }


def summary(results: dict[str, Any]) -> str:
    """Returns counts of outcomes, and of refusals by reason, as text."""
    outcomes = collections.Counter(entry["outcome"] for entry in results.values())
    lines = [f"{len(results)} functions"]
    lines += [f"{count:6} {outcome}" for outcome, count in outcomes.most_common()]
    for outcome in ("refused", "invalid", "error", "failed", "undefined", "differ", "imported"):
        reasons = collections.Counter(
            entry["why"].removeprefix("quern: ").split(":")[0].splitlines()[0] if outcome != "failed"
            else entry["why"].strip().splitlines()[-1]
            for entry in results.values() if entry["outcome"] == outcome and entry["why"]
        )  # fmt: skip
        if reasons:
            lines += ["", f"{outcome}:"]
            lines += [f"{count:6} {reason}" for reason, count in reasons.most_common(60)]
    return "\n".join(lines)
