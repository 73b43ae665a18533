"""Execute notebooks and keep their outputs: ``python notebooks/run_notebooks.py [NOTEBOOK...]``, or ``make notebooks``.

Cells run one after the other in one namespace, as in Jupyter; the value of a cell's last line is shown by its
``_repr_html_``, charts as pictures, so that the notebooks can be read where nothing runs them. No Jupyter is needed.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def execute(notebook: dict[str, Any], name: str = "notebook") -> dict[str, Any]:
    """Run every code cell; an exception goes through, with the cell's number in its traceback.

    Parameters
    ----------
    notebook
        The parsed `.ipynb`.
    name
        What tracebacks call it.

    Returns
    -------
    dict
        The same notebook with fresh outputs.
    """
    space: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        cell["execution_count"] = count
        cell["outputs"] = _run("".join(cell["source"]), space, f"{name}, cell {count}", count)
    return notebook


def _run(source: str, space: dict[str, Any], label: str, count: int) -> list[dict[str, Any]]:
    tree = ast.parse(source, label)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    value = None
    with contextlib.redirect_stdout(said):
        exec(compile(tree, label, "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), label, "eval"), space)
    outputs: list[dict[str, Any]] = []
    if said.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": said.getvalue().splitlines(keepends=True)})
    if value is not None:
        outputs.append(
            {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": _shown(value)}
        )
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    """What Jupyter would show: HTML where the object has it, a picture of a chart, else its repr."""
    import altair as alt

    if isinstance(value, alt.TopLevelMixin):
        import vl_convert

        spec = value.to_dict()
        spec["background"] = "white"
        picture = vl_convert.vegalite_to_png(spec, scale=1, show_warnings=False)
        summary = str((spec.get("usermeta") or {}).get("summary", "Chart."))
        return {"image/png": base64.b64encode(picture).decode(), "text/plain": [summary]}
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    html = getattr(value, "_repr_html_", None)
    if html is not None:
        data["text/html"] = html().splitlines(keepends=True)
    return data


def main(names: list[str]) -> int:
    """Execute the named notebooks, or all, in place."""
    # Captures are named relative to this folder.
    os.chdir(HERE)
    for path in [HERE / name for name in names] or sorted(HERE.glob("*.ipynb")):
        done = execute(json.loads(path.read_text(encoding="utf-8")), path.name)
        path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.name}: {sum(cell['cell_type'] == 'code' for cell in done['cells'])} cells")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
