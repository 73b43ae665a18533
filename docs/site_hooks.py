"""What the documentation site does with the pages as they stand in the repository.

The README is the home page. Links to files that are no pages (sources, fixtures) become their paths: a site has no
such files, and says where they are instead of linking to nothing.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
#: A link or a picture of Markdown: mark, text, target.
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Make the home page of the README, and take the files that are drawn for pages."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links that lead out of the documentation by the paths that they lead to."""
    folder = PurePosixPath(page.file.src_uri).parent
    home = page.file.src_uri == "index.md"

    def resolved(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, _, anchor = target.partition("#")
        parts: list[str] = []
        for part in (folder / path).parts:
            if part == ".." and parts and parts[-1] != "..":
                parts.pop()
            elif part != ".":
                parts.append(part)
        inside = PurePosixPath(*parts)
        if files.get_file_from_path(inside.as_posix()) is not None:
            return match[0]
        index = inside / "README.md"
        if files.get_file_from_path(index.as_posix()) is not None:
            return f"{mark}[{text}]({path.rstrip('/')}/README.md{'#' + anchor if anchor else ''})"
        # From a page in docs/ the repository is one folder up; the README stands in it.
        outside = PurePosixPath(*parts[1:]) if parts[:1] == [".."] else PurePosixPath("docs", inside)
        outside = inside if home and (ROOT / inside).exists() else outside
        if not (ROOT / outside).exists():
            raise ValueError(f"{page.file.src_uri} links to {target}, and there is no {outside}")
        return f"{text} (`{outside}`)"

    return LINK.sub(resolved, markdown)
