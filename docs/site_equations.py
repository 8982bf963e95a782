"""Equations of the pages: LaTeX becomes MathML when the site is built; a hook of mkdocs.

Pages write equations as the repository's viewer shows them: ``$...$`` in a line, a fenced block ``math`` for an
equation of its own. Arithmatex finds both; here their LaTeX is converted, so that a page needs neither a script nor a
font nor a network.
"""

from __future__ import annotations

import html
import re

from math_core import LatexError, LatexToMathML
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

EQUATION = re.compile(r'(<(?:span|div) class="arithmatex">)\\([(\[])(.*?)\\[)\]](</(?:span|div)>)', re.DOTALL)

_converter = LatexToMathML()


def on_page_content(content: str, page: Page, **_: object) -> str:
    """Convert the equations of one page.

    Raises
    ------
    PluginError
        A page holds LaTeX that cannot be converted.
    """

    def converted(match: re.Match[str]) -> str:
        latex = html.unescape(match[3]).strip()
        try:
            mathml = _converter.convert_with_local_state(latex, displaystyle=match[2] == "[")
        except LatexError as error:
            raise PluginError(f"{page.file.src_uri}: no MathML for the equation {latex!r}: {error}") from None
        return f"{match[1]}{mathml}{match[4]}"

    return EQUATION.sub(converted, content)
