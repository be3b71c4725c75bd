"""Make the site's two small fonts from whole ones: the icons in use, and letters for formulas.

    .venv/bin/python tools/fonts.py stix-two-math-latin-400-normal.woff2

The icons come from the theme (Font Awesome Free 6, SIL Open Font License 1.1); run this again when
the theme is raised. The letters come from STIX Two Math (SIL Open Font License 1.1), the file named
above in the npm package @fontsource/stix-two-math 5.3.0; run it again when a test of the built book
says that a formula uses a letter that is not there, after adding it below.
"""

import re
import sys
from pathlib import Path

import pydata_sphinx_theme
from fontTools import subset

STATIC = Path(__file__).resolve().parent.parent / "_static"
THEME = Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static"
WEBFONT = Path("vendor/fontawesome/webfonts/fa-solid-900.woff2")
ICONS = (
    *("angle-left", "angle-right", "arrow-up", "bars", "chevron-down", "chevron-right"),
    *("circle-half-stroke", "list", "magnifying-glass", "moon", "outdent", "sun", "xmark"),
)
LETTERS = (
    *range(0x20, 0x7F),  # upright letters, digits, signs
    *(0xA0, 0xAC, 0xB0, 0xB1, 0xB7, 0xD7),  # space, ¬ ° ± · ×
    *(0x2C6, 0x2DC, 0xAF, 0x203E, 0x5E, 0x302, 0x303, 0x304),  # hats, tildes and bars above
    *range(0x391, 0x3F7),  # Greek
    *range(0x1D434, 0x1D468),  # italic Latin, but for its h
    *(0x210E, 0x2113, 0x211D, 0x1D7D9),  # ℎ ℓ ℝ 𝟙
    *range(0x1D6E2, 0x1D71C),  # italic Greek
    *(0x2013, 0x2014, 0x2018, 0x2019, 0x201C, 0x201D, 0x2026, 0x2032, 0x22EF, 0x22EE, 0x22F1),
    *(0x2190, 0x2191, 0x2192, 0x2193, 0x21A6, 0x21D0, 0x21D2, 0x21D4),  # arrows
    *(0x2200, 0x2202, 0x2203, 0x2207, 0x2208, 0x2209, 0x220F, 0x2211, 0x2212, 0x2218, 0x221A),
    *(0x221D, 0x221E, 0x2225, 0x2227, 0x2228, 0x222A, 0x222B, 0x2229, 0x223C, 0x2248, 0x2260),
    *(0x2261, 0x2264, 0x2265, 0x226A, 0x226B, 0x2282, 0x2295, 0x2297, 0x2299, 0x22A4, 0x22C5),
    *(
        0x2016,
        0x2061,
        0x2223,
        0x27E8,
        0x27E9,
        0x230A,
        0x230B,
        0x2308,
        0x2309,
        0x23DE,
        0x23DF,
        0x23B4,
        0x23B5,
    ),
)


def cut(whole: Path, small: Path, wanted: list[int]) -> None:
    """Write a font with the wanted characters, and for MathML the larger forms of each."""
    options = subset.Options(flavor="woff2", hinting=False, layout_features=["ssty"])
    font = subset.load_font(str(whole), options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=wanted)
    cutter.subset(font)
    small.parent.mkdir(parents=True, exist_ok=True)
    subset.save_font(font, str(small), options)
    print(f"{small.relative_to(STATIC.parent)}: {small.stat().st_size:,} bytes")


def main(letters: str) -> None:
    styles = (THEME / "styles" / "pydata-sphinx-theme.css").read_text(encoding="utf-8")
    icons = [
        re.search(rf'\.fa-{icon}:before[^{{}}]*\{{content:"\\(\w+)"', styles) for icon in ICONS
    ]
    cut(THEME / WEBFONT, STATIC / WEBFONT, [int(icon[1], 16) for icon in icons])
    cut(Path(letters), STATIC / "fonts" / "math.woff2", list(LETTERS))


if __name__ == "__main__":
    main(*sys.argv[1:])
