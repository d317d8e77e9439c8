"""Take a picture of a page with headless Chromium: python tools/picture.py page.html picture.png [height]."""

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
    page_path, picture, *height = sys.argv[1:]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        page = browser.new_page(viewport={"width": 1180, "height": int(height[0]) if height else 900})
        page.goto(Path(page_path).resolve().as_uri())
        page.wait_for_selector(".figure .main-svg")
        page.screenshot(path=picture, full_page=not height)
        browser.close()
