"""Take a picture of a page with headless Chromium: python tools/picture.py page.html picture.png [PART].

PART: a height in pixels from the top, or the title of a figure to have that alone; by default the whole page.
"""

import sys
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
    page_path, picture, *part = sys.argv[1:]
    height = int(part[0]) if part and part[0].isdecimal() else None
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        page = browser.new_page(viewport={"width": 1180, "height": height or 900})
        page.goto(Path(page_path).resolve().as_uri())
        page.wait_for_selector(".figure .main-svg")
        if part and height is None:
            page.locator(".figure", has=page.get_by_role("heading", name=part[0], exact=True)).screenshot(path=picture)
        else:
            page.screenshot(path=picture, full_page=height is None)
        browser.close()
