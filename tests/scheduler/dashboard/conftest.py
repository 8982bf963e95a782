"""A headless Chromium, where one is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import FLAGS as COMMON_FLAGS

FLAGS = (*COMMON_FLAGS, "--disable-dev-shm-usage", "--window-size=1400,1300")


def chromium() -> tuple[str, str] | None:
    """Paths of the browser and of its driver, None where one of them is missing."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return None if browser is None or driver is None else (browser, driver)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """A selenium driver with an empty profile; what the pages log is at hand through ``get_log``."""
    found = chromium()
    if found is None:
        pytest.skip("no Chromium with its chromedriver is installed")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found[1]))
    try:
        driver.set_page_load_timeout(60)
        yield driver
    finally:
        driver.quit()
