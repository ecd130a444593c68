# SPDX-License-Identifier: Apache-2.0
"""Functions of TVM as TVMScript, which each release reads; their JSON differs by release.

Usage: scripts.py OUTPUT_FOLDER FILE.json...    (with a Python that has the TVM of these files)
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from typing import Any

import tvm

_SYMBOL = re.compile(r'(\w+) = TypeVar\("\w+"(?:, (?:T\.)?"?(\w+)"?(?:\(\))?)?\)')


def older(source: str) -> str:
    """Returns a script of TVM 0.27 as 0.25 and 0.26 read it.

    They have no type variables: symbols are declared in the body, where buffers are matched.
    """
    symbols: dict[str, str] = {}
    rest = []
    for line in source.splitlines():
        found = _SYMBOL.fullmatch(line)
        if found:
            symbols[found[1]] = found[2] or "int64"
        else:
            rest.append(line)
    if not symbols:
        return source
    func = next(n for n in ast.parse("\n".join(rest)).body if isinstance(n, ast.FunctionDef))
    taken = {arg.arg for arg in func.args.args}
    params = []
    body = [f"{name} = T.{dtype}()" for name, dtype in symbols.items() if name not in taken]
    for arg in func.args.args:
        annotation = ast.unparse(arg.annotation) if arg.annotation else "T.handle"
        names = {n.id for n in ast.walk(arg.annotation or arg) if isinstance(n, ast.Name)}
        if annotation.startswith("T.Buffer(") and names & set(symbols):
            params.append(f"var_{arg.arg}: T.handle")
            rest_of = annotation[len("T.Buffer(") :]
            body.append(f"{arg.arg} = T.match_buffer(var_{arg.arg}, {rest_of}")
        else:
            params.append(f"{arg.arg}: {annotation}")
    head = [f"@{ast.unparse(decorator)}" for decorator in func.decorator_list]
    head += [f"def {func.name}({', '.join(params)}):", *("    " + line for line in body)]
    return "\n".join([*head, *rest[func.body[0].lineno - 1 :]]) + "\n"


def read(path: pathlib.Path) -> Any:
    """Returns the function in a file of JSON or TVMScript."""
    text = path.read_text()
    if path.suffix == ".json":
        return tvm.ir.load_json(text)
    release = tuple(int(part) for part in str(tvm.__version__).split(".")[:2])
    return tvm.script.from_source(text if release >= (0, 27) else older(text))


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:]:
        path = pathlib.Path(name)
        if (folder / f"{path.stem}.py").exists():  # Files are named by content.
            continue
        try:
            text = read(path).script()
        except Exception as error:
            print(f"{path.stem}: {str(error).strip().splitlines()[-1][:120]}", file=sys.stderr)
            continue
        (folder / f"{path.stem}.py").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
