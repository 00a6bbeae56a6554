"""Dagster's pages in a browser: waiting for what they show, pressing what they offer, taking their pictures."""

import re
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.waits import PATIENCE

SECONDS = 90.0 * PATIENCE
RELOAD_SECONDS = 6.0
# Plots and graphs are drawn after their texts.
DRAWN_SECONDS = 2.0
_BUTTON = (
    "//button[normalize-space()='{0}'] | //*[@role='radio' or @role='tab' or @role='checkbox'][normalize-space()='{0}']"
    " | //a[normalize-space()='{0}'] | //label[normalize-space()='{0}']"
)


class Pages:
    """The pages of one web server."""

    def __init__(self, browser, url: str, images: Path) -> None:
        self.browser, self.url, self.images = browser, url, images

    def open(self, path: str, *words: str, size: tuple[int, int] = (1600, 900)) -> str:
        """Open a page and wait until it shows ``words``; its text."""
        self.browser.set_window_size(*size)
        self.browser.get(f"{self.url}/{path}")
        return self.wait_for(*words)

    def leave(self) -> None:
        """Show nothing: an open page asks for news and draws all the time, which a busy machine feels."""
        self.browser.get("about:blank")

    def wait_for(self, *words: str, seconds: float = SECONDS) -> str:
        """Wait until the page shows ``words``; its text."""
        deadline = time.monotonic() + seconds
        text = self._text()
        while not all(word in text for word in words) and time.monotonic() < deadline:
            time.sleep(0.5)
            text = self._text()
        missing = [word for word in words if word not in text]
        assert not missing, f"{self.browser.current_url} does not show {missing}:\n{text[:3000]}"
        return text

    def reload_until(self, path: str, patterns: Sequence[str], seconds: float) -> str:
        """Open a page again and again until its text has a match of each pattern; that text."""
        deadline = time.monotonic() + seconds * PATIENCE
        while True:
            self.browser.get(f"{self.url}/{path}")
            look_until = time.monotonic() + RELOAD_SECONDS
            while time.monotonic() < look_until:
                text = self._text()
                if all(re.search(pattern, text) for pattern in patterns):
                    return text
                time.sleep(0.25)
            assert time.monotonic() < deadline, f"{path} does not show {list(patterns)}:\n{text[:3000]}"

    def bring_to_top(self, label: str) -> None:
        """Scroll until what bears that label is at the top."""
        (found, *_) = self.browser.find_elements("xpath", _BUTTON.format(label))
        self.browser.execute_script("arguments[0].scrollIntoView(true)", found)

    def click(self, label: str, seconds: float = SECONDS) -> None:
        """Press what bears that label, once it is there and can be pressed."""
        from selenium.common.exceptions import WebDriverException

        deadline = time.monotonic() + seconds
        while True:
            found = [one for one in self.browser.find_elements("xpath", _BUTTON.format(label)) if one.is_displayed()]
            try:
                if found and found[-1].is_enabled():
                    found[-1].click()
                    return
                why = "nothing to press" if not found else "cannot be pressed"
            except WebDriverException as error:  # drawn anew meanwhile, or covered by what is about to go
                why = type(error).__name__
            assert time.monotonic() < deadline, (
                f"{label!r}: {why} at {self.browser.current_url}:\n{self._text()[:3000]}"
            )
            time.sleep(0.5)

    def choose(self, label: str, names: Sequence[str], title: str) -> None:
        """Open the list of that label, press these names in it, and close it by a press on the dialog's title."""
        self.wait_for(label)
        self.browser.find_elements("xpath", f"//*[contains(text(), '{label}')]")[-1].click()
        for name in names:
            self.wait_for(name)
            shown = self.browser.find_elements("xpath", f"//*[normalize-space(text())='{name}']")
            [one for one in shown if one.is_displayed()][-1].click()
        self.browser.find_elements("xpath", f"//*[contains(text(), '{title}')]")[-1].click()

    def turn_off(self) -> None:
        """Press the switch of a schedule's or sensor's page."""
        (switch, *_) = self.browser.find_elements("css selector", "label:has(input[type=checkbox])")
        switch.click()

    def numbers(self, label: str) -> list[int]:
        """The numbers beside ``label`` in tables of metadata; at least one."""
        lines = [line.strip() for line in self.wait_for(label).splitlines()]
        found = [lines[at + 1] for at, line in enumerate(lines[:-1]) if line == label]
        assert found, lines
        return [int(text.replace(",", "")) for text in found]

    def picture(self, name: str) -> None:
        """Take the picture ``<name>.png``."""
        time.sleep(DRAWN_SECONDS)
        assert self.browser.save_screenshot(str(self.images / f"{name}.png"))

    def _text(self) -> str:
        from selenium.common.exceptions import WebDriverException

        try:
            return self.browser.find_element("tag name", "body").text
        except WebDriverException:  # the page is being replaced
            return ""
