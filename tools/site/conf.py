"""Sphinx's configuration of the documentation (tools/site/build.py)."""

project = "AI Runway"
author = "The AI Runway Authors"
project_copyright = "2026 The AI Runway Authors"

root_doc = "README"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns: list[str] = []
templates_path = ["templates"]

myst_heading_anchors = 4  # as GitHub makes them
# Commands with what they print, which no lexer knows in full.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "AI Runway"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
