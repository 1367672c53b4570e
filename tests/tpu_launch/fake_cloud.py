"""A gcloud, kubectl and git that write down their calls and answer from a list of rules.

A rule is {"match": regular expression over the whole command, "out": text, "error": text, "code":
exit status, "times": how often it holds}; the first that matches and still holds answers. What no
rule matches succeeds in silence.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

LAUNCH = Path(__file__).parents[2] / "tpu_launch"
PROGRAM = """#!{python} -IS
import json, os, re, sys
folder = {folder!r}
call = " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
with open(folder + "/calls.jsonl", "a") as file:
    file.write(json.dumps(call) + "\\n")
with open(folder + "/rules.json") as file:
    rules = json.load(file)
for rule in rules:
    if rule.get("times", 1) > 0 and re.search(rule["match"], call):
        if "times" in rule:
            rule["times"] -= 1
            with open(folder + "/rules.json", "w") as file:
                json.dump(rules, file)
        sys.stdout.write(rule.get("out", ""))
        sys.stderr.write(rule.get("error", ""))
        sys.exit(rule.get("code", 0))
"""


class FakeCloud:
    def __init__(self, folder: Path):
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name in ("gcloud", "kubectl", "git"):
            program = self.programs / name
            program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
            program.chmod(0o755)
        self.answer()

    def answer(self, *rules: dict) -> None:
        """Begins anew, with these rules."""
        rules = (*rules, {"match": "^git .*rev-parse", "out": "0123456789ab\n"})
        (self.folder / "rules.json").write_text(json.dumps(rules))
        (self.folder / "calls.jsonl").write_text("")

    def run(self, script: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess:
        environment = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PROJECT": "some-project",
            "BUCKET": "some-bucket",
            "POLL_SECONDS": "0",
            **settings,
        }
        return subprocess.run(
            [LAUNCH / script, *arguments],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def calls(self) -> list[str]:
        lines = (self.folder / "calls.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def changes(self) -> list[str]:
        """The calls that are no questions."""
        asks = r" (describe|list|get|status|rev-parse)( |$)|systemctl is-active"
        return [call for call in self.calls() if not re.search(asks, call)]
