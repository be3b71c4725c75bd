"""An environment in place of Colab's, in which each notebook is run alone in a folder."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode, v4

from environments import fresh
from notebook_form import SET_UP_ID, code_cells, public_address
from snapshot import publish, redirect

# What Colab had in August 2026, as far as notebooks of this course meet it.
PYTHON = "3.13"
VERSIONS = {
    "torch": "2.11.0",
    "numpy": "2.1.3",
    "matplotlib": "3.10.0",
    "ipython": "7.34.0",
    "ipykernel": "6.17.1",
    "tqdm": "4.67.1",
}
OURS = "ask-match-blend"
# Of two with one name the first is what an import finds.
INSTALLED = """\
import importlib.metadata, json
found = {}
for one in importlib.metadata.distributions():
    found.setdefault(one.name, one.version)
print(json.dumps(found))"""
LIMIT = 600  # seconds a cell may take; Colab has none


class ColabError(Exception):
    """Something does not work as it should in Colab; the message says what."""


@dataclass(frozen=True)
class StandIn:
    """An environment in place of Colab's: its folder, its Python, what git sees of the network."""

    folder: Path
    python: Path
    git: dict[str, str]

    def versions(self) -> dict[str, str]:
        """All that is installed, by name."""
        done = subprocess.run(
            [self.python, "-I", "-c", INSTALLED], check=True, stdout=subprocess.PIPE
        )
        return dict(json.loads(done.stdout))

    def run(self, notebook: NotebookNode, name: str) -> NotebookNode:
        """The notebook after all its cells have run, the first of which installed the package.

        ColabError where a cell fails, or where anything else that is installed changed.
        """
        before = self.versions()
        if OURS in before:
            raise ColabError(f"{OURS} is there before the set-up cell has run")
        alone = self.folder / "content"
        shutil.rmtree(alone, ignore_errors=True)
        alone.mkdir()
        (alone / f"{name}.ipynb").write_text(v4.writes(notebook), encoding="utf-8")
        try:
            done = self._execute(notebook, alone)
            after = self.versions()
        finally:
            uninstall = [self.python, "-m", "pip", "uninstall", "--quiet", "--yes", OURS]
            subprocess.run(uninstall, check=True, cwd=self.folder, env=self._environment())
        if OURS not in after:
            raise ColabError("the set-up cell installed nothing")
        after.pop(OURS)
        if after != before:
            changed = sorted(
                f"{name} {version}" for name, version in after.items() - before.items()
            )
            raise ColabError(f"what was there before is not as it was: {changed}")
        return done

    def _execute(self, notebook: NotebookNode, alone: Path) -> NotebookNode:
        done = v4.reads(v4.writes(notebook))
        first = code_cells(done)[0]
        again = v4.new_code_cell(first.source)
        done.cells.append(again)
        client = NotebookClient(
            done,
            km=self._kernel(),
            extra_arguments=["--log-level=ERROR"],
            timeout=LIMIT,
            startup_timeout=LIMIT,
            force_raise_errors=True,
            record_timing=False,
        )
        with client.setup_kernel(cwd=str(alone), env=self._environment(), cleanup_kc=True):
            for index, cell in enumerate(done.cells):
                try:
                    client.execute_cell(cell, index)
                except CellExecutionError as error:
                    where = cell.metadata.get("id")
                    raise ColabError(f"[{where}] {error.ename}: {error.evalue}") from None
                if cell is first and not printed(cell).startswith("Installed qkv from git+"):
                    raise ColabError(f"[{SET_UP_ID}] said {printed(cell)!r}")
        done.cells.pop()
        if again.outputs:
            raise ColabError(f"[{SET_UP_ID}] did something when it ran again: {again.outputs}")
        return done

    def _kernel(self) -> AsyncKernelManager:
        kernels = self.folder / "kernels"
        (kernels / "colab").mkdir(parents=True, exist_ok=True)
        argv = [str(self.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": "Colab", "language": "python"}
        (kernels / "colab" / "kernel.json").write_text(json.dumps(spec))
        manager = KernelSpecManager(kernel_dirs=[str(kernels)])
        return AsyncKernelManager(kernel_name="colab", kernel_spec_manager=manager)

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        quiet = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}  # a debugger's warning, at each start
        return kept | self.git | quiet | {"IPYTHONDIR": str(self.folder / "ipython")}


def printed(cell: NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def like_colab(folder: Path) -> Path:
    """A fresh environment with Colab's versions; its Python."""
    python = fresh(folder / "like-colab", PYTHON)
    wanted = [f"{name}=={version}" for name, version in VERSIONS.items()]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    return python


def at_hand(folder: Path) -> Path:
    """A fresh environment that sees what this one has, but for qkv; its Python.

    It costs no time and no room, and has not Colab's versions.
    """
    site = folder / "site"
    site.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        ours = path.name.startswith(("ask_match_blend", "__editable__"))
        if not ours and path.suffix != ".pth":
            (site / path.name).symlink_to(path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "own"], check=True)
    (own,) = (folder / "own").glob("lib/python*/site-packages")
    (own / "site.pth").write_text(f"{site}\n")
    return folder / "own" / "bin" / "python"


def stand_in(folder: Path, python: Path) -> StandIn:
    """With the public address, for git, leading to the checkout as it stands."""
    address, ref = public_address()
    return StandIn(folder, python, redirect(address, publish(folder, ref)))
