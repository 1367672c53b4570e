"""A file system: find a file by what it says, move it, change it, clear up behind it."""

from tool_env import ToolEnv

FOLDERS = ("drafts", "invoices", "letters", "notes", "reports", "scans")
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "islet", "juniper")


class FileSystemEnv(ToolEnv):
    """Six folders of two files each. Only one file holds the word that the user remembers."""

    def setup(self, rng):
        """Names, contents and the file in question."""
        names = [f"{a}-{b}.txt" for a in WORDS for b in WORDS if a < b]
        names = rng.sample(names, 12)
        self.state["files"] = {}
        codes = rng.sample(range(1000, 10000), 12)
        for place, name in enumerate(names):
            path = f"{FOLDERS[place // 2]}/{name}"
            self.state["files"][path] = f"case {codes[place]}\nopen"
        self.path = rng.choice(sorted(self.state["files"]))
        self.case = self.state["files"][self.path].split()[1]
        self.folder = rng.choice([f for f in FOLDERS if not self.path.startswith(f)])

    def stages(self):
        """Copy, close, delete."""
        case, old = self.case, self.path
        new = f"{self.folder}/{old.partition('/')[2]}"
        return [
            (
                f"One of my files is about case {case}. Copy it into the folder {self.folder}.",
                lambda state: case in state["files"].get(new, ""),
            ),
            (
                "In the copy, add a line that says closed.",
                lambda state: state["files"].get(new, "").split("\n")[-1] == "closed",
            ),
            (
                "Now the original can go.",
                lambda state: old not in state["files"] and new in state["files"],
            ),
        ]

    def tool_list_files(self, folder: str = ""):
        """Lists paths.

        folder: only those in this folder; empty for all
        """
        if folder and folder not in FOLDERS:
            raise ValueError(f"there is no folder {folder}")
        return sorted(path for path in self.state["files"] if path.startswith(folder))

    def tool_search(self, text: str):
        """Lists the paths of files that contain a text."""
        if len(text) < 3:
            raise ValueError("search for three characters or more")
        return sorted(path for path, content in self.state["files"].items() if text in content)

    def tool_read(self, path: str):
        """Shows what a file contains."""
        return self._content(path)

    def tool_copy(self, path: str, folder: str):
        """Copies a file into another folder, under its own name."""
        content = self._content(path)
        if folder not in FOLDERS:
            raise ValueError(f"there is no folder {folder}")
        target = f"{folder}/{path.partition('/')[2]}"
        if target in self.state["files"]:
            raise ValueError(f"{target} exists already")
        self.state["files"][target] = content
        return {"copied_to": target}

    def tool_append(self, path: str, line: str):
        """Adds one line to the end of a file."""
        self.state["files"][path] = f"{self._content(path)}\n{line.strip()}"
        return "The line was added."

    def tool_delete(self, path: str):
        """Deletes a file for good."""
        self._content(path)
        del self.state["files"][path]
        return "The file was deleted."

    def tool_disk_usage(self):
        """Tells how many characters all files have together."""
        return sum(map(len, self.state["files"].values()))

    def _content(self, path):
        if path not in self.state["files"]:
            raise ValueError(f"there is no file {path}")
        return self.state["files"][path]

    def solution(self):
        """Search, copy, append, delete."""
        new = f"{self.folder}/{self.path.partition('/')[2]}"
        return [
            [
                ("search", {"text": self.case}),
                ("copy", {"path": self.path, "folder": self.folder}),
            ],
            [("append", {"path": new, "line": "closed"})],
            [("delete", {"path": self.path})],
        ]
