"""Take a screenshot of a page with headless Chromium.

Usage: python tools/picture.py PAGE PICTURE [PART]. PART is a height in pixels from the top of the page, or the title of
one figure; by default the whole page is taken.
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, help="HTML file")
    parser.add_argument("picture", type=Path, help="PNG file to write")
    parser.add_argument("part", nargs="?", help="height in pixels, or title of a figure; by default the whole page")
    options = parser.parse_args()
    height = int(options.part) if options.part and options.part.isdecimal() else None
    with sync_playwright() as play:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1180, "height": height or 900})
        page.goto(options.page.resolve().as_uri())
        page.wait_for_selector(".figure .main-svg")
        if options.part and height is None:
            heading = page.get_by_role("heading", name=options.part, exact=True)
            page.locator(".figure", has=heading).screenshot(path=options.picture)
        else:
            page.screenshot(path=options.picture, full_page=height is None)
        browser.close()
