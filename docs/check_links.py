"""Look for dead links in the built site: files and anchors inside it; nothing is fetched.

python docs/check_links.py build/site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what can be linked to, and what is linked."""
        del tag
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.append(value)


def dead(root: Path) -> list[str]:
    """Links that lead nowhere, with the page they stand on; those to other sites are not looked at."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in root.rglob("*.html")}
    found = []
    for path, page in sorted(pages.items()):
        # Its links begin with where the site will stand.
        if path.name == "404.html":
            continue
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            # Anchors that begin with two lines are made by scripts of the theme.
            named = unquote(url.fragment)
            if not target.exists():
                found.append(f"{path.relative_to(root.resolve())}: {link}: no such file")
            elif named and not named.startswith("__") and target in pages and named not in pages[target].anchors:
                found.append(f"{path.relative_to(root.resolve())}: {link}: no such anchor")
    return found


if __name__ == "__main__":
    links = dead(Path(sys.argv[1]))
    print("\n".join(links), end="\n" if links else "")
    sys.exit(bool(links))
