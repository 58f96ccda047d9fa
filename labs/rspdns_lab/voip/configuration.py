"""The file of `rspdns-lab voip`: runs of calls, and the path that they take."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from daemon_kit.config_file import StrictModel
from daemon_kit.toml_lines import Location
from pydantic import Field, field_validator

from rspdns_lab.voip.quality import CODECS, MEDIA


class CallRun(StrictModel):
    """A `[[run]]`: calls that begin and end together."""

    calls: int = Field(100, ge=1, le=5000)
    codec: Literal["g711", "g726", "gsm", "gsm-25"] = "g711"
    medium: Literal["rtp", "iax2", "trunk"] = "rtp"
    duration_s: int = Field(10, ge=1, le=3600)
    direction: Literal["both", "out", "in"] = "both"
    rtcp: bool = False

    @property
    def title(self) -> str:
        """The run in words."""
        more = ", RTCP" * self.rtcp + f", {self.direction} only" * (self.direction != "both")
        return f"{self.calls:,} calls, {CODECS[self.codec].title}, {MEDIA[self.medium]}{more}"


class PathEnds(StrictModel):
    """The `[path]`: the network namespaces of both ends of a path that is there already."""

    caller: Path
    callee: Path

    @field_validator("caller", "callee")
    @classmethod
    def _is_namespace(cls, path: Path) -> Path:
        if not path.exists():
            raise ValueError(f"there is no network namespace {path}; make one: ip netns add {path.name}")
        return path


class VoipConfiguration(StrictModel):
    """The whole file."""

    run: tuple[CallRun, ...] = Field(min_length=1)
    path: PathEnds | None = None

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[tuple[Location, str]]:
        """Yield runs with RTCP that have no two RTP streams to report on."""
        runs = document.get("run")
        for index, run in enumerate(runs if isinstance(runs, list) else []):
            if isinstance(run, dict) and run.get("rtcp") is True:
                for key, needed in (("medium", "rtp"), ("direction", "both")):
                    if run.get(key, needed) != needed:
                        yield ("run", index, "rtcp"), f'RTCP needs {key} = "{needed}"; or leave rtcp out'
