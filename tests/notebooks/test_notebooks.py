"""The notebooks as a newcomer runs them, on the CPU, in a checkout of their own."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import nbclient
import nbformat
import pytest

from spade_jax.analysis import run

ROOT = pathlib.Path(__file__).parents[2]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LONGEST_PRINT = 6  # lines: pictures, not logs
# Pictures that a notebook shows at least.
PICTURES = {"method_in_15_minutes": 4, "bring_your_own": 3, "analyse_a_run": 6}


def read(path):
    return nbformat.read(path, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout whose runs/ nobody else writes into."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("spade_jax", "configs", "setup.cfg"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    return folder


def executed(name, checkout, monkeypatch):
    """The notebook with its outputs; a cell that fails raises."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(checkout), *sys.path]))
    notebook = read(checkout / "notebooks" / f"{name}.ipynb")
    place = {"metadata": {"path": str(checkout / "notebooks")}}
    # Minutes are enough, the lesson included, but not on a machine that is busy elsewhere.
    nbclient.NotebookClient(
        notebook, timeout=1800, startup_timeout=300, kernel_name="python3", resources=place
    ).execute()
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= PICTURES[name]
    for output in outputs:
        assert output.get("text", "").count("\n") <= LONGEST_PRINT, output["text"]
    return notebook


def test_bring_your_own(checkout, monkeypatch):
    notebook = executed("bring_your_own", checkout, monkeypatch)
    printed = [
        output.text for cell in code(notebook) for output in cell.outputs if "text" in output
    ]
    assert "Nothing is wrong with yours.\n" in printed
    faults = [line.split(":")[1].strip() for line in printed[-1].splitlines()]
    assert faults == ["types_and_ranges", "deterministic", "solvable", "hides_solution"]


def test_the_method_and_the_analysis_of_its_run(checkout, monkeypatch):
    method = executed("method_in_15_minutes", checkout, monkeypatch)
    made = run.read(checkout / "runs" / "notebook", 0, 100)
    assert [row["iteration"] for row in made["metrics"]] == [0, 1, 2, 3]
    shown = "".join(str(output) for cell in code(method) for output in cell.outputs)
    assert "class " in shown
    assert "plain, return" in shown
    before = (checkout / "runs" / "notebook" / "metrics.jsonl").read_bytes()
    executed("analyse_a_run", checkout, monkeypatch)
    assert (checkout / "runs" / "notebook" / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_no_outputs_in_git(path):
    for cell in code(read(path)):
        assert cell.outputs == []
        assert cell.execution_count is None


def test_two_notebooks_make_the_same_run():
    trains = {
        re.search(r"COMMAND = \[.*?\]", cell.source, re.DOTALL)[0]
        for name in ("method_in_15_minutes", "analyse_a_run")
        for cell in code(read(ROOT / "notebooks" / f"{name}.ipynb"))
        if "COMMAND = [" in cell.source
    }
    assert len(trains) == 1


def test_there_are_three_and_all_install_alike():
    assert {path.stem for path in PATHS} == PICTURES.keys()
    cells = {code(read(path))[0].source for path in PATHS}
    assert len(cells) == 1


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Runs the install cell on a machine made up; gives the commands it ran."""
    [source] = {code(read(path))[0].source for path in PATHS}
    commands = []

    def machine(devices=(), nvidia=False, repository="", checkout=False, installed=False):
        def known(name):
            return object() if installed else None

        def ran(command, check):
            commands.append(command)

        monkeypatch.chdir(ROOT / "notebooks" if checkout else tmp_path)
        monkeypatch.setattr("glob.glob", lambda pattern: [
            device for device in devices if pathlib.PurePath(device).match(pattern)])  # fmt: skip
        monkeypatch.setattr("shutil.which", lambda name: "/bin/nvidia-smi" if nvidia else None)
        monkeypatch.setattr("importlib.util.find_spec", known)
        monkeypatch.setattr(subprocess, "run", ran)
        monkeypatch.setattr(sys, "path", list(sys.path))
        text = source.replace('REPOSITORY = ""', f"REPOSITORY = {repository!r}")
        exec(compile(text, "install", "exec"), {})
        return commands

    return machine


@pytest.mark.parametrize(
    ("machine", "jax"),
    [({}, []), ({"nvidia": True}, ["jax[cuda12]>=0.10.2,<0.13"]),
     ({"devices": ["/dev/vfio/vfio", "/dev/vfio/0"]}, ["jax[tpu]>=0.10.2,<0.13"]),
     ({"devices": ["/dev/vfio/vfio"]}, []),
     ({"devices": ["/dev/accel0"]}, ["jax[tpu]>=0.10.2,<0.13"])],
    ids=["CPU", "T4", "v5e", "vfio without a device", "v4"],
)  # fmt: skip
def test_colab_clones_and_installs(install, tmp_path, machine, jax):
    clone, pip = install(repository="https://example.org/spade-jax", **machine)
    folder = str(tmp_path / "spade-jax")
    assert clone == ["git", "clone", "--depth=1", "https://example.org/spade-jax", folder]
    wanted = ["-e", f"{folder}[notebooks]", *jax]
    assert pip == [sys.executable, "-m", "pip", "install", "-q", *wanted]


def test_a_checkout_is_not_cloned(install):
    [pip] = install(checkout=True)
    assert f"{ROOT}[notebooks]" in pip


def test_nothing_is_done_where_all_is_there(install, capsys):
    assert install(checkout=True, installed=True) == []
    assert capsys.readouterr().out.endswith("on CPU\n")


def test_colab_without_an_address_says_what_to_do(install):
    with pytest.raises(SystemExit, match="set REPOSITORY"):
        install()
