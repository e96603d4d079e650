"""The tables of variables for docs/migrating.md, in Markdown."""

from __future__ import annotations

from .cluster import CLUSTER
from .tgi import HUGGING_FACE, TGI
from .variable import Variable
from .vllm_image import ARGUMENTS, LIBRARY, PREFIX, SERVER, SIZES

__all__ = ["variables_table"]

REFUSED = ("refused", "by hand")


def variables_table() -> str:
    """What becomes of each variable: of a cluster's, Hugging Face's and TGI's, then of AWS's vLLM images."""
    served = [*CLUSTER, *HUGGING_FACE, *TGI, *LIBRARY, *SIZES, *SERVER]
    return "\n".join(
        [
            "\\* Other software sets it too: only beside `MODEL_ID` or `HF_MODEL_ID`.",
            "",
            "| variable | here | |",
            "| --- | --- | --- |",
            "| `HF_MODEL_ID`, `MODEL_ID` | `option.model_id` | Where the model directory holds no model. |",
            "| `HF_REVISION`, `HF_MODEL_REVISION`, `REVISION` | `option.revision` | Beside the one above. |",
            "| `HF_TASK` | `option.task` | Beside `HF_MODEL_ID`. |",
            *(_row(variable) for variable in served if variable.fate == "option"),
            *(_row(variable) for variable in served if variable.fate in REFUSED),
            "",
            f"Without effect \\*, which the log says: {_list(served, 'nothing')}.",
            "",
            f"Never read, as other software sets them too: {_list(served, 'unread')}.",
            "",
            f"Of `SM_VLLM_*`, without effect: {_list([*ARGUMENTS.values()], 'nothing')}.",
            "",
            f"Of `SM_VLLM_*`, refused with what to write instead: {_list([*ARGUMENTS.values()], *REFUSED)}.",
        ]
    )


def _row(variable: Variable) -> str:
    name = f"`{variable.name}`" + (" \\*" if variable.generic else "")
    if variable.fate in REFUSED:
        return f"| {name} | refused | {variable.what_to_do[0].upper()}{variable.what_to_do[1:]}. |"
    return f"| {name} | {', '.join(f'`option.{one}`' for one in variable.options)} | {variable.help} |"


def _list(variables: list[Variable], *fates: str) -> str:
    return ", ".join(f"`{variable.name.removeprefix(PREFIX)}`" for variable in variables if variable.fate in fates)
