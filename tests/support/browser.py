"""Drives Chromium inside a network namespace: a program with a control socket, and `Browser`.

python browser.py CONTROL_SOCKET PROFILE_FOLDER
"""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from daemon_kit.control import CommandHandler, ControlCommand, ControlError, ControlServer, request

from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.waiting import until

TIMEOUT_S = 120.0


class Browser:
    """Chromium in `namespace`."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self._control = folder / "browser.sock"
        log = folder / "browser.out"
        self._process = namespace.start(
            *(sys.executable, "-m", "tests.support.browser", str(self._control), str(folder / "profile")),
            log=log,
            environment={"PYTHONPATH": str(REPOSITORY), "SE_OFFLINE": "true", "HOME": str(folder)},
        )
        end_s = time.monotonic() + TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < end_s, log.read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            self._ask("complaints")
        except ControlError:  # the socket is there a moment before it listens
            return False
        return True

    def open(self, url: str) -> None:
        """Load a page."""
        self._ask("open", url=url)

    def run(self, script: str) -> Any:
        """Return what a script returns in the page."""
        return self._ask("run", script=script)["value"]

    def press(self, key: str) -> None:
        """Press a key, named as in selenium's Keys."""
        self._ask("press", key=key)

    def look(self, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Take another size and colour scheme."""
        self._ask("look", width=width, height=height, dark=dark)

    def picture(self, path: Path) -> None:
        """Write the page as PNG."""
        self._ask("picture", path=str(path))

    def complaints(self) -> list[str]:
        """The lines of the browser's console: violated policies, failed loads, errors of scripts."""
        return list(self._ask("complaints")["lines"])

    def until(self, expression: str, timeout_s: float = 90.0) -> None:
        """Wait until an expression is true in the page."""

        def state() -> str:
            page = self.run("return document.body.innerText")
            return f"{expression} stays false in:\n{page}\n{self.complaints()}"

        until(lambda: self.run(f"return Boolean({expression})"), timeout_s, state, every_s=0.05)

    @property
    def process(self) -> subprocess.Popen[str]:
        """The process."""
        return self._process

    def _ask(self, command: str, **more: Any) -> dict[str, Any]:
        return request(self._control, command, timeout_s=TIMEOUT_S, **more)


class _Program:
    def __init__(self, profile: str) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service

        options = Options()
        options.binary_location = "/usr/bin/chromium"
        for argument in (
            *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
            *("disable-background-networking", "disable-component-update", "disable-sync"),
            *("disable-dev-shm-usage", f"user-data-dir={profile}", "window-size=1200,900"),
        ):
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self._driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))

    async def open(self, wanted: dict[str, Any]) -> dict[str, Any]:
        await asyncio.to_thread(self._driver.get, wanted["url"])
        return {}

    async def run(self, wanted: dict[str, Any]) -> dict[str, Any]:
        from selenium.common.exceptions import WebDriverException

        try:
            return {"value": await asyncio.to_thread(self._driver.execute_script, wanted["script"])}
        except WebDriverException as error:
            raise ControlError(str(error.msg)) from None

    async def press(self, wanted: dict[str, Any]) -> dict[str, Any]:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        key = getattr(Keys, wanted["key"])
        await asyncio.to_thread(ActionChains(self._driver).send_keys(key).perform)
        return {}

    async def look(self, wanted: dict[str, Any]) -> dict[str, Any]:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if wanted["dark"] else "light"}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": wanted["width"], "height": wanted["height"], "deviceScaleFactor": 1}
        metrics = {**size, "mobile": wanted["width"] < 500}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        return {}

    async def picture(self, wanted: dict[str, Any]) -> dict[str, Any]:
        await asyncio.to_thread(self._driver.save_screenshot, wanted["path"])
        return {}

    async def complaints(self, wanted: dict[str, Any]) -> dict[str, Any]:
        lines = [entry["message"] for entry in self._driver.get_log("browser")]  # type: ignore[no-untyped-call]
        return {"lines": lines}


async def _main(control: str, profile: str) -> None:
    program = await asyncio.to_thread(_Program, profile)
    commands: dict[str, ControlCommand | CommandHandler] = {
        "open": ControlCommand(program.open, {"url": str}),
        "run": ControlCommand(program.run, {"script": str}),
        "press": ControlCommand(program.press, {"key": str}),
        "look": ControlCommand(program.look, {"dark": bool, "width": int, "height": int}),
        "picture": ControlCommand(program.picture, {"path": str}),
        "complaints": program.complaints,
    }
    server = ControlServer(control, commands)  # kept: one that nobody refers to stops listening
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    os.environ["SE_OFFLINE"] = "true"
    asyncio.run(_main(*sys.argv[1:]))
