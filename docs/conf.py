"""Settings of the documentation site: ``make docs`` builds it into build/site.

The source folder of the site is the repository, not docs/: a page has the same place on the site as on GitHub, so that
one relative link serves both. README.md is the front page.
"""

import sys
from functools import partial
from pathlib import Path

from jupyter_cache.executors import utils as notebook_executor

import paircaps

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent / "extensions"))

# project
project = "paircaps"
author = "The paircaps authors"
copyright = "2026, The paircaps authors"
version = release = paircaps.__version__

# pages
root_doc = "README"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LOG.md",
    "SECURITY.md",
    "docs/**",
    "results/*.md",
    "results/**/*.md",
]
exclude_patterns = ["weights/**", "src/**", "docs/extensions/**", "docs/conf.py", "docs/**/.ipynb_checkpoints"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "command_help",
    "contents",
    "mathml",
    "offline",
    "public_names",
    "reference",
]

# Markdown and notebooks
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_show_tb = True
# What a command in a notebook prints comes in pieces of 100 bytes; each would be a block of its own on the page. The
# kernel's own log, which warns of TCP within this machine, shows errors alone.
notebook_executor.executenb = partial(
    notebook_executor.executenb, coalesce_streams=True, extra_arguments=["--IPKernelApp.log_level=ERROR"]
)

# API reference
autodoc_default_options = {"members": True, "exclude-members": "extra_repr"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
python_use_unqualified_type_names = True
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autosummary_generate = False
default_role = "code"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88

# look: nothing is loaded from elsewhere
smartquotes = False  # would turn the two hyphens of an option into a dash
html_favicon = "static/favicon.svg"
html_theme = "furo"
html_title = "paircaps"
html_static_path = ["static"]
html_extra_path = ["extra"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "native"
