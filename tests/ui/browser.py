"""A Chromium of this machine, driven by Playwright. No browser is downloaded; without one these tests are skipped."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.pages_of_ui import Caller

if TYPE_CHECKING:
    from playwright.async_api import Page

CHROMIUM = os.environ.get("AIRUNWAY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or ""

needs_chromium = pytest.mark.skipif(
    not CHROMIUM or importlib.util.find_spec("playwright") is None,
    reason="no Chromium: install your system's (Debian: chromium), or name one in AIRUNWAY_CHROMIUM",
)


class Window:
    """One page, and all that a page of ours must never do."""

    def __init__(self, page: Page, caller: Caller) -> None:
        self.page, self.caller = page, caller
        self.wrong: list[str] = []
        page.on("console", lambda each: self.wrong.append(each.text) if each.type in ("error", "warning") else None)
        page.on("pageerror", lambda each: self.wrong.append(str(each)))
        page.on("dialog", lambda each: self.wrong.append(f"dialog: {each.message}"))
        page.on("request", self._on_request)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(f"{self.caller.guard.origin}/"):
            self.wrong.append(f"a request to {request.url}")

    async def open(self, path: str) -> None:
        """Go to a page."""
        await self.page.goto(f"{self.caller.guard.origin}{path}")

    async def text(self, selector: str = "main") -> str:
        """What is seen."""
        return re.sub(r"\s+", " ", await self.page.inner_text(selector))

    async def sees(self, text: str, selector: str = "main") -> None:
        """Wait until a text is there."""
        from playwright.async_api import expect

        await expect(self.page.locator(selector).first).to_contain_text(text, timeout=60_000)

    async def holds(self, text: str, selector: str) -> None:
        """Wait until a field has a text in it."""
        from playwright.async_api import expect

        await expect(self.page.locator(selector)).to_have_value(re.compile(re.escape(text)), timeout=60_000)


@asynccontextmanager
async def window(caller: Caller, *, width: int = 1280, height: int = 900, **context: Any) -> AsyncIterator[Window]:
    """A browser that was opened by a link."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            made = await browser.new_context(viewport={"width": width, "height": height}, **context)
            found = Window(await made.new_page(), caller)
            await found.page.goto(caller.guard.link())
            await found.page.wait_for_url(f"{caller.guard.origin}/")
            yield found
        finally:
            await browser.close()
