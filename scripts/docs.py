#!/usr/bin/env python3
"""docs.py stage|check FOLDER: the pages of the documentation as a site.

`stage` copies the pages into FOLDER/src with the links that they have, writes the C reference from
the comments of include/diloco, the Python reference from docstrings, and FOLDER/mkdocs.yml. `check`
reads the built site in FOLDER/site and names every link that leads nowhere. `make docs` does both."""
import html.parser
import json
import pathlib
import re
import shutil
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPIED = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "docs/**/*", "bench/**/*",
          "src/*/README.md", "examples/*", "python/examples/*", "configs/**/*", "include/diloco/*", "tests/**/*.txt",
          "tests/*/README.md", "tests/attack/*", "scripts/*")
HEADERS = ("run", "loop", "train", "user", "inspect", "clients", "config", "status", "tensor", "log", "diloco")
MODULES = ("diloco", "diloco.errors", "diloco.huggingface", "diloco.lightning", "diloco.peft")
CHAPTERS = {"Tutorials": "docs/tutorial", "How-to": "docs/how-to"}


def title(path):
    found = re.search(r"^# (.+)$", path.read_text(), re.M)
    return found.group(1) if found else path.stem


def paragraphs(comment):
    """A C comment as Markdown: text, with indented lines as code."""
    body = re.sub(r"^/\*+ ?|\s*\*/$", "", comment.strip())
    lines = [re.sub(r"^\s*\* ?", "", line) for line in body.split("\n")]
    out = []
    for line in lines:
        code = line.startswith("   ")
        if code and out and out[-1].strip() and not out[-1].startswith("    "):
            out.append("")
        out.append("    " + line if code else line.strip())
    return "\n".join(out).replace("<", "&lt;")


def c_reference(name):
    """One header: each comment, and the declaration after it."""
    text = (ROOT / f"include/diloco/{name}.h").read_text()
    pages = [f"# `diloco/{name}.h`\n"]
    text = re.sub(r"^#(?:ifndef|define|endif|ifdef).*(?:\\\n.*)*\n|^extern \"C\" \{\n", "", text, flags=re.M)
    pieces = re.split(r"(?m)^(/\*.*?\*/)\n", re.sub(r"(?ms)^/\*.*?\*/", lambda m: m.group().replace("\n", "\0"), text))
    for comment, code in zip(pieces[1::2], pieces[2::2]):
        comment, code = comment.replace("\0", "\n"), code.replace("\0", "\n").strip()
        names = re.findall(r"\b(diloco_\w+)\(", code) + re.findall(r"^\} (\w+);", code, re.M)
        names = [n for n in dict.fromkeys(names) if not n.endswith("_sized")]
        if names:
            pages.append("## " + ", ".join(f"`{n}`" for n in names[:3]) + (", …" if len(names) > 3 else "") + "\n")
        pages.append(paragraphs(comment) + "\n")
        if code and not code.startswith("#include"):
            pages.append(f"```c\n{code}\n```\n")
    return "\n".join(pages)


def stage(folder):
    source = folder / "src"
    shutil.rmtree(source, ignore_errors=True)
    for path in sorted({p for glob in COPIED for p in ROOT.glob(glob) if p.is_file()}):
        at = source / path.relative_to(ROOT)
        at.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":  # the site's Markdown reads one word after a fence
            at.write_text(re.sub(r"^( *```\w+) .*$", r"\1", path.read_text(), flags=re.M))
        else:
            shutil.copy(path, at)
    reference = source / "reference"
    reference.mkdir()
    for name in HEADERS:
        (reference / f"c-{name}.md").write_text(c_reference(name))
    for name in MODULES:
        (reference / f"python-{name}.md").write_text(f"# `{name}`\n\n::: {name}\n")

    chapters = [{name: [{title(p): str(p.relative_to(ROOT))} for p in sorted((ROOT / at).glob("*.md"))]}
                for name, at in CHAPTERS.items()]
    others = sorted((p for p in (ROOT / "docs").glob("*.md") if p.name != "README.md"), key=title)
    nav = [{"Start": "README.md"}, {"Contents": "docs/README.md"}, *chapters,
           {"Reference and explanation": [{title(p): str(p.relative_to(ROOT))} for p in others]},
           {"C": [{f"{n}.h": f"reference/c-{n}.md"} for n in HEADERS]},
           {"Python": [{n: f"reference/python-{n}.md"} for n in MODULES]},
           {"Changes": "CHANGELOG.md"}, {"Contributing": "CONTRIBUTING.md"}]
    diagrams = folder / "node/node_modules/mermaid/dist/mermaid.min.js"
    scripts = []
    if diagrams.exists():
        shutil.copy(diagrams, source / "mermaid.min.js")
        scripts = ["mermaid.min.js"]
    settings = {
        "site_name": "diloco", "docs_dir": "src", "site_dir": "site", "nav": nav, "use_directory_urls": False,
        "extra_javascript": scripts,
        "theme": {"name": "material", "font": False,
                  "features": ["content.code.copy", "navigation.sections", "navigation.top", "search.suggest"],
                  "palette": [{"media": "(prefers-color-scheme: light)", "scheme": "default"},
                              {"media": "(prefers-color-scheme: dark)", "scheme": "slate"}]},
        "plugins": ["search", {"mkdocstrings": {"handlers": {"python": {
            "paths": [str(ROOT / "python")], "options": {"show_source": False, "members_order": "source"}}}}}],
        "markdown_extensions": ["attr_list", "md_in_html", "tables", "toc", "pymdownx.highlight",
                                {"pymdownx.superfences": {"custom_fences": [{
                                    "name": "mermaid", "class": "mermaid",
                                    "format": "FENCE"}]}}],
        "validation": {"links": {"anchors": "info", "not_found": "info", "unrecognized_links": "info"},
                       "nav": {"omitted_files": "ignore"}},
    }
    # YAML is a superset of JSON, except for the name of a function.
    text = json.dumps(settings, indent=1, ensure_ascii=False)
    (folder / "mkdocs.yml").write_text(text.replace('"FENCE"', "!!python/name:pymdownx.superfences.fence_code_format"))


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.places = [], set()

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.places.add(value)


def check(folder):
    site, pages = folder / "site", {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = Links()
        pages[path].feed(path.read_text())
    problems, count = [], 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc or link.startswith(("data:", "/")):
                continue
            count += 1
            at = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            if not at.exists():
                problems.append(f"{path.relative_to(site)}: nothing is at {link}")
            elif url.fragment and at in pages and not url.fragment.startswith("__") \
                    and urllib.parse.unquote(url.fragment) not in pages[at].places:
                problems.append(f"{path.relative_to(site)}: no place at {link}")
    print("\n".join([*problems, f"{len(pages)} pages, {count} links, {len(problems)} lead nowhere"]))
    return bool(problems) or not pages


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[2]).resolve()
    where.mkdir(parents=True, exist_ok=True)
    sys.exit(check(where) if sys.argv[1] == "check" else stage(where))
